//! `weft bench`: what a real GPU gives.

mod sharing;

use clap::{Args, Subcommand};

/// Measure on a real GPU what sharing costs each program.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  weft bench sharing --list
  weft bench sharing --pair resnet50-gpt2 --settings default,mps,weft --output sharing.json
  weft bench sharing --from sharing.json --plot sharing.html";

#[derive(Debug, Subcommand)]
enum Command {
    Sharing(Box<sharing::Arguments>),
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Sharing(arguments) => sharing::main(&arguments),
    }
}
