//! The figures as aligned tables, for a terminal.

use crate::columns::{cell, parts};
use crate::figures::{PairFigures, Spread};
use crate::plan::Plan;
use crate::prediction::{predictions, sentence, table};
use crate::results::Results;
use crate::settings::Setting;
use report::columns::{align, row};
use report::numbers::rate;
use std::fmt::Write;

/// The report.
pub(super) fn text(results: &Results, figures: &[PairFigures]) -> String {
    let mut out = String::new();
    let rounds = results.options.rounds;
    let plural = if rounds == 1 { "" } else { "s" };
    let _ = writeln!(
        out,
        "{}, driver {}; ratios to alone, median of {rounds} round{plural} [spread]",
        results.machine.gpu, results.machine.driver
    );
    for pair in figures {
        let own = results.pairs.iter().find(|own| own.name == pair.pair).expect("figures are of the results' pairs");
        let _ = writeln!(out, "\n{}: {} | {}", pair.pair, own.latency, own.best_effort);
        let _ = writeln!(out, "{}", alone(pair));
        for part in parts(pair) {
            let heads = part.columns.iter().map(|column| column.head.to_owned());
            let mut rows: Vec<Vec<String>> = vec![std::iter::once("setting".to_owned()).chain(heads).collect()];
            for setting in pair.settings.iter().filter(|setting| setting.rounds > 0) {
                let cells = part.columns.iter().map(|column| cell((column.of)(setting)));
                rows.push(std::iter::once(setting.setting.clone()).chain(cells).collect());
            }
            let _ = write!(out, "\n{}\n{}", part.heading, align(&rows));
        }
        let given = given(pair);
        if !given.is_empty() {
            let _ = writeln!(out, "\n{}", given.join("\n"));
        }
        let mut refused = String::new();
        for (setting, reason) in pair.settings.iter().filter_map(|own| Some((own, own.refused.as_ref()?))) {
            let missing = if setting.rounds == 0 { "not measured" } else { "not measured in every round" };
            let _ = writeln!(refused, "{} {missing}: {reason}", setting.setting);
        }
        if !refused.is_empty() {
            let _ = write!(out, "\n{refused}");
        }
    }
    let predictions = predictions(results, figures);
    if !predictions.is_empty() {
        let _ = write!(out, "\n{}\n{}", sentence(&predictions), align(&table(&predictions)));
    }
    out
}

/// The pairs and settings of a plan.
pub fn list(plan: &Plan) -> String {
    let mut pairs = vec![row(["pair", ""])];
    pairs.extend(
        plan.pairs.iter().map(|pair| vec![pair.name.clone(), format!("{} | {}", pair.latency, pair.best_effort)]),
    );
    let world = |setting: &Setting| setting.best_effort.map_or("nobody".to_owned(), |world| world.to_string());
    let mut settings = vec![row(["setting", "latency", "best-effort", "sharing", ""])];
    settings.extend(plan.settings.iter().map(|setting| {
        let sharing = setting.sharing.unwrap_or("–").to_owned();
        vec![setting.name.clone(), setting.latency.to_string(), world(setting), sharing, setting.meaning.to_owned()]
    }));
    format!("{}\n{}", left(&pairs), left(&settings))
}

/// Columns of words, which begin where the column does.
fn left(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let pad =
        |row: &Vec<String>| row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect::<Vec<_>>();
    align(&rows.iter().map(pad).collect::<Vec<_>>())
}

/// What Weft did about best-effort programs, a line for each setting and load.
pub(super) fn given(pair: &PairFigures) -> Vec<String> {
    let lines = pair.settings.iter().flat_map(|setting| {
        let loads = [("one after the other", setting.closed.given), ("at random", setting.poisson.given)];
        loads.into_iter().filter_map(|(load, given)| {
            Some(format!("- `{}`, {load}: best-effort programs were {}", setting.setting, given?))
        })
    });
    lines.collect()
}

/// What a pair does alone, in a sentence.
pub(super) fn alone(pair: &PairFigures) -> String {
    let median = |spread: Option<Spread>| spread.map_or("–".into(), |spread| rate(spread.median));
    format!(
        "Alone: {} requests/s one after the other with p99 at {} ms, p99 at {} ms at random; the other side {} steps/s.",
        median(pair.capacity_rps),
        median(pair.closed_p99_ms),
        median(pair.poisson_p99_ms),
        median(pair.best_effort_rps)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{figures, tests::sample};
    use crate::plan::tests::plan;

    #[test]
    fn a_table_has_every_setting_that_was_measured_and_says_what_was_not() {
        let results = sample();
        let text = text(&results, &figures(&results));
        let line = |begin: &str| {
            let mut found = text.lines().filter(|line| line.starts_with(begin));
            found.next().unwrap_or_else(|| panic!("no {begin} in\n{text}")).to_owned()
        };
        assert_eq!(line("a <GPU>"), "a <GPU>, driver 580; ratios to alone, median of 2 rounds [spread]");
        assert_eq!(line("one:"), "one: a | b");
        assert_eq!(
            line("Alone:"),
            "Alone: 72.5 requests/s one after the other with p99 at 15.0 ms, p99 at 18.0 ms at random; the other \
             side 7.50 steps/s."
        );
        let default: Vec<String> = line("default ").split("  ").map(|cell| cell.trim().to_owned()).collect();
        assert!(default.contains(&"0.70 [0.70, 0.70]".to_owned()), "{default:?}");
        assert!(line("weft  ").contains("0.99 [0.99, 0.99]"));
        assert!(line("weft  ").ends_with('–'), "{}", line("weft  "));
        assert_eq!(line("mps"), "mps not measured: there is no MPS");
        assert_eq!(line("weft not"), "weft not measured in every round: it died");
    }

    #[test]
    fn a_plan_is_listed_with_what_runs_where() {
        let list = list(&plan("one = a | t", &["default", "weft"], 1));
        assert!(list.contains("default  native   native       –"), "{list}");
    }
}
