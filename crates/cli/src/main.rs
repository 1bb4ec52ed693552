//! `weft`, the one binary: what was typed becomes a call of the crate that does the work.
//!
//! Data goes to stdout and talk to stderr. The exit code is 2 for misuse, which includes scenarios that make no
//! sense, and 1 for whatever else went wrong; `weft run` answers as the program does, and as shells do without one.

#![forbid(unsafe_code)]

mod up;
mod cluster;
mod share;
mod servers;
mod worker;
mod setup;
mod access;
mod admin;
mod store;
mod logging;
mod runtime;
mod signal;
mod sim;
mod profile;
mod load;
mod bench;
mod demo;
mod output;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use output::{Exit, Misuse};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// A request makes 27 allocations, some of which another thread frees. With glibc's allocator that is an eighth of the
/// instructions a server spends on it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Share GPUs among models and serve requests in time.
///
/// `weft up` serves models over the Open Inference Protocol, HTTP and gRPC, so that clients of Triton work unchanged;
/// batches start as late as their deadlines allow. `weft run` runs any CUDA program under a share of a GPU. `weft sim`
/// predicts how many requests a second a cluster can answer in time: it runs the live scheduler's code against simulated
/// GPUs. `weft load` measures the same on a running server.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weft demo
  weft up
  weft deploy magika model.onnx --slo 100ms
  weft run --class best-effort --limit 40% -- python train.py
  weft sim run examples/01-one-model/scenario.toml
  weft sim goodput examples/02-twenty-tight-models/scenario.toml --policies weft,deferred
  weft load --model magika --rate 200 --slo 100ms
  weft profile --from-grid examples/11-profile/resnet.csv --slo 40ms
  weft help sim report";

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Up(up::Arguments),
    Scheduler(cluster::SchedulerArguments),
    Gateway(cluster::GatewayArguments),
    Node(cluster::NodeArguments),
    Run(share::run::Arguments),
    Set(share::set::Arguments),
    Jobs(share::jobs::Jobs),
    Suspend(share::jobs::Suspend),
    Resume(share::jobs::Resume),
    Stop(share::jobs::Stop),
    Supervise(share::supervise::Arguments),
    Top(share::top::Arguments),
    Doctor(share::doctor::Arguments),
    Setup(setup::Arguments),
    Deploy(admin::Deploy),
    Undeploy(admin::Undeploy),
    Models(admin::Models),
    Store(store::Arguments),
    Explain(admin::Explain),
    Logs(admin::Logs),
    Load(load::Arguments),
    Sim(sim::Arguments),
    Bench(bench::Arguments),
    Profile(profile::Arguments),
    /// Run a worker; `weft up` starts these.
    #[command(hide = true)]
    Worker(worker::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Demo(arguments) => demo::main(arguments),
        Command::Up(arguments) => up::main(arguments),
        Command::Scheduler(arguments) => cluster::scheduler(arguments),
        Command::Gateway(arguments) => cluster::gateway(arguments),
        Command::Node(arguments) => cluster::node(arguments),
        Command::Run(arguments) => share::run::main(arguments),
        Command::Set(arguments) => share::set::main(arguments),
        Command::Jobs(arguments) => arguments.main(),
        Command::Suspend(arguments) => arguments.main(),
        Command::Resume(arguments) => arguments.main(),
        Command::Stop(arguments) => arguments.main(),
        Command::Supervise(arguments) => share::supervise::main(arguments),
        Command::Top(arguments) => share::top::main(arguments),
        Command::Doctor(arguments) => share::doctor::main(arguments),
        Command::Setup(arguments) => setup::main(arguments),
        Command::Deploy(arguments) => arguments.main(),
        Command::Undeploy(arguments) => arguments.main(),
        Command::Models(arguments) => arguments.main(),
        Command::Store(arguments) => store::main(arguments),
        Command::Explain(arguments) => arguments.main(),
        Command::Logs(arguments) => arguments.main(),
        Command::Load(arguments) => load::main(&arguments),
        Command::Sim(arguments) => sim::main(arguments),
        Command::Bench(arguments) => bench::main(arguments),
        Command::Profile(arguments) => profile::main(arguments),
        Command::Worker(arguments) => worker::main(arguments),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    // Whoever read the output has seen enough of it.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    // Nobody is left to be told if this fails too.
    let _ = writeln!(std::io::stderr(), "weft: failed to {error:#}");
    let own = error.downcast_ref::<Exit>().map(|exit| exit.code);
    ExitCode::from(own.unwrap_or(if error.is::<Misuse>() { 2 } else { 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// What clap only checks where debug assertions are on, and only for the command that is used.
    #[test]
    fn every_command_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
