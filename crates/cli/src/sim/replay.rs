//! `weft sim replay`: a live scheduler's journal, through the same code again.

use crate::output::{Misuse, print, print_json, reason};
use std::path::PathBuf;

/// Replay a journal of a live scheduler or of a shared GPU, and compare every decision.
///
/// `weft up --journal` writes every event and decision of its scheduler, one file for each pool of workers. `weft node
/// --record` writes every observation and action on a GPU, one file for each GPU. `weft sim generate --record` writes one file
/// for each policy. The replay feeds the events to the same
/// code, which must make the same decisions, and shows the first difference.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Journal, from the folder `journal` in the state folder or from the folder of --record
    #[arg(value_name = "JOURNAL")]
    path: PathBuf,
    /// Policy that was live; journals of shared GPUs and of generated text name their own
    #[arg(long, value_name = "POLICY", default_value = "weft", value_parser = super::options::policy_name())]
    policy: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft sim replay .weft/journal/virtual.journal
  weft sim replay journals/gpu-0.journal";

pub(super) fn main(arguments: &Arguments) -> anyhow::Result<()> {
    let shown = arguments.path.display();
    let text = std::fs::read_to_string(&arguments.path);
    let text = text.map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?;
    if policy::sharing::journal::is_journal(&text) {
        let replayed = policy::sharing::journal::replay(&text);
        let replayed = replayed.map_err(|problem| Misuse(format!("replay {shown}: {problem}")))?;
        if arguments.json {
            return print_json(&serde_json::json!({ "looks": replayed.ticks, "actions": replayed.actions }));
        }
        return print(&format!("{} looks led to the same {} actions\n", replayed.ticks, replayed.actions));
    }
    if policy::generation::journal::is_journal(&text) {
        let replayed = policy::generation::journal::replay(&text);
        let replayed = replayed.map_err(|problem| Misuse(format!("replay {shown}: {problem}")))?;
        if arguments.json {
            return print_json(&serde_json::json!({ "inputs": replayed.inputs, "actions": replayed.actions }));
        }
        return print(&format!("{} lines of news led to the same {} decisions\n", replayed.inputs, replayed.actions));
    }
    let replayed =
        sim::replay(&text, &arguments.policy).map_err(|problem| Misuse(format!("replay {shown}: {problem}")))?;
    if arguments.json {
        return print_json(&serde_json::json!({ "inputs": replayed.inputs, "actions": replayed.actions }));
    }
    print(&format!("{} lines of news led to the same {} decisions\n", replayed.inputs, replayed.actions))
}
