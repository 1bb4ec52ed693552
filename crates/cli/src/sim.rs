//! `weft sim`: scenarios from files, their results as text, JSON or a page.

mod run;
mod goodput;
mod report;
mod check;
mod replay;
mod sharing;
mod placement;
mod elastic;
mod scenario;
mod parallel;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use std::num::NonZeroU32;
use std::path::PathBuf;

pub(crate) use scenario::open;

/// Try a cluster, its traffic and a scheduling policy in simulation.
///
/// A scenario is a TOML file: GPUs, models with their latencies and objectives, and traffic. It is run in
/// virtual time by the code that schedules live requests. The same scenario and seed always give the same
/// result.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weft sim check examples/01-one-model/scenario.toml
  weft sim run examples/01-one-model/scenario.toml --policy deferred --rate 5000
  weft sim goodput examples/01-one-model/scenario.toml --policies weft,eager --seeds 5
  weft sim report examples/01-one-model/scenario.toml -o report.html
  weft sim sharing examples/10-share-a-gpu/gpu.toml
  weft sim placement examples/12-place-instances/events.txt
  weft sim elastic examples/13-elastic/cluster.toml";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Goodput(goodput::Arguments),
    Report(report::Arguments),
    Check(check::Arguments),
    Replay(replay::Arguments),
    Sharing(sharing::Arguments),
    Placement(placement::Arguments),
    Elastic(elastic::Arguments),
}

/// The file that every command reads.
#[derive(Debug, Args)]
struct File {
    /// The scenario, a TOML file, or - for stdin; files that it names are relative to its folder
    #[arg(value_name = "SCENARIO")]
    path: PathBuf,
}

/// What is compared, and how carefully.
#[derive(Debug, Args)]
struct Comparison {
    /// Policies to compare, separated by commas [default: all of them]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', value_parser = policy_name(), hide_default_value = true)]
    #[arg(default_values_t = sim::POLICIES.map(String::from))]
    policies: Vec<String>,

    /// Seeds to try for each policy: the scenario's and those that follow it
    #[arg(long, value_name = "N", default_value = "3", value_parser = seeds, allow_negative_numbers = true)]
    seeds: NonZeroU32,

    /// The part of requests that may be late, refused or lost
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = limit)]
    limit: f64,
}

fn policy_name() -> PossibleValuesParser {
    PossibleValuesParser::new(sim::POLICIES)
}

fn seeds(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU32| number.get() <= 1000);
    number.ok_or_else(|| "expected a whole number from 1 to 1000".into())
}

fn limit(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let fraction = percent.filter(|percent| (0.0..=50.0).contains(percent)).map(|percent| percent / 100.0);
    fraction.ok_or_else(|| "expected a percentage from 0% to 50%, like 1%".into())
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Run(arguments) => run::main(&arguments),
        Command::Goodput(arguments) => goodput::main(&arguments),
        Command::Report(arguments) => report::main(&arguments),
        Command::Check(arguments) => check::main(&arguments),
        Command::Replay(arguments) => replay::main(&arguments),
        Command::Sharing(arguments) => sharing::main(&arguments),
        Command::Placement(arguments) => placement::main(&arguments),
        Command::Elastic(arguments) => elastic::main(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percentages() {
        assert_eq!([limit("1%"), limit(" 0.5 % "), limit("0%")], [Ok(0.01), Ok(0.005), Ok(0.0)]);
        for text in ["", "%", "1", "0.01", "-1%", "51%", "nan%", "inf%", "1%%"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds_are_counted() {
        assert_eq!(seeds("5").map(NonZeroU32::get), Ok(5));
        for text in ["0", "-1", "1001", "few", ""] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
