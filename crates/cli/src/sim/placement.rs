//! `weft sim placement`: instances that come and go, and how many GPUs each policy needs for them.

use crate::output::{self, Misuse};
use clap::builder::PossibleValuesParser;
use report::columns::{align, row};
use report::numbers::{count, decimal, rate, share};
use serde::Serialize;
use sim::placement::{Bound, Cluster, NAMES, Report, Trace, bound, parse, replay};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Place instances that start and stop, and count the GPUs that each policy needs.
///
/// Replays an event trace through the code that places instances. Each line of the file is a dictionary with Time, Action
/// (start or delete) and Instance: service_name, type (inference, training or llm-inference), gpu_num, sm_requests and
/// sm_limits as parts of a GPU, and memory in GB for each GPU. Prints the highest and the mean number of GPUs in use, their
/// idle part, the number of instances moved, and the time of a decision.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Event trace, one Python dictionary or JSON object per line
    #[arg(value_name = "FILE")]
    path: PathBuf,

    /// Policies to compare, separated by commas [default: all of them]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(NAMES), default_values_t = NAMES.map(String::from))]
    policies: Vec<String>,

    /// Number of GPUs in a machine; an LLM is divided within one machine
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=64))]
    node_gpus: u16,

    /// Memory of each GPU, in GB
    #[arg(long, value_name = "GB", default_value = "40", value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpu_memory: u32,

    /// Seed for shuffling the requests among instances of a type, to tell a good policy from a lucky one [default: no
    /// shuffling]
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,

    /// Print a list with a JSON object for each policy
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim placement examples/12-place-instances/events.txt
  weft sim placement examples/12-place-instances/events.txt --policies dilu,weft,weft-moves --json
  weft sim placement examples/12-place-instances/events.txt --shuffle 1";

/// A trace is replayed so often. Decisions are the same each time; of the times that each took the least counts, because
/// the others hold what else the machine did.
const REPLAYS: usize = 3;

/// What a policy made of the trace.
#[derive(Debug, Serialize)]
struct Result {
    #[serde(flatten)]
    report: Report,
    decision_us_p99: f64,
    bound_gpus: usize,
    bound_large_gpus: usize,
}

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let cluster = Cluster { node_gpus: arguments.node_gpus.into(), memory_gb: arguments.gpu_memory };
    let shown = arguments.path.display().to_string();
    let text = std::fs::read_to_string(&arguments.path);
    let text = text.map_err(|error| Misuse(format!("read trace {shown}: {}", output::reason(&error))))?;
    let trace = parse(&shown, &text, cluster).map_err(|error| Misuse(format!("read trace {error}")))?;
    let trace = match arguments.shuffle {
        Some(seed) => trace.shuffled(seed),
        None => trace,
    };
    let bound = bound(&trace, cluster);
    let results: Vec<Result> =
        arguments.policies.iter().map(|policy| measure(&trace, cluster, policy, bound)).collect();
    match arguments.json {
        true => output::print_json(&results),
        false => output::print(&table(&trace, &results, bound)),
    }
}

fn measure(trace: &Trace, cluster: Cluster, policy: &str, bound: Bound) -> Result {
    let mut least: Vec<Duration> = Vec::new();
    let mut report = None;
    for _ in 0..REPLAYS {
        let mut decision = 0;
        report = replay(trace, cluster, policy, |decide| {
            let start = Instant::now();
            decide();
            let took = start.elapsed();
            match least.get_mut(decision) {
                Some(least) => *least = took.min(*least),
                None => least.push(took),
            }
            decision += 1;
        });
    }
    least.sort_unstable();
    let p99 = least.get((least.len() * 99).div_ceil(100).max(1) - 1).copied().unwrap_or_default();
    Result {
        report: report.expect("clap let only known names pass"),
        decision_us_p99: p99.as_nanos() as f64 / 1e3,
        bound_gpus: bound.sums,
        bound_large_gpus: bound.large,
    }
}

fn table(trace: &Trace, results: &[Result], bound: Bound) -> String {
    let mut rows = vec![row(["policy", "peak GPUs", "of bound", "mean GPUs", "idle", "moves", "splits", "p99 us"])];
    for Result { report, decision_us_p99, .. } in results {
        rows.push(vec![
            report.policy.clone(),
            count(report.peak_gpus),
            decimal(report.peak_gpus as f64 / bound.large.max(1) as f64, 3),
            rate(report.mean_gpus),
            share(report.fragmentation),
            count(report.moves),
            count(report.splits),
            rate(*decision_us_p99),
        ]);
    }
    let why = match bound.large > bound.sums {
        true => "so many parts are too large for two of them to share one",
        false => "so many hold all that is asked for at the busiest time",
    };
    let events = count(trace.events.len());
    format!("{}\n{events} events; no policy needs fewer than {} GPUs: {why}.\n", align(&rows), count(bound.large))
}
