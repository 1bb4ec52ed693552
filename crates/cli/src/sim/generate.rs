//! `weft sim generate`: language models on simulated GPUs, and what each policy makes of their objectives.

use super::options::File;
use super::parallel;
use crate::output::{self, WholeFile, reason};
use anyhow::Context;
use clap::builder::PossibleValuesParser;
use report::columns::{align, row};
use report::numbers::{count, decimal, percent, rate, share};
use report::sweep::render;
use report::{Estimate, Point, PolicyData, SweepPage};
use sim::generate::{Goodput, NAMES, Report, Scenario, Source};
use std::path::{Path, PathBuf};

/// Generate text with language models on simulated GPUs and compare policies.
///
/// The scenario is a TOML file with GPUs, models with the time of their steps and objectives for the first token (TTFT) and
/// for each further one (TPOT), and requests with their tokens, from a trace or drawn. Each policy chooses the steps in virtual
/// time; the policy `weft` is the code that is to schedule live requests. Prints the requests a second that meet both
/// objectives, and the same if only the mean time between the tokens of an answer counts; times to the first token and between
/// tokens; the part of the time that GPUs were busy; and steps, sequences in a step, refusals and evictions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,

    /// Policies to compare, separated by commas [default: all of them]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(NAMES), default_values_t = NAMES.map(String::from))]
    policies: Vec<String>,

    /// Requests a second over all models; a trace is scaled to it [default: the scenario's, or the trace's own]
    #[arg(long, value_name = "RATE", value_parser = offered)]
    rate: Option<f64>,

    /// Seed [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,

    /// Write a page of charts instead: goodput, and what happens as the rate rises; - for stdout
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["json", "record"])]
    output: Option<PathBuf>,

    /// Also write the journal of each policy, to be replayed by `weft sim replay`, into this folder
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,

    /// Print a list with a JSON object for each policy, with figures by model and GPU
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim generate examples/15-generate/one-model.toml
  weft sim generate examples/15-generate/one-model.toml --policies weft,vllm-like --rate 8 --json
  weft sim generate examples/15-generate/eight-models.toml --policies weft,sarathi-like -o generate.html";

/// Rates that are run for the charts, as parts of the best goodput.
const SWEEP: [f64; 11] = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0];
/// Requests that may be bad.
const LIMIT: f64 = 0.01;

fn offered(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=1e5).contains(number));
    number.ok_or_else(|| "expected a number from 0.001 to 100000".into())
}

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let mut scenario = arguments.file.read_generate()?;
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    scenario.rate = arguments.rate.unwrap_or(scenario.rate);
    if let Some(path) = &arguments.output {
        return page(arguments, &scenario, path);
    }
    let record = arguments.record.is_some();
    let run = |policy: &String| match record {
        true => sim::generate::run_recorded(&scenario, policy).expect("clap let only known names pass"),
        false => {
            let report = sim::generate::run(&scenario, policy).expect("clap let only known names pass");
            sim::generate::Recording { report, journal: String::new() }
        }
    };
    let recordings = parallel::map("generate", &arguments.policies, run);
    if let Some(folder) = &arguments.record {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        for recording in &recordings {
            let path = folder.join(format!("{}.journal", recording.report.policy));
            let failed = |error: std::io::Error| anyhow::anyhow!("write {}: {}", path.display(), reason(&error));
            std::fs::write(&path, &recording.journal).map_err(failed)?;
        }
    }
    let reports: Vec<Report> = recordings.into_iter().map(|recording| recording.report).collect();
    match arguments.json {
        true => output::print_json(&reports),
        false => output::print(&text(&scenario, &reports)),
    }
}

fn text(scenario: &Scenario, reports: &[Report]) -> String {
    let mut rows = vec![row([
        "policy", "good/s", "good", "by mean", "TTFT p50", "p99 ms", "TPOT p50", "p99 ms", "GPU busy", "steps/s",
        "batch", "refused", "evicted",
    ])];
    let millis = |value: Option<f64>| value.map_or("–".to_owned(), |value| decimal(value, 1));
    for report in reports {
        rows.push(vec![
            report.policy.clone(),
            rate(report.good_rps),
            percent(report.good),
            percent(report.good_mean_tpot),
            millis(report.ttft_ms.p50),
            millis(report.ttft_ms.p99),
            millis(report.tpot_ms.p50),
            millis(report.tpot_ms.p99),
            share(report.busy),
            decimal(report.steps_per_second, 1),
            decimal(report.mean_batch, 1),
            count(report.refused.values().sum::<u64>() as usize),
            count(report.evictions as usize),
        ]);
    }
    let requests = reports.first().map_or(0, |report| report.requests as usize);
    let offered = reports.first().map_or(0.0, |report| report.offered_rps);
    format!(
        "seed {}, {} requests at {}/s, {} models on {} GPUs\n\n{}",
        scenario.seed,
        count(requests),
        rate(offered),
        scenario.models.len(),
        scenario.gpus.len(),
        align(&rows)
    )
}

fn page(arguments: &Arguments, scenario: &Scenario, path: &Path) -> anyhow::Result<()> {
    let page = || render(&data(arguments, scenario));
    if path == Path::new("-") {
        return output::print(&page());
    }
    let shown = path.display();
    let failed = |why| anyhow::anyhow!("write report {shown}: {why}");
    let file = WholeFile::new(path).map_err(failed)?;
    file.write(&page()).map_err(failed)?;
    output::print(&format!("{shown}\n"))
}

fn data(arguments: &Arguments, scenario: &Scenario) -> SweepPage {
    let bound = sim::generate::bound(scenario);
    let search = |policy: &String| sim::generate::goodput(scenario, policy, LIMIT, 0.02);
    let found: Vec<Goodput> = parallel::map("goodput", &arguments.policies, search);
    let best = found.iter().map(|found| found.average).fold(0.0, f64::max);
    let best = if best > 0.0 { best } else { bound };
    let at_rates = |policy: &String| SWEEP.map(|part| (policy.clone(), part * best));
    let jobs: Vec<(String, f64)> = arguments.policies.iter().flat_map(at_rates).collect();
    let points = parallel::map("charts", &jobs, |(policy, rate)| {
        let scenario = Scenario { rate: *rate, ..scenario.clone() };
        point(*rate, &sim::generate::run(&scenario, policy).expect("clap let only known names pass"))
    });
    let exactly = |value: f64| Estimate { mean: value, low: value, high: value };
    let policies = arguments.policies.iter().zip(found).zip(points.chunks(SWEEP.len()));
    let policies = policies.map(|((name, found), points)| PolicyData {
        name: name.clone(),
        goodput_average: exactly(found.average),
        goodput_worst: exactly(found.worst),
        points: points.to_vec(),
    });
    SweepPage {
        command: "weft sim generate",
        title: arguments.file.name(),
        summary: summary(scenario),
        policies: policies.collect(),
        bound,
        limit: LIMIT,
    }
}

fn point(rate: f64, report: &Report) -> Point {
    let worst = report.models.iter().filter(|model| model.requests > 0).map(|model| 1.0 - model.good);
    Point {
        rate,
        bad_average: 1.0 - report.good,
        bad_worst: worst.fold(1.0 - report.good, f64::max),
        mean_batch: report.mean_batch,
        gpu_busy: report.gpu_busy.clone(),
    }
}

fn summary(scenario: &Scenario) -> Vec<(String, String)> {
    let range = |values: Vec<policy::Span>| match (values.iter().min(), values.iter().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.map_or_else(String::new, ToString::to_string),
    };
    let requests = match &scenario.source {
        Source::Trace(recorded) => format!("{} of a trace, gaps scaled to each rate", count(recorded.len())),
        Source::Drawn { .. } => "drawn".to_owned(),
    };
    let caches = scenario.gpus.iter().map(|gpu| gpu.cache as f64 / 1e9).fold(f64::INFINITY, f64::min);
    let pairs = [
        ("GPUs", count(scenario.gpus.len())),
        ("Models", count(scenario.models.len())),
        ("TTFT", range(scenario.models.iter().map(|model| model.ttft).collect())),
        ("TPOT", range(scenario.models.iter().map(|model| model.tpot).collect())),
        ("Requests", requests),
        ("Least cache of a GPU", format!("{caches:.1} GB")),
        ("Seed", scenario.seed.to_string()),
        ("Noise", format!("{}% of a step", rate(scenario.noise * 100.0))),
        ("Weft", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
