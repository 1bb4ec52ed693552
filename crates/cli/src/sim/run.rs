//! `weft sim run`: one run, looked at closely.

use super::options::{File, policy_name};
use crate::output;
use report::columns::{align, row};
use report::numbers::{count, decimal, mean, percent, rate, share};
use sim::{GpuGroup, Percentiles, Report, Scenario};

/// Run a scenario once and report the outcome of its requests.
///
/// Prints the offered rate and the rate answered in time, why requests were bad, batch sizes, queueing and latency, the
/// utilization of each GPU, and the fluid bound, which no policy can exceed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,

    /// Policy [default: the scenario's]
    #[arg(long, value_parser = policy_name())]
    policy: Option<String>,

    /// Requests a second over all models [default: the scenario's]
    #[arg(long, value_parser = offered, allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Seed [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,

    /// Print everything as JSON, with figures by model
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim run examples/01-one-model/scenario.toml
  weft sim run examples/01-one-model/scenario.toml --policy eager --rate 5000
  weft sim run examples/01-one-model/scenario.toml --json | jq .bad_worst";

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let mut scenario = arguments.file.read()?;
    if let Some(policy) = &arguments.policy {
        scenario.policy.clone_from(policy);
    }
    scenario.rate = arguments.rate.unwrap_or(scenario.rate);
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    let report = sim::run(&scenario);
    match arguments.json {
        true => output::print_json(&report),
        false => output::print(&text(&scenario, &report)),
    }
}

fn offered(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| sim::RATES.contains(rate));
    rate.ok_or_else(|| format!("expected a number from {} to {}", sim::RATES.start(), sim::RATES.end()))
}

fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= i64::MAX as u64);
    seed.ok_or_else(|| format!("expected a whole number from 0 to {}", i64::MAX))
}

fn text(scenario: &Scenario, report: &Report) -> String {
    let causes = &report.bad_by_cause;
    let worst = format!("worst model, {}", report.worst_model);
    let rates = [
        row(["", "requests/s", "of offered", "of bound"]),
        vec!["offered".into(), rate(report.offered_rps)],
        vec!["good".into(), rate(report.good_rps), share(1.0 - report.bad_average), share(report.bound_fraction)],
        vec!["fluid bound".into(), rate(report.bound_rps), share(report.bound_rps / report.offered_rps)],
    ];
    let bad = [
        vec!["bad".to_owned(), percent(report.bad_average)],
        vec!["  answered late".into(), percent(causes.late)],
        vec!["  refused, too late to be on time".into(), percent(causes.too_late)],
        vec!["  refused, to keep a batch on time".into(), percent(causes.sacrificed)],
        vec!["  refused, GPU lost".into(), percent(causes.gpu_lost)],
        vec![worst, percent(report.bad_worst)],
    ];
    let spread = [
        row(["", "mean", "p50", "p90", "p99", "p99.9", "max"]),
        percentiles("batch size, as requests see it", &report.batch_size),
        percentiles("queueing, ms", &report.queueing_ms),
        percentiles("latency, ms", &report.latency_ms),
    ];
    [
        format!("{}, seed {}, {} measured\n", report.policy, report.seed, scenario.duration),
        align(&rates),
        align(&bad),
        format!("{} requests a batch on average\n{}", rate(report.mean_batch), align(&spread)),
        busy(&scenario.gpus, &report.gpu_busy),
    ]
    .join("\n")
}

fn percentiles(name: &str, of: &Percentiles) -> Vec<String> {
    let numbers = [of.mean, of.p50, of.p90, of.p99, of.p999, of.max].map(|value| decimal(value, 1));
    std::iter::once(name.to_owned()).chain(numbers).collect()
}

/// GPUs that are told one by one; more are told by deciles.
const LISTED_MAX: usize = 16;

/// The part of time that each GPU was busy.
fn busy(groups: &[GpuGroup], busy: &[f64]) -> String {
    let idle = busy.iter().filter(|busy| **busy < 0.01).count();
    let head = format!(
        "GPUs {} busy on average, {} of {} idle (under 1% busy)\n",
        share(mean(busy)),
        count(idle),
        count(busy.len())
    );
    let mut rows = Vec::new();
    if busy.len() > LISTED_MAX {
        let names = ["least", "10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "most"];
        rows.push(std::iter::once("busy, by decile").chain(names).map(str::to_owned).collect());
    }
    let mut rest = busy;
    for group in groups {
        let (own, others) = rest.split_at(group.count);
        let name = format!("{} {}", count(group.count), group.kind);
        let parts = if busy.len() > LISTED_MAX { deciles(own) } else { own.to_vec() };
        rows.push(std::iter::once(name).chain(parts.into_iter().map(share)).collect());
        rest = others;
    }
    head + &align(&rows)
}

/// The least, the nine deciles and the most.
fn deciles(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    (0..=10).filter_map(|tenth| sorted.get((last * tenth + 5) / 10).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_gpus_are_listed_and_many_are_told_by_deciles() {
        let group = |kind: &str, count| GpuGroup { kind: kind.into(), count, speed: 1.0 };
        assert_eq!(
            busy(&[group("a100", 2), group("t4", 1)], &[0.5, 0.25, 0.0]),
            "GPUs 25.0% busy on average, 1 of 3 idle (under 1% busy)\n2 a100  50.0%  25.0%\n1 t4     0.0%\n"
        );
        let climbing: Vec<f64> = (0..=100).rev().map(|percent| f64::from(percent) / 100.0).collect();
        let text = busy(&[group("gpu", 101)], &climbing);
        assert!(text.starts_with("GPUs 50.0% busy on average, 1 of 101 idle (under 1% busy)\n"), "{text}");
        assert!(text.contains("101 gpu           0.0%  10.0%  20.0%  30.0%"), "{text}");
        assert!(text.ends_with("90.0%  100.0%\n"), "{text}");
    }

    #[test]
    fn rates_are_checked_as_in_scenarios() {
        assert_eq!(offered("3000"), Ok(3000.0));
        for text in ["0", "-1", "1e9", "nan", "inf", "many", ""] {
            assert_eq!(offered(text), Err("expected a number from 0.001 to 100000000".into()), "{text}");
        }
    }
}
