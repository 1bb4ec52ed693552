//! What clients see when parts of a live cluster fail: `cargo xtask cluster-faults`. Kept in
//! `docs/benchmarks/cluster-faults.json`, told in `docs/benchmarks/cluster-faults.md`.
//!
//! Everything is seen from outside: processes, signals, HTTP and metrics. A run that leaves a cluster which is not whole
//! again is followed by a new cluster, so that every run begins with a good one.

mod fault;
mod router;
mod load;
mod gauges;
mod census;
mod cluster;
mod trial;
mod row;
mod page;
mod failover;

use crate::faults::Chance;
use crate::machine::Machine;
use crate::program::{Program, seconds};
use crate::server::MachineTime;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use fault::{Case, Kind, Part};
use row::Row;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::{Settings, Trial};

/// Kill, end and stop every part of a live cluster under load, and judge what clients see.
///
/// One scheduler, two gateways and three nodes on this machine. Each part is killed (kill), sent SIGTERM (term), sent two
/// (term-twice) and stopped for 10 s (stop), so many times each; then all are restarted in turn (rolling). Writes
/// docs/benchmarks/cluster-faults.json and .md, or with --only or --short below target/cluster-faults. Fails when a promise is
/// broken, and names it. Takes about an hour.
///
/// Example: cargo xtask cluster-faults --times 2 --only scheduler:kill,node:stop
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// How often each fault is done.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    times: u64,
    /// Requests a second, over both gateways and both models.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    rate: u64,
    /// Only these: a part (node, gateway-2), a kind (kill, term, term-twice, stop), both (node:stop) or rolling.
    #[arg(long, value_name = "FAULT", value_delimiter = ',')]
    only: Vec<String>,
    /// From which the moments of faults are drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What ci does: some faults once, about 90 s.
    #[arg(long, conflicts_with_all = ["times", "rate", "only", "seed", "json"])]
    short: bool,
    /// With a second scheduler on standby: kill whichever leads so many times, then restart everything in turn, and write
    /// docs/benchmarks/cluster-failover.json and .md instead.
    #[arg(long, value_name = "KILLS", conflicts_with_all = ["times", "only", "short"])]
    failover: Option<u64>,
    /// Where the results go, with a page beside them.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Another weft than the release build of this repository.
    #[arg(long, value_name = "PATH")]
    weft: Option<PathBuf>,
}

/// How long a part is stopped.
const STOP: Duration = Duration::from_secs(10);
/// The same in a short run: still longer than every deadline.
const SHORT_STOP: Duration = Duration::from_secs(3);
/// The most often that everything is restarted, or that a part is told twice to end: the rest shows the same.
const FEW_TIMES: u64 = 3;
/// Times that were missed while the load generator itself was later than this are measured again, so many times in all.
const DISTURBED_MS: f64 = 50.0;
const DISTURBED_TRIES: usize = 3;
/// How often a cluster is started that does not carry the load before any fault.
const START_TRIES: usize = 3;
/// Requests a second in a short run.
const SHORT_RATE: u64 = 300;

/// Everything that was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    command: String,
    /// As `git describe` has it, and as the program says.
    version: String,
    machine: Machine,
    date: String,
    seed: u64,
    rate: u64,
    /// Of the machine's time, by its host.
    stolen_percent: f64,
    rows: Vec<Row>,
}

impl Results {
    /// Promises that were broken, each with its part and fault.
    fn broken(&self) -> Vec<String> {
        let of_row = |row: &Row| {
            let name = format!("{} {}", row.part, row.fault);
            row.broken().into_iter().map(move |broken| format!("{name}: {broken}"))
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

/// What is done, how often, and with which program.
struct Plan {
    cases: Vec<(Case, u64)>,
    settings: Settings,
    seed: u64,
    weft: PathBuf,
    command: String,
}

pub(crate) fn cluster_faults(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let weft = match &arguments.weft {
        Some(path) => std::path::absolute(path).with_context(|| format!("find {}", path.display()))?,
        None => {
            setup::build_weft(workspace)?;
            workspace.weft_path()
        }
    };
    if let Some(kills) = arguments.failover {
        return failover::failover(workspace, &weft, kills, arguments);
    }
    let scratch = workspace.output("cluster-faults")?.join("results.json");
    if arguments.short {
        return check(workspace, &weft);
    }
    let few = |case: &Case| matches!(case, Case::Rolling | Case::Fault(_, Kind::TermTwice));
    let times = |case: &Case| if few(case) { arguments.times.min(FEW_TIMES) } else { arguments.times };
    let cases = Case::named(&arguments.only)?.into_iter().map(|case| (case, times(&case))).collect();
    let only = if arguments.only.is_empty() { String::new() } else { format!(" --only {}", arguments.only.join(",")) };
    let command = format!(
        "cargo xtask cluster-faults --times {} --rate {} --seed {}{only}",
        arguments.times, arguments.rate, arguments.seed
    );
    let settings = Settings { rate: arguments.rate, stop: STOP };
    let document = workspace.root.join("docs/benchmarks/cluster-faults.json");
    let usual = if arguments.only.is_empty() { document } else { scratch };
    let json = arguments.json.clone().unwrap_or(usual);
    judge(&run(workspace, &Plan { cases, settings, seed: arguments.seed, weft, command }, &json)?)
}

/// Some faults, once each, which takes about 90 s; `weft` must have been built. Where only times were missed and the machine
/// was busy with something else, they are measured again, a few times.
pub(crate) fn check(workspace: &Workspace, weft: &Path) -> Result<()> {
    let json = workspace.output("cluster-faults")?.join("short.json");
    let cases = Case::few().into_iter().map(|case| (case, 1)).collect();
    let settings = Settings { rate: SHORT_RATE, stop: SHORT_STOP };
    let command = "cargo xtask cluster-faults --short".to_owned();
    let plan = Plan { cases, settings, seed: 1, weft: weft.to_owned(), command };
    let mut left = DISTURBED_TRIES;
    loop {
        left -= 1;
        let results = run(workspace, &plan, &json)?;
        let only_times = results.rows.iter().all(|row| row.broken_facts().is_empty());
        let lag = results.rows.iter().map(|row| row.lag_ms).fold(0.0, f64::max);
        match judge(&results) {
            Err(error) if left > 0 && only_times && lag > DISTURBED_MS => {
                eprintln!("  {error:#}\n  this program itself was late by {lag:.0} ms: measured again");
            }
            judged => return judged,
        }
    }
}

/// Does a plan and writes its results.
fn run(workspace: &Workspace, plan: &Plan, json: &Path) -> Result<Results> {
    let began = MachineTime::now();
    let rows = measure(workspace, plan)?;
    let results = Results {
        command: plan.command.clone(),
        version: version(workspace, &plan.weft)?,
        machine: Machine::here(),
        date: Program::new("date").arguments(["-u", "+%Y-%m-%d"]).read()?.trim().to_owned(),
        seed: plan.seed,
        rate: plan.settings.rate,
        stolen_percent: MachineTime::now().stolen_since(began) * 100.0,
        rows,
    };
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(json, text).with_context(|| format!("write {}", json.display()))?;
    let (page, text) = (json.with_extension("md"), page::page(Some(&results)));
    std::fs::write(&page, &text).with_context(|| format!("write {}", page.display()))?;
    eprintln!("\n{text}\nwrote {} and {}", workspace.relative(json), workspace.relative(&page));
    Ok(results)
}

fn judge(results: &Results) -> Result<()> {
    let broken = results.broken();
    ensure!(broken.is_empty(), "keep {} promises:\n  {}", broken.len(), broken.join("\n  "));
    Ok(())
}

fn measure(workspace: &Workspace, plan: &Plan) -> Result<Vec<Row>> {
    let folder = workspace.output("cluster-faults")?.join("cluster");
    let mut chance = Chance(plan.seed);
    let mut trial: Option<Trial<'_>> = None;
    let mut rows = Vec::new();
    for (case, times) in &plan.cases {
        let mut row = Row::of(*case);
        for time in 1..=*times {
            let start = Instant::now();
            let mut running = match trial.take() {
                Some(running) => running,
                None => start_cluster(workspace, plan, &folder)?,
            };
            let seen = running.run(*case, &mut chance)?;
            row.add(&seen);
            let whole = seen.is_whole();
            let then = if whole { "" } else { "; not whole again, a new cluster is started" };
            let (took, workers) = (seconds(start.elapsed()), &seen.by_node);
            eprintln!("  {} {} {time}/{times}: {took}, workers by node {workers:?}{then}", row.part, row.fault);
            trial = whole.then_some(running);
        }
        row.broken().iter().for_each(|broken| eprintln!("    BROKEN {broken}"));
        rows.push(row);
    }
    Ok(rows)
}

/// Starts a cluster; again, a few times, where the machine is busy with something else at the moment.
fn start_cluster<'a>(workspace: &'a Workspace, plan: &Plan, folder: &Path) -> Result<Trial<'a>> {
    let mut left = START_TRIES;
    loop {
        left -= 1;
        match Trial::start(workspace, &plan.weft, folder, plan.settings, Part::all()) {
            Err(error) if left > 0 => eprintln!("  starting again: {error:#}"),
            started => return started,
        }
    }
}

/// What is measured: the program, and where its source stands.
fn version(workspace: &Workspace, weft: &Path) -> Result<String> {
    let said = Program::new(weft).arguments(["--version"]).read()?.trim().to_owned();
    if weft != workspace.weft_path() {
        return Ok(format!("{said} (another build than that of this source)"));
    }
    let describe = ["describe", "--always", "--dirty"];
    let (status, source) = Program::new("git").arguments(describe).folder(&workspace.root).try_quietly()?;
    // A source archive has no history.
    Ok(if status == Some(0) { format!("{said} ({})", source.trim()) } else { said })
}
