//! `weft top`: who shares which GPU, live.

mod rows;
mod screen;

use super::daemon;
use crate::output::{Misuse, print, print_json};
use anyhow::Result;
use clap::Args;
use report::columns::align;
use rows::{Order, rows};
use std::io::IsTerminal;
use std::time::Duration;

/// Show the programs that share GPUs, live.
///
/// Keys: u, m, l, w and n sort by use, memory, launches, waiting and name, / filters by name, q quits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print one table and exit
    #[arg(long)]
    once: bool,
    /// Print the state as JSON and exit
    #[arg(long)]
    json: bool,
    /// Column to sort by
    #[arg(long, value_enum, default_value_t = Order::Used)]
    sort: Order,
    /// Only programs whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Time between updates
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: policy::Span,
}

const EXAMPLES: &str = "\
Examples:
  weft top
  weft top --once --sort memory
  weft top --json";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let client = daemon::reach()?;
    if arguments.json {
        return print_json(&client.status()?);
    }
    if arguments.once {
        return print(&align(&rows(&client.status()?, arguments.sort, &arguments.filter)));
    }
    if !std::io::stdout().is_terminal() {
        return Err(Misuse("show a live view: the output is no terminal; use --once or --json".into()).into());
    }
    let every = Duration::from_nanos(arguments.every.nanos().max(50_000_000));
    screen::show(&client, arguments.sort, arguments.filter, every)
}
