//! `weft sim check`: a scenario with nothing left to a default.

use super::options::File;
use crate::output;

/// Check a scenario and print it with every default spelled out.
///
/// The output is an equivalent scenario in one file: it contains what was read from other files, and leaves out batch sizes
/// that cannot meet the objective.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,
}

const EXAMPLES: &str = "\
Examples:
  weft sim check examples/01-one-model/scenario.toml
  weft sim check examples/07-replay-a-trace/scenario.toml > whole.toml";

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    output::print(&sim::effective(&arguments.file.read()?))
}
