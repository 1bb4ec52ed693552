//! The live view on a terminal.

use super::rows::{Order, gibibytes, rows};
use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use share_client::{Client, Status};
use std::time::{Duration, Instant};

/// What the person at the keyboard chose.
struct View {
    order: Order,
    filter: String,
    /// Whether keys go into the filter.
    typing: bool,
}

/// Shows it until `q` is pressed. The terminal is as it was afterwards, also after a panic.
pub(super) fn show(client: &Client, order: Order, filter: String, every: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init().context("use the terminal")?;
    let shown = follow(&mut terminal, client, View { order, filter, typing: false }, every);
    ratatui::restore();
    shown
}

fn follow(terminal: &mut DefaultTerminal, client: &Client, mut view: View, every: Duration) -> Result<()> {
    loop {
        let status = client.status()?;
        let until = Instant::now() + every;
        loop {
            terminal.draw(|frame| draw(frame, &status, &view)).context("draw")?;
            if !event::poll(until.saturating_duration_since(Instant::now())).context("wait for a key")? {
                break;
            }
            if let Event::Key(key) = event::read().context("read a key")?
                && key.kind == KeyEventKind::Press
                && press(&mut view, key)
            {
                return Ok(());
            }
        }
    }
}

/// Does what a key means; says whether that is to end.
fn press(view: &mut View, key: KeyEvent) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return key.code == KeyCode::Char('c');
    }
    match key.code {
        KeyCode::Enter => view.typing = false,
        KeyCode::Esc => (view.typing, view.filter) = (false, String::new()),
        KeyCode::Backspace if view.typing => drop(view.filter.pop()),
        KeyCode::Char(letter) if view.typing => view.filter.push(letter),
        KeyCode::Char('q') => return true,
        KeyCode::Char('/') => view.typing = true,
        KeyCode::Char('u') => view.order = Order::Used,
        KeyCode::Char('m') => view.order = Order::Memory,
        KeyCode::Char('l') => view.order = Order::Launches,
        KeyCode::Char('w') => view.order = Order::Waiting,
        KeyCode::Char('n') => view.order = Order::Name,
        _ => {}
    }
    false
}

fn draw(frame: &mut Frame<'_>, status: &Status, view: &View) {
    let mut heads: Vec<Line<'_>> = Vec::new();
    for gpu in &status.gpus {
        let used: u32 = gpu.tenants.iter().map(|tenant| tenant.used_permille).sum();
        let memory: u64 = gpu.tenants.iter().map(|tenant| tenant.memory_bytes).sum();
        let (percent, memory, all) = (used / 10, gibibytes(memory), gibibytes(gpu.memory_bytes));
        let count = gpu.tenants.len();
        let text = format!("GPU {} {}: {percent}% used, {memory} of {all}, {count} tenants", gpu.index, gpu.name);
        heads.push(Line::from(text));
    }
    heads.extend(status.problem.iter().map(|problem| Line::from(problem.as_str())));
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(heads.len() as u16 + 1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(heads), top);

    let rows = rows(status, view.order, &view.filter);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) as u16 + 1;
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<Constraint> = (0..columns).map(|column| Constraint::Length(width(column))).collect();
    let cells = |row: &Vec<String>| Row::new(row.iter().cloned().map(Cell::from).collect::<Vec<Cell<'_>>>());
    let titles = rows.first().map(cells).unwrap_or_default().style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(rows.iter().skip(1).map(cells), widths).header(titles), middle);

    let help = match view.typing {
        true => format!("filter: {}_  (enter: done, esc: all)", view.filter),
        false if view.filter.is_empty() => "sort: u m l w n   filter: /   quit: q".to_owned(),
        false => format!("sort: u m l w n   filter: / ({})   quit: q", view.filter),
    };
    frame.render_widget(Paragraph::new(help), bottom);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use share_client::{GpuStatus, TenantStatus};

    #[test]
    fn keys_sort_filter_and_quit() {
        let mut view = View { order: Order::Used, filter: String::new(), typing: false };
        let mut type_in = |keys: &str| {
            let press_one = |letter| press(&mut view, KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
            keys.chars().map(press_one).last() == Some(true)
        };
        assert!(!type_in("m/q"));
        assert_eq!((view.order, view.filter.as_str(), view.typing), (Order::Memory, "q", true));
        press(&mut view, KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        assert!(view.filter.is_empty());
        assert!(press(&mut view, KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn gpus_and_tenants_are_on_the_screen() {
        let tenant = TenantStatus { name: "train".into(), used_permille: 420, ..TenantStatus::default() };
        let gpu = GpuStatus { name: "Stand-in".into(), tenants: vec![tenant], ..GpuStatus::default() };
        let status = Status { gpus: vec![gpu], ..Status::default() };
        let view = View { order: Order::Used, filter: String::new(), typing: false };
        let mut terminal = Terminal::new(TestBackend::new(120, 8)).unwrap();
        terminal.draw(|frame| draw(frame, &status, &view)).unwrap();
        let screen = terminal.backend().to_string();
        for text in ["GPU 0 Stand-in: 42% used", "train", "42.0%", "quit: q"] {
            assert!(screen.contains(text), "{screen}");
        }
    }
}
