//! How many GPUs the published event traces need: measured with `weft sim placement`, kept in
//! `docs/benchmarks/placement.json`, told in `docs/benchmarks/placement.md`.

mod page;

use crate::machine::Machine;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Replay the published event traces under every placement policy; writes docs/benchmarks/placement.json and placement.md.
///
/// Takes some minutes.
///
/// Example: cargo xtask placement
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Write the page from the results that are there, without measuring.
    #[arg(long)]
    page_only: bool,
}

/// Instances in each trace.
const TRACES: [usize; 3] = [100, 800, 3_200];

/// Everything that was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    command: String,
    weft: String,
    machine: Machine,
    traces: Vec<Trace>,
}

/// Seeds with which what instances ask for is dealt out anew; no constant of a policy was chosen by them.
const SHUFFLES: std::ops::RangeInclusive<u64> = 101..=116;
/// Who is replayed on those.
const SHUFFLED: &str = "dilu,weft,weft-moves";

/// One trace under every policy.
#[derive(Debug, Serialize, Deserialize)]
struct Trace {
    instances: usize,
    runs: Vec<Run>,
    shuffles: Vec<Shuffle>,
}

/// The same starts and ends, with what is asked for dealt out anew.
#[derive(Debug, Serialize, Deserialize)]
struct Shuffle {
    seed: u64,
    runs: Vec<Run>,
}

/// An entry of what `weft sim placement --json` prints.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    policy: String,
    peak_gpus: usize,
    mean_gpus: f64,
    fragmentation: f64,
    moves: usize,
    splits: usize,
    decision_us_p99: f64,
    bound_gpus: usize,
    bound_large_gpus: usize,
}

pub(crate) fn placement(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let documents = workspace.root.join("docs/benchmarks");
    let (json, page) = (documents.join("placement.json"), documents.join("placement.md"));
    if !arguments.page_only {
        let results = measure(workspace)?;
        let text = serde_json::to_string_pretty(&results).context("write JSON")? + "\n";
        std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    }
    let text = std::fs::read_to_string(&json).with_context(|| format!("read {}", json.display()))?;
    let results: Results = serde_json::from_str(&text).with_context(|| format!("read {}", json.display()))?;
    std::fs::write(&page, page::page(&results)).with_context(|| format!("write {}", page.display()))?;
    eprintln!("wrote {} and {}", workspace.relative(&json), workspace.relative(&page));
    Ok(())
}

fn measure(workspace: &Workspace) -> Result<Results> {
    let data = workspace.data()?;
    setup::build_weft(workspace)?;
    let mut traces = Vec::new();
    for instances in TRACES {
        let path = data.join(format!("placement/instances-{instances}.txt"));
        let path = path.to_str().context("name the published data: its path is not text")?;
        let replay = |more: &[&str]| -> Result<Vec<Run>> {
            let weft = workspace.weft(["sim", "placement", path, "--json"].into_iter().chain(more.iter().copied()));
            serde_json::from_str(&weft.read()?).with_context(|| format!("read what {instances} gave"))
        };
        eprintln!("replaying {instances} instances");
        let runs = replay(&[])?;
        let shuffle = |seed: u64| {
            let runs = replay(&["--shuffle", &seed.to_string(), "--policies", SHUFFLED])?;
            Ok(Shuffle { seed, runs })
        };
        let shuffles = SHUFFLES.map(shuffle).collect::<Result<_>>()?;
        traces.push(Trace { instances, runs, shuffles });
    }
    Ok(Results {
        command: "cargo xtask placement".to_owned(),
        weft: workspace.weft(["--version"]).read()?.trim().to_owned(),
        machine: Machine::here(),
        traces,
    })
}
