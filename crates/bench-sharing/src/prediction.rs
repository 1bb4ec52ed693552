//! What the simulator expects of a pair from what each program does alone, beside what was measured.

use crate::figures::PairFigures;
use crate::results::{Load, Results, Run, Side, Solos};
use policy::Span;
use serde::Serialize;
use sim::sharing::{AtRandom, Expected, Pair, Solo, predict};

/// Settings that the simulator knows, and what they are called there.
const KNOWN: [(&str, &str); 7] = [
    ("default", "default"),
    ("mps", "mps"),
    ("fikit", "fikit"),
    ("tgs", "tgs"),
    ("orion", "orion"),
    // Of Weft, the simulator has no parts of the SMs.
    ("gate", "weft"),
    ("weft-time", "weft-time"),
];

/// A pair in a setting. Ratios to alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Prediction {
    pub(super) pair: String,
    pub(super) setting: &'static str,
    pub(super) expected: Expected,
    pub(super) throughput: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) best_effort: Option<f64>,
    pub(super) best_effort_at_random: Option<f64>,
}

impl Prediction {
    /// How far it is off: throughputs in parts of those alone, since they may be nothing, p99 in parts of what was
    /// measured.
    pub(super) fn errors(&self) -> [Option<f64>; 4] {
        let apart = |expected: f64, measured: Option<f64>| measured.map(|measured| (expected - measured).abs());
        let off = |expected: f64, measured: Option<f64>| measured.map(|measured| (expected / measured - 1.0).abs());
        [
            apart(self.expected.throughput, self.throughput),
            off(self.expected.p99, self.p99),
            apart(self.expected.best_effort, self.best_effort),
            apart(self.expected.best_effort_at_random, self.best_effort_at_random),
        ]
    }
}

/// Everything that is expected of pairs whose programs were seen alone.
pub(super) fn predictions(results: &Results, figures: &[PairFigures]) -> Vec<Prediction> {
    results.solos.iter().flat_map(|solos| of_pair(results, figures, solos)).collect()
}

fn of_pair(results: &Results, figures: &[PairFigures], solos: &Solos) -> Vec<Prediction> {
    let Some(pair) = figures.iter().find(|pair| pair.pair == solos.pair) else { return Vec::new() };
    let latency = as_alone(results, &solos.pair, "alone", solos.latency, |run| run.latency.as_ref());
    let best_effort =
        as_alone(results, &solos.pair, "best-effort-alone", solos.best_effort, |run| run.best_effort.as_ref());
    let group = results.pairs.iter().find(|named| named.name == solos.pair).map(|named| &named.latency);
    let objective = group.and_then(|group| group.slo.as_ref()?.parse().ok());
    let alone = Pair { latency, objective, best_effort };
    let options = &results.options;
    let span = |seconds: f64| Span::from_secs_f64(seconds);
    let (lead, duration) = (span(options.warmup_seconds), span(options.poisson_seconds));
    let at_random = AtRandom { load: options.poisson_load, lead, duration };
    let wanted = KNOWN.iter().filter_map(|(name, policy)| {
        let measured = pair.settings.iter().find(|setting| setting.setting == *name && setting.rounds > 0)?;
        let expected = predict(policy, alone, at_random, options.seed)?;
        Some(Prediction {
            pair: pair.pair.clone(),
            setting: name,
            expected,
            throughput: measured.closed.throughput.map(|spread| spread.median),
            p99: measured.poisson.p99.map(|spread| spread.median),
            best_effort: measured.closed.best_effort.map(|spread| spread.median),
            best_effort_at_random: measured.poisson.best_effort.map(|spread| spread.median),
        })
    });
    wanted.collect()
}

/// A program as it was when nothing counted its launches, which is what ratios are to.
fn as_alone(results: &Results, pair: &str, setting: &str, solo: Solo, side: fn(&Run) -> Option<&Side>) -> Solo {
    let alone =
        results.runs.iter().filter(|run| run.pair == pair && run.setting == setting && run.load == Load::Closed);
    let mut rates: Vec<f64> = alone.filter_map(side).map(|side| side.rate_rps).filter(|rate| *rate > 0.0).collect();
    rates.sort_by(f64::total_cmp);
    match rates.get(rates.len() / 2) {
        Some(rate) => Solo { takes_ms: 1e3 / rate, ..solo },
        None => solo,
    }
}

/// The mean error of throughput, p99 and best-effort in both loads; `None` where nothing can be compared.
pub(super) fn mean_errors(predictions: &[Prediction]) -> [Option<f64>; 3] {
    [&[0][..], &[1], &[2, 3]].map(|of| {
        let errors = predictions.iter().flat_map(|prediction| of.iter().map(|index| prediction.errors()[*index]));
        let errors: Vec<f64> = errors.flatten().collect();
        (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
    })
}

/// Heads and rows of a table.
pub(super) fn table(predictions: &[Prediction]) -> Vec<Vec<String>> {
    let heads = ["pair", "setting", "throughput", "measured", "p99", "measured", "best-effort", "measured"];
    let heads = heads.into_iter().chain(["at random", "measured"]);
    let mut rows = vec![heads.map(String::from).collect()];
    let number = |number: f64| format!("{number:.2}");
    let measured = |measured: Option<f64>| measured.map_or("–".to_owned(), number);
    for one in predictions {
        rows.push(vec![
            one.pair.clone(),
            one.setting.to_owned(),
            number(one.expected.throughput),
            measured(one.throughput),
            number(one.expected.p99),
            measured(one.p99),
            number(one.expected.best_effort),
            measured(one.best_effort),
            number(one.expected.best_effort_at_random),
            measured(one.best_effort_at_random),
        ]);
    }
    rows
}

/// How far predictions are off, in a sentence.
pub(super) fn sentence(predictions: &[Prediction]) -> String {
    let [throughput, p99, best_effort] = mean_errors(predictions);
    let part = |error: Option<f64>| error.map_or("–".to_owned(), |error| format!("{error:.2}"));
    let percent = p99.map_or("–".to_owned(), |error| format!("{:.0}%", error * 100.0));
    format!(
        "Expected from what each program does alone, before they met. Off on average by {} of the throughput alone, \
         {percent} of the p99 that was measured, and {} of the best-effort throughput alone.",
        part(throughput),
        part(best_effort)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{figures, tests::sample};

    #[test]
    fn pairs_that_were_seen_alone_are_predicted_and_compared() {
        let mut results = sample();
        assert!(predictions(&results, &figures(&results)).is_empty());
        let latency = Solo { launches: 100.0, gpu_ms: 5.0, takes_ms: 13.0, kernels: None };
        let best_effort = Solo { launches: 50.0, gpu_ms: 100.0, takes_ms: 130.0, kernels: None };
        results.solos.push(Solos { pair: "one".into(), latency, best_effort });
        let all = predictions(&results, &figures(&results));
        assert_eq!(
            all.iter().map(|one| one.setting).collect::<Vec<_>>(),
            ["default"],
            "what was measured and is known"
        );
        assert_eq!(all[0].throughput, Some(0.7));
        assert!(all[0].errors()[0].is_some_and(|error| (0.0..1.0).contains(&error)), "{all:?}");
        assert!(sentence(&all).contains('%'));
        assert_eq!(table(&all)[1][..2], ["one", "default"]);
    }
}
