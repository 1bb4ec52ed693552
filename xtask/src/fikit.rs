//! FIKIT's setting, in simulation: ten pairs of a high-priority and a low-priority task. Measured with `weft sim
//! sharing`, kept in `docs/benchmarks/fikit.json`, told in `docs/benchmarks/fikit.md`.

mod page;

use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Measure ten pairs of tasks in FIKIT's setting; writes docs/benchmarks/fikit.json and fikit.md.
///
/// The pairs are in bench/fikit/pairs.txt. Takes a few minutes on two cores.
///
/// Example: cargo xtask fikit --seeds 5
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Kernels and gaps are drawn from this many seeds, 1, 2, 3 and so on.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Write the page from the results that are there, without measuring.
    #[arg(long)]
    page_only: bool,
}

/// Policies that are compared, default sharing first.
const POLICIES: [&str; 5] = ["default", "weft", "fikit", "priority", "xsched"];

/// Pairs that are counted; those that follow in the file were tried and are told apart.
const TEN: usize = 10;

/// How the two tasks meet.
const SETTINGS: [(&str, &str); 2] = [("continuous", ""), ("preemption", "every = \"1s\"\n")];

/// Everything that was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    command: String,
    weft: String,
    seeds: u64,
    runs: Vec<Run>,
}

/// One pair in one setting with one seed under one policy.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    /// One of the others that were tried, not of the ten pairs.
    other: bool,
    high: String,
    low: String,
    setting: String,
    seed: u64,
    policy: String,
    gpu_busy: f64,
    high_ms: Option<f64>,
    low_ms: Option<f64>,
    /// The high-priority task's completion time over what it is alone.
    high_alone: Option<f64>,
}

/// An entry of what `weft sim sharing --json` prints.
#[derive(Debug, Deserialize)]
struct Report {
    policy: String,
    gpu_busy: f64,
    tenants: Vec<Tenant>,
}

#[derive(Debug, Deserialize)]
struct Tenant {
    completion_ms: Option<f64>,
    completion_alone: Option<f64>,
}

pub(crate) fn fikit(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let documents = workspace.root.join("docs/benchmarks");
    let (json, page) = (documents.join("fikit.json"), documents.join("fikit.md"));
    if !arguments.page_only {
        let results = measure(workspace, arguments.seeds)?;
        let text = serde_json::to_string_pretty(&results).context("write JSON")? + "\n";
        std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    }
    let text = std::fs::read_to_string(&json).with_context(|| format!("read {}", json.display()))?;
    let results: Results = serde_json::from_str(&text).with_context(|| format!("read {}", json.display()))?;
    std::fs::write(&page, page::page(&results)).with_context(|| format!("write {}", page.display()))?;
    eprintln!("wrote {} and {}", workspace.relative(&json), workspace.relative(&page));
    Ok(())
}

fn measure(workspace: &Workspace, seeds: u64) -> Result<Results> {
    setup::build_weft(workspace)?;
    let pairs = std::fs::read_to_string(workspace.root.join("bench/fikit/pairs.txt")).context("read the pairs")?;
    let mut results = Results {
        command: format!("cargo xtask fikit --seeds {seeds}"),
        weft: workspace.weft(["--version"]).read()?.trim().to_owned(),
        seeds,
        runs: Vec::new(),
    };
    for (index, pair) in pairs.lines().filter(|line| !line.starts_with('#')).enumerate() {
        let (high, low) = pair.split_once(' ').context("read the pairs: expected two models a line")?;
        for (setting, load) in SETTINGS {
            for seed in 1..=seeds {
                let runs = run(workspace, (high, low), (setting, load), seed, index >= TEN)?;
                results.runs.extend(runs);
            }
        }
    }
    Ok(results)
}

fn run(
    workspace: &Workspace,
    (high, low): (&str, &str),
    (setting, load): (&str, &str),
    seed: u64,
    other: bool,
) -> Result<Vec<Run>> {
    let path = workspace.output("fikit")?.join(format!("{high}-{low}-{setting}.seed-{seed}.toml"));
    std::fs::write(&path, scenario(high, low, load, seed)).with_context(|| format!("write {}", path.display()))?;
    let path = workspace.relative(&path).to_string();
    let weft = workspace.weft(["sim", "sharing", &path, "--policies", &POLICIES.join(","), "--json"]);
    eprintln!("{}", weft.shown());
    let reports: Vec<Report> = serde_json::from_str(&weft.read()?).with_context(|| format!("read what {path} gave"))?;
    let mut runs = Vec::new();
    for report in reports {
        ensure!(report.tenants.len() == 2, "find two tenants in what {path} gave");
        let [task, low_task] = [&report.tenants[0], &report.tenants[1]];
        runs.push(Run {
            other,
            high: high.to_owned(),
            low: low.to_owned(),
            setting: setting.to_owned(),
            seed,
            policy: report.policy,
            gpu_busy: report.gpu_busy,
            high_ms: task.completion_ms,
            low_ms: low_task.completion_ms,
            high_alone: task.completion_alone,
        });
    }
    Ok(runs)
}

fn scenario(high: &str, low: &str, load: &str, seed: u64) -> String {
    format!(
        "seed = {seed}\nwarmup = \"500ms\"\nduration = \"10s\"\nnoise = 0.05\n\n[gpu]\nmode = \"fifo\"\n\n\
         [[tenant]]\nname = \"high\"\nclass = \"latency\"\npriority = 0\nmodel = \"{high}\"\n{load}\n\
         [[tenant]]\nname = \"low\"\nclass = \"best-effort\"\npriority = 9\nmodel = \"{low}\"\n"
    )
}
