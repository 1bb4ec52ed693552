//! The goodput of every policy on every workload: measured with `weft sim goodput`, kept in
//! `docs/benchmarks/goodput.json`, told in `docs/benchmarks/goodput.md`.
//!
//! The JSON is saved after every run of `weft`, so that hours of work survive an interruption: what it holds for
//! the same scenario, policy and seed is not measured again.

mod cells;
mod results;
mod page;

use crate::machine::Machine;
use crate::program::seconds;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use cells::{Cell, Data, cells};
use results::{CellResult, Results, Sample};
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Measure every policy on every workload; writes docs/benchmarks/goodput.json and goodput.md.
///
/// Reads the workloads beside the repository, ../shared/data. Takes hours on two cores, prints an estimate and goes
/// on where it was stopped. A cell is measured again when its scenario or a file that it names changed; after a
/// change to a policy, say so with --redo POLICY, because results do not know the code that they came from.
///
/// Example: cargo xtask goodput --quick --only a100mix_11
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A quarter of the time and one seed; written to target/goodput/quick.{json,md} and not to docs/.
    #[arg(long)]
    quick: bool,
    /// Only cells with this in their name, like a100mix_11 or 8-poisson; the others keep what they have.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Arrivals are drawn from this many seeds, 1, 2, 3 and so on. [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Measure only these policies; others keep what they have.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    policies: Vec<String>,
    /// Forget what these policies reached and measure them again.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    redo: Vec<String>,
    /// Go on where the last run stopped; the default.
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Forget all earlier results and start over.
    #[arg(long)]
    fresh: bool,
    /// Write the page from the results that are there, without measuring.
    #[arg(long)]
    page_only: bool,
}

/// Policies that are compared, in the order of tables. `clockwork-10ms` is left out: it fixes batches earlier than
/// `clockwork` and is below it wherever it was tried.
const POLICIES: [&str; 9] =
    ["weft", "deferred", "eager", "eager-timeout", "clockwork", "nexus", "shepherd", "static", "timeshare"];

/// Seconds of one core that a GPU costs per simulated second over a whole search, roughly; the measured
/// speed takes its place after the first run.
const SEARCH_COST: f64 = 0.008;

/// An entry of what `weft sim goodput --json` prints.
#[derive(Debug, Deserialize)]
struct Reached {
    policy: String,
    goodput_average: f64,
    goodput_worst: f64,
}

/// One run of `weft` that is left to do.
struct Job<'a> {
    cell: &'a Cell,
    scenario: String,
    hash: String,
    seed: u64,
    policies: Vec<String>,
}

impl Job<'_> {
    fn cost(&self) -> f64 {
        self.policies.len() as f64 * self.cell.gpus as f64 * (cells::WARMUP + self.cell.duration) as f64
    }
}

pub(crate) fn goodput(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let folder = workspace.output("goodput")?;
    let (json, page) = if arguments.quick {
        (folder.join("quick.json"), folder.join("quick.md"))
    } else {
        let documents = workspace.root.join("docs/benchmarks");
        (documents.join("goodput.json"), documents.join("goodput.md"))
    };
    for policy in arguments.policies.iter().chain(&arguments.redo) {
        ensure!(POLICIES.contains(&policy.as_str()), "know the policy {policy}: one of {}", POLICIES.join(", "));
    }
    let mut results = if arguments.fresh { Results::default() } else { Results::load(&json)? };
    results.forget(&arguments.redo);
    if !arguments.page_only {
        measure(workspace, arguments, &mut results, &json)?;
    }
    let text = page::page(&results, &POLICIES);
    std::fs::write(&page, text).with_context(|| format!("write {}", page.display()))?;
    eprintln!("wrote {} and {}", workspace.relative(&json), workspace.relative(&page));
    Ok(())
}

fn measure(workspace: &Workspace, arguments: &Arguments, results: &mut Results, json: &std::path::Path) -> Result<()> {
    let data = Data::load(&workspace.data()?)?;
    let cells = cells(arguments.quick);
    let seeds = arguments.seeds.unwrap_or(if arguments.quick { 1 } else { 5 });
    let wanted = |cell: &&Cell| arguments.only.as_ref().is_none_or(|only| cell.name().contains(only.as_str()));
    if !cells.iter().any(|cell| wanted(&cell)) {
        let names: Vec<_> = cells.iter().map(Cell::name).collect();
        bail!("find cells named {}: there are {}", arguments.only.as_deref().unwrap_or_default(), names.join(", "));
    }
    setup::build_weft(workspace)?;
    results.weft = workspace.weft(["--version"]).read()?.trim().to_owned();
    results.machine = Some(Machine::here());
    results.seeds = seeds;
    results.command = command(arguments, seeds);

    let mut jobs = Vec::new();
    // Seed by seed over all cells: a run that is stopped has something to say of every cell.
    for seed in 1..=seeds {
        for cell in cells.iter().filter(wanted) {
            let hash = data.hash(cell)?;
            let kept = results.cell(cell, &hash);
            kept.keep_seeds(seeds);
            let asked = POLICIES.iter().map(|policy| (*policy).to_owned());
            let asked = asked.filter(|policy| arguments.policies.is_empty() || arguments.policies.contains(policy));
            let policies: Vec<String> = asked.filter(|policy| !kept.has(policy, seed)).collect();
            if !policies.is_empty() {
                jobs.push(Job { cell, scenario: data.scenario(cell, seed)?, hash: hash.clone(), seed, policies });
            }
        }
    }
    results.keep_order(&cells);
    results.save(json)?;
    run(workspace, jobs, results, json)
}

/// Runs the jobs, saving after each. How long it will take is said before and as it goes.
fn run(workspace: &Workspace, jobs: Vec<Job>, results: &mut Results, json: &std::path::Path) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let total: f64 = jobs.iter().map(Job::cost).sum();
    eprintln!("{} runs of weft to do, about {}", jobs.len(), seconds(length(total * SEARCH_COST / cores)));
    let start = Instant::now();
    let mut done = 0.0;
    for (index, job) in jobs.iter().enumerate() {
        let path = workspace.output("goodput")?.join(format!("{}.seed-{}.toml", job.cell.name(), job.seed));
        std::fs::write(&path, &job.scenario).with_context(|| format!("write {}", path.display()))?;
        let path = workspace.relative(&path).to_string();
        let policies = job.policies.join(",");
        let weft = workspace.weft(["sim", "goodput", &path, "--policies", &policies, "--seeds", "1", "--json"]);
        eprintln!("[{}/{}] {}", index + 1, jobs.len(), weft.shown());
        let begun = Instant::now();
        let printed = weft.read()?;
        let reached: Vec<Reached> =
            serde_json::from_str(&printed).with_context(|| format!("read the goodput of {path}"))?;
        let kept = results.cell(job.cell, &job.hash);
        for policy in &job.policies {
            let reached = reached.iter().find(|reached| reached.policy == *policy);
            let reached = reached.with_context(|| format!("find {policy} in the goodput of {path}"))?;
            let (average, worst) = (reached.goodput_average, reached.goodput_worst);
            kept.insert(policy, Sample { seed: job.seed, average, worst });
        }
        kept.sort(&POLICIES);
        results.save(json)?;
        done += job.cost();
        let left = start.elapsed().as_secs_f64() / done * (total - done);
        eprintln!("        took {}, about {} left", seconds(begun.elapsed()), seconds(length(left)));
    }
    Ok(())
}

fn length(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

/// What to type for the same results, from nothing.
fn command(arguments: &Arguments, seeds: u64) -> String {
    let quick = if arguments.quick { " --quick" } else { "" };
    format!("cargo xtask goodput{quick} --seeds {seeds}")
}

impl CellResult {
    /// Policies in the order of tables.
    fn sort(&mut self, order: &[&str]) {
        self.policies.sort_by_key(|result| order.iter().position(|name| *name == result.policy));
    }
}
