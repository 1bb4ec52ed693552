//! `weft sim replay`: a live scheduler's journal, through the same code again.

use crate::output::{Misuse, print, print_json, reason};
use std::path::PathBuf;

/// Replay a journal of a live scheduler, or of how programs shared a GPU, and compare every decision.
///
/// `weft up --journal` writes down all that its scheduler was told and decided, a file for each pool of workers; `weft node
/// --record` what was seen of the programs on a GPU and done about them, a file for each GPU. Fed to the same code again, the
/// same news must lead to the same decisions; the first that differs is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A journal, from the folder `journal` of the state folder or from that of `--record`
    #[arg(value_name = "JOURNAL")]
    path: PathBuf,
    /// The policy that was live; a journal of sharing says it itself
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
    let replayed =
        sim::replay(&text, &arguments.policy).map_err(|problem| Misuse(format!("replay {shown}: {problem}")))?;
    if arguments.json {
        return print_json(&serde_json::json!({ "inputs": replayed.inputs, "actions": replayed.actions }));
    }
    print(&format!("{} lines of news led to the same {} decisions\n", replayed.inputs, replayed.actions))
}
