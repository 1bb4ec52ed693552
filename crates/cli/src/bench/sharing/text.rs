//! The figures as aligned tables, for a terminal.

use super::columns::{cell, parts};
use super::figures::{PairFigures, Spread};
use super::prediction::{predictions, sentence, table};
use super::results::Results;
use crate::page::text::rate;
use crate::table::align;
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
    use super::super::figures::{figures, tests::sample};
    use super::*;

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
}
