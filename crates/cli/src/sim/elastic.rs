//! `weft sim elastic`: functions whose load comes and goes, and what each way to scale them makes of a cluster.

use super::options::File;
use super::parallel;
use crate::output;
use clap::builder::PossibleValuesParser;
use report::columns::{align, row};
use report::numbers::{count, decimal, percent, rate, share};
use sim::elastic::{NAMES, Report, Scenario};

/// Scale functions with their load on a simulated cluster and compare policies.
///
/// The scenario is a TOML file with a cluster, functions with their profile, objective and load, and training jobs. Each
/// policy starts, boosts, places and stops workers in virtual time; the policy `weft` is the code that runs live. Prints
/// the part of requests that missed their objective, GPU seconds in use and their idle part, the number of workers started,
/// the speed of training compared with alone, and requests answered in time, a second and per GPU in use.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,

    /// Policies to compare, separated by commas [default: all of them]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(NAMES), default_values_t = NAMES.map(String::from))]
    policies: Vec<String>,

    /// Seed [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,

    /// Factor on every function's load
    #[arg(long, value_name = "FACTOR", value_parser = factor, default_value = "1")]
    load: f64,

    /// Number of GPUs [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    gpus: Option<u16>,

    /// Also print a line for each function
    #[arg(long)]
    functions: bool,

    /// Print a list with a JSON object for each policy, with functions, jobs and samples over time
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim elastic examples/13-elastic/cluster.toml
  weft sim elastic examples/13-elastic/cluster.toml --policies dilu,weft --seed 2 --json";

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| "expected a number from 0.001 to 1000".into())
}

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let mut scenario = arguments.file.read_elastic()?;
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    scenario.gpus = arguments.gpus.map_or(scenario.gpus, usize::from);
    scenario.functions.iter_mut().for_each(|function| function.rate *= arguments.load);
    let run = |policy: &String| sim::elastic::run(&scenario, policy).expect("clap let only known names pass");
    let reports = parallel::map("elastic", &arguments.policies, run);
    match arguments.json {
        true => output::print_json(&reports),
        false => output::print(&text(&scenario, &reports, arguments.functions)),
    }
}

fn text(scenario: &Scenario, reports: &[Report], functions: bool) -> String {
    let mut rows = vec![row([
        "policy",
        "violations",
        "GPU seconds",
        "peak GPUs",
        "idle",
        "starts",
        "training",
        "in time/s",
        "per GPU",
    ])];
    for report in reports {
        rows.push(vec![
            report.policy.clone(),
            percent(report.violations),
            decimal(report.gpu_seconds, 0),
            count(report.peak_gpus),
            share(report.fragmentation),
            count(report.cold_starts as usize),
            report.training.map_or("–".to_owned(), share),
            rate(report.throughput),
            rate(report.throughput_per_gpu),
        ]);
    }
    let mut out = format!("seed {}, {} measured\n\n{}", scenario.seed, scenario.duration, align(&rows));
    for report in reports.iter().filter(|report| report.unplaced > 0) {
        let unplaced = count(report.unplaced as usize);
        out += &format!("\n{}: there was no room for a worker or job {unplaced} times\n", report.policy);
    }
    if functions {
        out += &format!("\n{}", align(&by_function(reports)));
    }
    out
}

fn by_function(reports: &[Report]) -> Vec<Vec<String>> {
    let millis = |value: Option<f64>| value.map_or("–".to_owned(), rate);
    let mut rows =
        vec![row(["policy", "function", "requests", "violations", "p50 ms", "p99 ms", "workers", "batch", "starts"])];
    for report in reports {
        for function in &report.functions {
            rows.push(vec![
                report.policy.clone(),
                function.name.clone(),
                count(function.requests as usize),
                percent(function.violations),
                millis(function.p50_ms),
                millis(function.p99_ms),
                decimal(function.workers, 2),
                decimal(function.batch, 1),
                count(function.cold_starts as usize),
            ]);
        }
    }
    rows
}
