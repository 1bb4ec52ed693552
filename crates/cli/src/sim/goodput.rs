//! `weft sim goodput`: the highest rate that each policy can serve, over several seeds.

use super::options::{Comparison, File};
use super::parallel;
use crate::output;
use report::Estimate;
use report::columns::align;
use report::numbers::{percent_tick, rate};
use serde::Serialize;
use sim::{Scenario, Search};

/// Find the highest rate that each policy can serve.
///
/// Goodput is the highest rate at which no more than --limit of the requests are late, refused or lost: of all requests
/// together, and of each model on its own. The search runs each policy with several seeds, on all cores, and ignores the
/// scenario's own rate and policy. No policy can exceed the fluid bound.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,

    #[command(flatten)]
    comparison: Comparison,

    /// Print a list with a JSON object for each policy
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim goodput examples/01-one-model/scenario.toml
  weft sim goodput examples/01-one-model/scenario.toml --policies weft,deferred --seeds 5
  weft sim goodput examples/01-one-model/scenario.toml --limit 0.1% --json";

/// What a policy can serve, in requests a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PolicyGoodput {
    pub(super) policy: String,
    /// Mean over seeds, with the limit for all requests taken together.
    pub(super) goodput_average: f64,
    /// Mean over seeds, with the limit for every model on its own.
    pub(super) goodput_worst: f64,
    pub(super) goodput_average_low: f64,
    pub(super) goodput_average_high: f64,
    pub(super) goodput_worst_low: f64,
    pub(super) goodput_worst_high: f64,
    pub(super) seeds: Vec<SeedGoodput>,
}

/// The same with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SeedGoodput {
    pub(super) seed: u64,
    pub(super) average: f64,
    pub(super) worst: f64,
}

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let scenario = arguments.file.read()?;
    let found = measure(&scenario, &arguments.comparison);
    match arguments.json {
        true => output::print_json(&found),
        false => output::print(&text(&found, &arguments.comparison, &scenario)),
    }
}

/// The goodput of each policy, in the order that was asked for.
pub(super) fn measure(scenario: &Scenario, comparison: &Comparison) -> Vec<PolicyGoodput> {
    let search = Search { limit: comparison.limit, ..Search::default() };
    let seeds: Vec<u64> = (0..comparison.seeds.get()).map(|step| scenario.seed + u64::from(step)).collect();
    let pairs = comparison.policies.iter().flat_map(|policy| seeds.iter().map(move |seed| (policy, *seed)));
    let jobs: Vec<(&String, u64)> = pairs.collect();
    let found = parallel::map("goodput", &jobs, |(policy, seed)| {
        let scenario = Scenario { policy: (*policy).clone(), seed: *seed, ..scenario.clone() };
        let found = sim::goodput(&scenario, &search);
        SeedGoodput { seed: *seed, average: found.average, worst: found.worst }
    });
    let by_policy = comparison.policies.iter().zip(found.chunks(seeds.len()));
    by_policy.map(|(policy, seeds)| PolicyGoodput::new(policy, seeds.to_vec())).collect()
}

impl PolicyGoodput {
    fn new(policy: &str, seeds: Vec<SeedGoodput>) -> PolicyGoodput {
        let average = estimate(seeds.iter().map(|seed| seed.average));
        let worst = estimate(seeds.iter().map(|seed| seed.worst));
        PolicyGoodput {
            policy: policy.to_owned(),
            goodput_average: average.mean,
            goodput_worst: worst.mean,
            goodput_average_low: average.low,
            goodput_average_high: average.high,
            goodput_worst_low: worst.low,
            goodput_worst_high: worst.high,
            seeds,
        }
    }

    /// With the limit for all requests taken together.
    pub(super) fn average(&self) -> Estimate {
        Estimate { mean: self.goodput_average, low: self.goodput_average_low, high: self.goodput_average_high }
    }

    /// With the limit for every model on its own.
    pub(super) fn worst(&self) -> Estimate {
        Estimate { mean: self.goodput_worst, low: self.goodput_worst_low, high: self.goodput_worst_high }
    }
}

fn estimate(values: impl ExactSizeIterator<Item = f64> + Clone) -> Estimate {
    Estimate {
        mean: values.clone().sum::<f64>() / values.len() as f64,
        low: values.clone().fold(f64::INFINITY, f64::min),
        high: values.fold(0.0, f64::max),
    }
}

fn text(found: &[PolicyGoodput], comparison: &Comparison, scenario: &Scenario) -> String {
    let best = |of: fn(&PolicyGoodput) -> Estimate| found.iter().map(|policy| of(policy).mean).fold(0.0, f64::max);
    let (best_average, best_worst) = (best(PolicyGoodput::average), best(PolicyGoodput::worst));
    let spread = comparison.seeds.get() > 1;
    let heads = if spread { vec!["low-high", "of best"] } else { vec!["of best"] };
    let heads = ["average"].iter().chain(&heads).chain(&["worst model"]).chain(&heads).map(|head| (*head).to_owned());
    let mut rows: Vec<Vec<String>> = vec![std::iter::once("policy".to_owned()).chain(heads).collect()];
    for policy in found {
        let average = cells(policy.average(), best_average, spread);
        let worst = cells(policy.worst(), best_worst, spread);
        rows.push(std::iter::once(policy.policy.clone()).chain(average).chain(worst).collect());
    }
    let (limit, seeds) = (percent_tick(comparison.limit), comparison.seeds);
    let mean = if spread { format!(", mean of {seeds} seeds") } else { String::new() };
    format!(
        "{}\nRequests a second with at most {limit} bad{mean}; the fluid bound is {}.\n",
        align(&rows),
        rate(sim::bound::goodput(scenario, comparison.limit)),
    )
}

fn cells(own: Estimate, best: f64, spread: bool) -> Vec<String> {
    let of_best = if best > 0.0 { own.mean / best } else { 0.0 };
    let range = spread.then(|| format!("{}-{}", rate(own.low), rate(own.high)));
    [rate(own.mean)].into_iter().chain(range).chain([format!("{of_best:.2}")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_over_seeds() {
        let seed = |seed, average, worst| SeedGoodput { seed, average, worst };
        let policy = PolicyGoodput::new("weft", vec![seed(1, 10.0, 4.0), seed(2, 14.0, 2.0), seed(3, 12.0, 3.0)]);
        assert_eq!(
            (policy.goodput_average, policy.goodput_average_low, policy.goodput_average_high),
            (12.0, 10.0, 14.0)
        );
        assert_eq!((policy.goodput_worst, policy.goodput_worst_low, policy.goodput_worst_high), (3.0, 2.0, 4.0));
        assert_eq!(cells(policy.average(), 24.0, true), ["12.0", "10.0-14.0", "0.50"]);
        assert_eq!(cells(policy.average(), 0.0, false), ["12.0", "0.00"]);
    }
}
