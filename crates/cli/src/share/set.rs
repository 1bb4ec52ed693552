//! `weft set`: changes the share of a program that runs.

use super::{ShareArguments, daemon};
use crate::output::{Misuse, print, print_json};
use anyhow::{Result, bail};
use clap::Args;
use node::sharing::{Answer, Change, Question};
use rpc::ShareAsked;

/// Change the share of a program that runs.
///
/// What is not said stays as it is. It takes effect within milliseconds; memory that is in use already stays in use.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What `weft top` calls it
    name: String,
    #[command(flatten)]
    share: ShareArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft set trainer --limit 40%
  weft set trainer --memory 30GiB --priority 2
  weft set trainer --class best-effort";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let share = arguments.share.asked(None);
    if share == ShareAsked::default() {
        return Err(Misuse("change nothing: say what is to be different, such as --limit 40%".into()).into());
    }
    let client = daemon::reach()?;
    match client.ask(&Question::Set(Change { name: arguments.name.clone(), share }))? {
        Answer::Set(share) if arguments.json => print_json(&share),
        Answer::Set(share) => {
            let class = rpc::share::class_name(share.class);
            let memory = share.memory.map_or("all memory".to_owned(), |bytes| format!("{bytes} of memory"));
            let (name, priority) = (&arguments.name, share.priority);
            let (request, limit) = (share.request, share.limit);
            print(&format!("{name}: {class}, priority {priority}, {request} guaranteed, at most {limit}, {memory}\n"))
        }
        Answer::Error(error) => Err(Misuse(format!("change {}: {error}", arguments.name)).into()),
        _ => bail!("change {}: the daemon answered something else", arguments.name),
    }
}
