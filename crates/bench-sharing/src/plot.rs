//! The figures as a page of charts.

use crate::columns::measured;
use crate::figures::{PairFigures, SettingFigures, Spread};
use crate::results::Results;
use crate::text::alone;
use report::ratios::{RatioChart, RatioPage, RatioSection};
use report::{Estimate, RatioRow};

/// A chart: its heading, what it says, whether it is logarithmic, and its figure.
type Chart = (&'static str, &'static str, bool, fn(&SettingFigures) -> Option<Spread>);

const CHARTS: [Chart; 6] = [
    ("Throughput of the latency side", "One request after the other. Higher is better.", false, |own| {
        own.closed.throughput
    }),
    ("Its 99th percentile", "One request after the other. Lower is better.", true, |own| own.closed.p99),
    (
        "Throughput of the best-effort side",
        "Beside requests that follow one another. Higher is better.",
        false,
        |own| own.closed.best_effort,
    ),
    ("99th percentile at random", "Requests come at random. Lower is better.", true, |own| own.poisson.p99),
    ("Throughput of the best-effort side at random", "Beside requests at random. Higher is better.", false, |own| {
        own.poisson.best_effort
    }),
    ("Goodput at random", "Requests that were answered in time. Higher is better.", false, |own| own.poisson.goodput),
];

/// The page, as a whole HTML document.
pub(super) fn page(results: &Results, figures: &[PairFigures]) -> String {
    let machine = &results.machine;
    let pairs = |name: &str, value: String| (name.to_owned(), value);
    report::ratios::render(&RatioPage {
        kicker: "weft bench sharing".into(),
        title: "Sharing a GPU".into(),
        question: "How far is each of two sides from what it does alone, in every way to share a GPU? Points are \
                   medians over rounds, lines span the least and the most, or of more than eight what the median lies \
                   between 19 times in 20."
            .into(),
        summary: vec![
            pairs("GPU", machine.gpu.clone()),
            pairs("Driver", machine.driver.clone()),
            pairs("Rounds", results.options.rounds.to_string()),
            pairs("Version", format!("weft {}", results.weft)),
            pairs("Command", results.command.clone()),
        ],
        sections: figures.iter().map(|pair| section(results, pair)).collect(),
    })
}

fn section(results: &Results, pair: &PairFigures) -> RatioSection {
    let own = results.pairs.iter().find(|own| own.name == pair.pair).expect("figures are of the results' pairs");
    RatioSection {
        heading: pair.pair.clone(),
        text: format!("{} beside {}. {}", own.latency, own.best_effort, alone(pair)),
        charts: CHARTS.iter().map(|chart| draw(pair, chart)).collect(),
    }
}

fn draw(pair: &PairFigures, (heading, caption, logarithmic, of): &Chart) -> RatioChart {
    let estimate = |spread: Spread| Estimate { mean: spread.median, low: spread.low, high: spread.high };
    let shown = |setting: &&SettingFigures| of(setting).is_some() || !measured(&setting.closed);
    let row = |setting: &SettingFigures| RatioRow {
        name: setting.setting.clone(),
        value: of(setting).map(estimate),
        note: setting.refused.clone(),
        strong: setting.setting == "weft",
    };
    RatioChart {
        heading: (*heading).into(),
        caption: (*caption).into(),
        logarithmic: *logarithmic,
        rows: pair.settings.iter().filter(shown).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{figures, tests::sample};

    #[test]
    fn every_setting_is_drawn_and_names_are_escaped() {
        let results = sample();
        let page = page(&results, &figures(&results));
        assert!(page.contains("a &lt;GPU&gt;") && !page.contains("<GPU>"));
        for expected in ["default", "refused", "there is no MPS", "1.40", "0.70 to 0.70"] {
            assert!(page.contains(expected), "{expected} is not in the page");
        }
        assert_eq!(page.matches("<figure").count(), CHARTS.len());
    }
}
