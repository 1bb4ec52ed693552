//! `weft sim report`: goodput, and what happens on the way there, as a page.

use super::goodput::{self, PolicyGoodput};
use super::options::{Comparison, File};
use super::parallel;
use crate::output::{self, WholeFile};
use report::numbers::{count, rate};
use report::sweep::render;
use report::{Point, PolicyData, SweepPage};
use sim::{GpuGroup, Report, Scenario, Spacing};
use std::path::{Path, PathBuf};

/// Compare policies on a scenario and write a page of charts.
///
/// Finds the goodput of each policy as `weft sim goodput` does, runs each from a tenth of the best goodput to a tenth above
/// it, and writes one HTML file that needs no network and prints well. The page highlights the first policy. Prints the
/// path of the page.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,

    /// File for the page, or - for stdout; an existing file is replaced once the page is complete
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    comparison: Comparison,
}

const EXAMPLES: &str = "\
Examples:
  weft sim report examples/01-one-model/scenario.toml -o report.html
  weft sim report examples/06-long-objectives/scenario.toml -o report.html --policies weft,eager
  weft sim report examples/05-hundred-models/scenario.toml -o report.html --seeds 1";

/// Rates that are run for the charts, as parts of the best goodput: evenly, and closer where it breaks.
const SWEEP: [f64; 13] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1];

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let scenario = arguments.file.read()?;
    let page = || render(&data(arguments, &scenario));
    if arguments.output == Path::new("-") {
        return output::print(&page());
    }
    let path = arguments.output.display();
    let failed = |why| anyhow::anyhow!("write report {path}: {why}");
    let file = WholeFile::new(&arguments.output).map_err(failed)?;
    file.write(&page()).map_err(failed)?;
    output::print(&format!("{path}\n"))
}

fn data(arguments: &Arguments, scenario: &Scenario) -> SweepPage {
    let comparison = &arguments.comparison;
    let found = goodput::measure(scenario, comparison);
    let bound = sim::bound::goodput(scenario, comparison.limit);
    let best = found.iter().map(|policy| policy.goodput_average).fold(0.0, f64::max);
    let points = sweep(scenario, &found, if best > 0.0 { best } else { bound });
    let policies = found.iter().zip(points).map(|(policy, points)| PolicyData {
        name: policy.policy.clone(),
        goodput_average: policy.average(),
        goodput_worst: policy.worst(),
        points,
    });
    SweepPage {
        command: "weft sim report",
        title: arguments.file.name(),
        summary: summary(scenario, comparison),
        policies: policies.collect(),
        bound,
        limit: comparison.limit,
    }
}

/// The behaviour of each policy up to a little more than `rate`, with the scenario's seed.
fn sweep(scenario: &Scenario, policies: &[PolicyGoodput], rate: f64) -> Vec<Vec<Point>> {
    let at_rates = |policy: &PolicyGoodput| SWEEP.map(|part| (policy.policy.clone(), part * rate));
    let jobs: Vec<(String, f64)> = policies.iter().flat_map(at_rates).collect();
    let points = parallel::map("charts", &jobs, |(policy, rate)| {
        point(*rate, sim::run(&Scenario { policy: policy.clone(), rate: *rate, ..scenario.clone() }))
    });
    points.chunks(SWEEP.len()).map(<[Point]>::to_vec).collect()
}

fn point(rate: f64, report: Report) -> Point {
    Point {
        rate,
        bad_average: report.bad_average,
        bad_worst: report.bad_worst,
        mean_batch: report.mean_batch,
        gpu_busy: report.gpu_busy,
    }
}

/// What was simulated, for the head of the page.
fn summary(scenario: &Scenario, comparison: &Comparison) -> Vec<(String, String)> {
    let group = |group: &GpuGroup| match group.speed {
        1.0 => format!("{} x {}", count(group.count), group.kind),
        speed => format!("{} x {} at {speed} times the speed", count(group.count), group.kind),
    };
    let gpus: Vec<String> = scenario.gpus.iter().map(group).collect();
    let objectives = || scenario.models.iter().map(|model| model.objective);
    let objective = match (objectives().min(), objectives().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.map_or_else(String::new, |least| least.to_string()),
    };
    let largest = scenario.models.iter().map(|model| model.share).fold(0.0, f64::max);
    let models = match scenario.models.len() {
        1 => "1".to_owned(),
        many => format!("{}, largest {:.0}% of traffic", count(many), largest * 100.0),
    };
    let arrivals = match &scenario.arrivals {
        Spacing::Poisson => "Poisson".to_owned(),
        Spacing::Gamma { shape } => format!("Gamma, shape {shape}"),
        Spacing::Constant => "equal gaps".to_owned(),
        Spacing::Trace { slot, .. } => format!("a trace in slots of {slot}, scaled to each rate"),
    };
    let network = &scenario.network;
    let mut pairs = vec![
        ("GPUs", gpus.join(", ")),
        ("Models", models),
        ("Objective", objective),
        ("Arrivals", arrivals),
        ("Measured", format!("{} after {}", scenario.duration, scenario.warmup)),
        match comparison.seeds.get() {
            1 => ("Seed", scenario.seed.to_string()),
            seeds => ("Seeds", format!("{} to {}", scenario.seed, scenario.seed + u64::from(seeds) - 1)),
        },
    ];
    if scenario.noise > 0.0 {
        pairs.push(("Noise", format!("{}% of execution times", rate(scenario.noise * 100.0))));
    }
    if *network != Default::default() {
        let delays = format!(
            "control {}, data {} a request, response {}, jitter {}",
            network.control, network.data_per_request, network.response, network.jitter
        );
        pairs.push(("Network", delays));
    }
    if !scenario.failures.is_empty() {
        pairs.push(("GPU failures", count(scenario.failures.len())));
    }
    pairs.push(("Weft", env!("CARGO_PKG_VERSION").to_owned()));
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
