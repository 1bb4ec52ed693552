//! `weft set`: changes the share of a program that runs, or how many workers a model has.

use super::{ShareArguments, daemon};
use crate::admin::Server;
use crate::output::{Misuse, print, print_json};
use anyhow::{Result, bail};
use clap::Args;
use config::{ShareAsked, Workers};
use serde_json::json;
use share_client::{Answer, Change, Question};

/// Change the share of a program that runs, or how many workers a model has.
///
/// Options that are not given keep their value. New limits apply from the next kernel launch; memory already allocated is
/// kept. Surplus workers finish the requests they have.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the program in `weft top`; with --replicas, of the model
    #[arg(required_unless_present = "sharing")]
    name: Option<String>,
    #[command(flatten)]
    share: ShareArguments,
    /// Controller that admits best-effort launches on all GPUs of this machine: weft; or, for comparison, unmanaged,
    /// slices=400us, gate, fikit, orion-like, tgs
    #[arg(long, value_name = "CONTROLLER", conflicts_with_all = ["name", "ShareArguments"])]
    sharing: Option<String>,
    /// Number of workers of a served model: fixed, or a range within which it follows the load
    #[arg(long, value_name = "N|MIN..MAX", conflicts_with_all = ["ShareArguments", "sharing"], requires = "name")]
    replicas: Option<Workers>,
    #[command(flatten)]
    server: Server,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft set trainer --limit 40%
  weft set trainer --memory 30GiB --priority 2
  weft set trainer --class best-effort
  weft set trainer --sms 75%
  weft set --sharing gate
  weft set sentiment --replicas 1..8";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let Some(name) = &arguments.name else { return set_rule(&arguments) };
    if let Some(workers) = arguments.replicas {
        return set_replicas(&arguments, name, workers);
    }
    let share = arguments.share.asked();
    if share == ShareAsked::default() {
        return Err(Misuse(format!("change {name}: say what to change, such as --limit 40%")).into());
    }
    let client = daemon::reach()?;
    match client.ask(&Question::Set(Change { name: name.clone(), share }))? {
        Answer::Set(share) if arguments.json => print_json(&share),
        Answer::Set(share) => {
            let class = config::share::class_name(share.class);
            let memory = share.memory.map_or("all memory".to_owned(), |bytes| format!("{bytes} of memory"));
            let (request, limit, priority) = (share.request, share.limit, share.priority);
            print(&format!("{name}: {class}, priority {priority}, {request} guaranteed, at most {limit}, {memory}\n"))
        }
        Answer::Error(error) => Err(Misuse(format!("change {name}: {error}")).into()),
        _ => bail!("change {name}: the daemon answered something else"),
    }
}

fn set_replicas(arguments: &Arguments, name: &str, workers: Workers) -> Result<()> {
    let answer = arguments.server.ask("POST", &format!("models/{name}/workers"), Some(&json!(workers)));
    answer.map_err(|error| Misuse(format!("set {name}: {error:#}")))?;
    match arguments.json {
        true => print_json(&json!({ "name": name, "workers": workers })),
        false => print(&format!("{name}: {workers} workers\n")),
    }
}

fn set_rule(arguments: &Arguments) -> Result<()> {
    let rule = arguments.sharing.clone().unwrap_or_default();
    // What is no rule anywhere is said without asking anybody.
    rule.parse::<policy::sharing::Controller>()
        .map_err(|problem| Misuse(format!("change the controller: {problem}")))?;
    match daemon::reach()?.ask(&Question::Sharing(rule))? {
        Answer::Sharing(rule) if arguments.json => print_json(&json!({ "sharing": rule })),
        Answer::Sharing(rule) => print(&format!("controller for best-effort programs: {rule}\n")),
        Answer::Error(error) => Err(Misuse(format!("change the controller: {error}")).into()),
        _ => bail!("change the controller: the daemon answered something else"),
    }
}
