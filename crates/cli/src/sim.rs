//! `weft sim`: scenarios from files, their results as text, JSON or a page.

mod run;
mod goodput;
mod report;
mod check;
mod replay;
mod sharing;
mod placement;
mod elastic;
mod generate;
mod options;
mod scenario;
mod parallel;

use clap::{Args, Subcommand};

/// Try a cluster, its traffic and a scheduling policy in simulation.
///
/// A scenario is a TOML file with GPUs, models with their latencies and objectives, and traffic. The code that schedules
/// live requests runs it in virtual time. The same scenario and seed always give the same result.
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
  weft sim elastic examples/13-elastic/cluster.toml
  weft sim generate examples/15-generate/one-model.toml";

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
    Generate(generate::Arguments),
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
        Command::Generate(arguments) => generate::main(&arguments),
    }
}
