//! `weft sim check`: a scenario with nothing left to a default.

use super::options::File;
use crate::output;

/// Check a scenario and print it with every default spelled out.
///
/// The result is a scenario itself, and the same one: it names no other files, because what was read from
/// them is in it, and batch sizes that cannot meet the objective are left out.
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
