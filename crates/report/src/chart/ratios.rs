//! Ratios: a row for each, a point with its spread, and a line at 1.

use super::{Scale, Size, line, marker, style, svg, text, ticks};
use crate::data::{Estimate, RatioRow};
use crate::numbers::{decimal, escape, shorten, tick as tick_text};

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Ratios<'a> {
    pub(crate) rows: &'a [RatioRow],
    pub(crate) logarithmic: bool,
    pub(crate) name: &'a str,
}

/// Where the columns of numbers end in a wide drawing.
const VALUE_END: f64 = 760.0;

/// Nothing is drawn further from 1 than this on a logarithmic axis.
const LOG_LEAST: f64 = 0.1;
const LOG_MOST: f64 = 1000.0;

impl Ratios<'_> {
    pub(crate) fn draw(&self, size: Size) -> String {
        let (low, high) = self.range();
        let x = Scale { from: (self.place(low), self.place(high)), to: size.pick((150.0, 690.0), (0.0, 318.0)) };
        let at = |value: f64| x.at(self.place(value));
        // A narrow drawing has the name above the point, a wide one to its left.
        let (name_room, room) = size.pick((0.0, 26.0), (18.0, 22.0));
        let pitch = name_room + room;
        let top = size.pick(30.0, 26.0);
        let bottom = top + self.rows.len() as f64 * pitch;

        let mut parts = String::new();
        for tick in self.ticks(size, low, high) {
            parts += &line("grid", (at(tick), top), (at(tick), bottom));
            let class = if at(tick) - x.to.0 < 12.0 { "tick" } else { "tick middle" };
            parts += &text(class, (at(tick), bottom + 17.0), &tick_text(tick));
        }
        let unit = if self.logarithmic { "of alone, logarithmic" } else { "of alone" };
        parts += &text("tick middle name", ((x.to.0 + x.to.1) / 2.0, bottom + 35.0), unit);
        parts += &text("tick end name", (size.pick(VALUE_END, size.width()), top - 12.0), "of alone");
        if size == Size::Wide {
            parts += &text("tick end name", (size.width(), top - 12.0), "spread");
        }
        parts += &line("axis", (x.to.0, top), (x.to.0, bottom));
        parts += &line("reference", (at(1.0), top - 6.0), (at(1.0), bottom));
        for (index, row) in self.rows.iter().enumerate() {
            let start = top + index as f64 * pitch;
            let middle = start + name_room + room / 2.0;
            parts += &format!(
                "<g class=\"series {}\">\n<title>{}</title>\n",
                style(usize::from(!row.strong)),
                escape(&told(row))
            );
            parts += &match size {
                Size::Wide => text("who end", (140.0, middle + 4.5), &shorten(&row.name, 18)),
                Size::Narrow => text("who", (5.0, start + 13.0), &shorten(&row.name, 36)),
            };
            parts += &match row.value.filter(|value| value.mean.is_finite()) {
                Some(value) => self.point(size, &at, middle, value),
                None => text("tick end", (size.pick(VALUE_END, size.width()), middle + 4.5), missing(row)),
            };
            parts += "</g>\n";
        }
        svg(size, bottom + 44.0, &self.label(), &parts)
    }

    fn point(&self, size: Size, at: &dyn Fn(f64) -> f64, middle: f64, value: Estimate) -> String {
        let mut out = String::new();
        let (low, high) = (at(value.low), at(value.high));
        if high - low >= 0.5 {
            out += &format!("<path class=\"whisker\" d=\"M{low:.1} {:.1}v6m0-3H{high:.1}m0-3v6\"/>\n", middle - 3.0);
        }
        out += &marker(0, (at(value.mean), middle));
        out += &text("value end", (size.pick(VALUE_END, size.width()), middle + 4.5), &decimal(value.mean, 2));
        if size == Size::Wide {
            let spread = format!("{}–{}", decimal(value.low, 2), decimal(value.high, 2));
            out += &text("tick end", (size.width(), middle + 4.5), &spread);
        }
        out
    }

    /// The numbers that the axis spans; 1 is always among them.
    fn range(&self) -> (f64, f64) {
        let values = self.rows.iter().filter_map(|row| row.value).flat_map(|value| [value.mean, value.low, value.high]);
        let values = values.filter(|value| value.is_finite());
        let most = values.clone().fold(1.0, f64::max);
        match self.logarithmic {
            false => (0.0, most * 1.02),
            true => (values.fold(1.0, f64::min).max(LOG_LEAST) * 0.9, most.min(LOG_MOST) * 1.1),
        }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.clamp(LOG_LEAST / 2.0, LOG_MOST * 2.0).log10() } else { value }
    }

    fn ticks(&self, size: Size, low: f64, high: f64) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(low, high, size.pick(6, 3));
        }
        let steps = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
        steps.into_iter().filter(|step| (low..=high).contains(step)).collect()
    }

    fn label(&self) -> String {
        let all: Vec<String> = self.rows.iter().map(told).collect();
        format!("{}, over alone. {}.", self.name, all.join("; "))
    }
}

fn missing(row: &RatioRow) -> &'static str {
    if row.note.is_some() { "refused" } else { "–" }
}

/// A row in words.
fn told(row: &RatioRow) -> String {
    let note = row.note.as_ref().map_or(String::new(), |note| format!(", refused: {note}"));
    match row.value {
        Some(value) => {
            let [mean, low, high] = [value.mean, value.low, value.high].map(|value| decimal(value, 2));
            format!("{} {mean}, {low} to {high}{note}", row.name)
        }
        None => format!("{} not measured{note}", row.name),
    }
}
