//! `weft sim sharing`: one GPU and the programs on it, under one policy or many.

use super::options::File;
use super::parallel;
use crate::output;
use clap::builder::PossibleValuesParser;
use report::columns::{align, row};
use report::numbers::{decimal, rate, share};
use sim::sharing::{NAMES, Report, Scenario, TenantReport};

/// Share one simulated GPU between programs and compare policies.
///
/// The scenario is a TOML file with a GPU and its tenants: kernels and gaps, a class, a priority and a share. The simulator
/// runs it kernel by kernel in virtual time; the policy `weft` is the code that runs live. For each tenant it prints the
/// latency of requests, the requests answered a second, both compared with the tenant alone, and the GPU time used.
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

    /// Print a list with a JSON object for each policy
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim sharing examples/10-share-a-gpu/gpu.toml
  weft sim sharing examples/10-share-a-gpu/gpu.toml --policies weft,default --json";

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let mut scenario = arguments.file.read_sharing()?;
    scenario.seed = arguments.seed.unwrap_or(scenario.seed);
    let run = |policy: &String| sim::sharing::run(&scenario, policy).expect("clap let only known names pass");
    let reports = parallel::map("sharing", &arguments.policies, run);
    match arguments.json {
        true => output::print_json(&reports),
        false => output::print(&text(&scenario, &reports)),
    }
}

fn text(scenario: &Scenario, reports: &[Report]) -> String {
    let heads =
        ["policy", "tenant", "mean ms", "p50", "p99", "of alone", "requests/s", "of alone", "GPU time", "GPU busy"];
    let mut rows = vec![row(heads)];
    for report in reports {
        for (index, tenant) in report.tenants.iter().enumerate() {
            let busy = if index == 0 { share(report.gpu_busy) } else { String::new() };
            let policy = if index == 0 { report.policy.clone() } else { String::new() };
            rows.push(cells(policy, tenant, busy));
        }
    }
    format!("seed {}, {} measured\n\n{}", scenario.seed, scenario.duration, align(&rows))
}

fn cells(policy: String, tenant: &TenantReport, busy: String) -> Vec<String> {
    let millis = |value: Option<f64>| value.map_or("–".to_owned(), rate);
    let times = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{}x", decimal(value, 2)));
    vec![
        policy,
        tenant.name.clone(),
        millis(tenant.completion_ms),
        millis(tenant.p50_ms),
        millis(tenant.p99_ms),
        times(tenant.completion_alone),
        rate(tenant.throughput),
        times(Some(tenant.throughput_alone)),
        share(tenant.gpu_share),
        busy,
    ]
}
