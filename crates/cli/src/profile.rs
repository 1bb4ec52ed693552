//! `weft profile`: which batch and which part of a GPU suit a model, from measurements.

mod find;
mod show;
mod accuracy;

use crate::output::{Misuse, reason};
use crate::sim::open;
use clap::{Args, Subcommand};
use std::path::Path;

/// Find the batch and the part of a GPU that suit a model, with few measurements.
///
/// Searches a grid of measurements as it would search a GPU, one probe after the other, for the batch and share that
/// answer the most requests for each percent of the GPU while a batch keeps to the objective. Prints what was found,
/// what is best of the whole grid, and how many of its points the search looked at. A grid is a CSV file with a row for
/// each batch and share: batch, SM percent, latency in seconds, requests a second.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    find: Option<find::Arguments>,
}

const EXAMPLES: &str = "\
Examples:
  weft profile --from-grid examples/11-profile/resnet.csv --slo 40ms
  weft profile --from-grid examples/11-profile/resnet.csv --slo 40ms --json | jq .share
  weft profile show examples/11-profile/profile.json
  weft profile accuracy examples/11-profile/resnet.csv";

#[derive(Debug, Subcommand)]
enum Command {
    Show(show::Arguments),
    Accuracy(accuracy::Arguments),
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> anyhow::Result<()> {
    match (arguments.command, arguments.find) {
        (Some(Command::Show(arguments)), _) => show::main(&arguments),
        (Some(Command::Accuracy(arguments)), _) => accuracy::main(&arguments),
        (None, Some(arguments)) => find::main(&arguments),
        (None, None) => Err(Misuse("find a grid: name one with --from-grid".to_owned()).into()),
    }
}

/// The text of a file; `what` it is meant to be.
fn text(what: &str, path: &Path) -> Result<String, Misuse> {
    open(path).map_err(|error| wrong(what, path, reason(&error)))
}

fn wrong(what: &str, path: &Path, problem: impl std::fmt::Display) -> Misuse {
    Misuse(format!("read {what} {}: {problem}", path.display()))
}
