//! `weft sim replay`: a live scheduler's journal, through the same code again.

use crate::output::{Misuse, print, print_json, reason};
use std::path::PathBuf;

/// Replay a journal of a live scheduler and compare every decision.
///
/// `weft up --journal` writes down all that its scheduler was told and decided, a file for each pool of workers. Fed to
/// the same code again, the same news must lead to the same decisions; the first that differs is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A journal, from the folder `journal` of the state folder
    #[arg(value_name = "JOURNAL")]
    path: PathBuf,
    /// The policy that was live
    #[arg(long, value_name = "POLICY", default_value = "weft", value_parser = super::policy_name())]
    policy: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim replay .weft/journal/virtual.journal";

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let shown = arguments.path.display();
    let text = std::fs::read_to_string(&arguments.path);
    let text = text.map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?;
    let replayed =
        sim::replay(&text, &arguments.policy).map_err(|problem| Misuse(format!("replay {shown}: {problem}")))?;
    if arguments.json {
        return print_json(&serde_json::json!({ "inputs": replayed.inputs, "actions": replayed.actions }));
    }
    print(&format!("{} lines of news led to the same {} decisions\n", replayed.inputs, replayed.actions))
}
