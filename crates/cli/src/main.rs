//! `weft`, the one binary: what was typed becomes a call of the crate that does the work.
//!
//! Data goes to stdout and talk to stderr. The exit code is 2 for misuse, which includes scenarios that make no
//! sense, and 1 for whatever else went wrong.

#![forbid(unsafe_code)]

mod sim;
mod page;
mod table;
mod output;

use clap::{Parser, Subcommand};
use output::Misuse;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Share GPUs among models and serve requests in time.
///
/// So far Weft answers one question, before you buy or move anything: how many requests a second can these
/// GPUs answer in time, and under which scheduling policy? `weft sim` runs the scheduler's own code against
/// simulated GPUs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weft sim run examples/01-one-model/scenario.toml
  weft sim goodput examples/02-twenty-tight-models/scenario.toml --policies weft,deferred
  weft help sim report";

#[derive(Debug, Subcommand)]
enum Command {
    Sim(sim::Arguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Sim(arguments) => sim::main(arguments),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    // Whoever read the output has seen enough of it.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    // Nobody is left to be told if this fails too.
    let _ = writeln!(std::io::stderr(), "weft: failed to {error:#}");
    ExitCode::from(if error.is::<Misuse>() { 2 } else { 1 })
}
