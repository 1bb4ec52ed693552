//! Whether a preempted program comes back, whoever dies or stops: `cargo xtask preemptions`. Kept in
//! `docs/benchmarks/preemptions.json`, told in `docs/benchmarks/preemptions.md`.
//!
//! A training that never pauses beside a latency program that does, both in turns on the stand-in GPU, on which a group that
//! was disabled and not preempted never runs again. In each run somebody is killed, or stopped for longer than any claim of
//! it is believed, at a random moment; how long the training then takes to finish its next kernel is what it waited.

use super::stand_in::{Running, StandIn};
use super::{Chance, page, waits};
use crate::machine::Machine;
use crate::server::MachineTime;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Kill and stop who takes part in a preemption on a stand-in GPU, and see that the preempted program comes back.
///
/// The program itself, its neighbour and the daemon, killed or stopped at random moments. Writes
/// docs/benchmarks/preemptions.md and .json. Fails when the program does not come back. Takes about 15 minutes.
///
/// Example: cargo xtask preemptions --runs 50
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// How often somebody is killed or stopped.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    runs: u64,
    /// From which victims and moments are drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the page and its JSON go.
    #[arg(long, value_name = "FOLDER", default_value = "docs/benchmarks")]
    into: std::path::PathBuf,
}

/// Longer than the daemon counts a program as active that does nothing, which is a second.
const STOPPED: Duration = Duration::from_millis(1_500);
/// A program that has finished nothing for so long hangs.
const HANGS: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fault {
    NeighbourKilled,
    NeighbourStopped,
    DaemonKilled,
    DaemonStopped,
    ProgramKilled,
    ProgramStopped,
}

impl Fault {
    const ALL: [Fault; 6] = [
        Fault::NeighbourKilled,
        Fault::NeighbourStopped,
        Fault::DaemonKilled,
        Fault::DaemonStopped,
        Fault::ProgramKilled,
        Fault::ProgramStopped,
    ];

    fn words(self) -> &'static str {
        match self {
            Fault::NeighbourKilled => "the latency program killed",
            Fault::NeighbourStopped => "the latency program stopped",
            Fault::DaemonKilled => "the daemon killed, another started",
            Fault::DaemonStopped => "the daemon stopped",
            Fault::ProgramKilled => "the training killed, another started",
            Fault::ProgramStopped => "the training stopped, and continued",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Run {
    fault: Fault,
    /// From the fault, or from when the program could go on, to the end of its next kernel.
    back_ms: f64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Results {
    command: String,
    machine: Machine,
    weft: String,
    /// Of the machine's time, by its host.
    stolen_percent: f64,
    /// How often the training was preempted, all in all.
    preemptions: u64,
    runs: Vec<Run>,
}

pub(crate) fn preemptions(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let results = measure(workspace, arguments.runs, arguments.seed)?;
    let folder = workspace.root.join(&arguments.into);
    let (json, md) = (folder.join("preemptions.json"), folder.join("preemptions.md"));
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    let text = tell(&results);
    std::fs::write(&md, &text).with_context(|| format!("write {}", md.display()))?;
    eprintln!("\n{text}\nwrote {} and {}", workspace.relative(&json), workspace.relative(&md));
    Ok(())
}

/// The same, shorter, and nothing is written.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    eprintln!("\n{}", tell(&measure(workspace, 18, 7)?));
    Ok(())
}

fn measure(workspace: &Workspace, runs: u64, seed: u64) -> Result<Results> {
    let mut scene = Scene::start(workspace)?;
    let began = MachineTime::now();
    let mut chance = Chance(seed);
    let (mut done, mut preemptions) = (Vec::new(), 0);
    for number in 0..runs {
        // Every fault equally often, and in no order that matters.
        let fault = Fault::ALL[(number % 6) as usize];
        scene.until_preempted(3).with_context(|| format!("begin run {number} ({fault:?})"))?;
        preemptions += 3;
        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
        let back = scene.run(fault).with_context(|| format!("come back in run {number}: {}", fault.words()))?;
        done.push(Run { fault, back_ms: back.as_secs_f64() * 1e3 });
        if number % 50 == 49 {
            eprintln!("  {} of {runs} runs", number + 1);
        }
    }
    let weft = workspace.weft(["--version"]).read()?.trim().to_owned();
    let stolen_percent = MachineTime::now().stolen_since(began) * 100.0;
    let command = format!("cargo xtask preemptions --runs {runs} --seed {seed}");
    Ok(Results { command, machine: Machine::here(), weft, stolen_percent, preemptions, runs: done })
}

/// Two programs and a daemon.
struct Scene<'a> {
    stand_in: StandIn<'a>,
    train: Running,
    serve: Running,
    lives: u64,
}

impl<'a> Scene<'a> {
    fn start(workspace: &'a Workspace) -> Result<Scene<'a>> {
        let stand_in = StandIn::start(workspace)?;
        let (serve, train) = (start_serve(&stand_in, 0)?, start_train(&stand_in, 0)?);
        Ok(Scene { stand_in, train, serve, lives: 0 })
    }

    /// Waits until the training was preempted so many times more.
    fn until_preempted(&self, more: u64) -> Result<()> {
        let count = |stand_in: &StandIn<'_>| {
            let tenants = stand_in.tenants()?;
            let is_it = |tenant: &&Value| tenant["name"].as_str().is_some_and(|name| name.starts_with("train"));
            tenants.iter().find(is_it)?["preemptions"].as_u64()
        };
        let before = self.stand_in.wait("the training", count)?;
        self.stand_in.wait("preemptions", |stand_in| count(stand_in).filter(|now| *now >= before + more))?;
        Ok(())
    }

    /// Does it; how long the training took to finish a kernel afterwards. Everybody is there again at the end.
    fn run(&mut self, fault: Fault) -> Result<Duration> {
        self.lives += 1;
        let mut from = SystemTime::now();
        match fault {
            Fault::NeighbourKilled => self.serve.kill()?,
            Fault::NeighbourStopped => signal(self.serve.pid(), "-STOP")?,
            Fault::DaemonKilled => self.stand_in.replace_daemon()?,
            Fault::DaemonStopped => signal(self.stand_in.daemon_pid()?, "-STOP")?,
            Fault::ProgramKilled => {
                self.train.kill()?;
                self.train = start_train(&self.stand_in, self.lives)?;
            }
            Fault::ProgramStopped => {
                signal(self.train.pid(), "-STOP")?;
                std::thread::sleep(Duration::from_millis(300));
                from = SystemTime::now();
                signal(self.train.pid(), "-CONT")?;
            }
        }
        let back = self.next_kernel(from)?;
        match fault {
            Fault::NeighbourKilled => self.serve = start_serve(&self.stand_in, self.lives)?,
            Fault::NeighbourStopped => {
                std::thread::sleep(STOPPED.saturating_sub(back));
                signal(self.serve.pid(), "-CONT")?;
            }
            Fault::DaemonStopped => {
                std::thread::sleep(STOPPED.saturating_sub(back));
                signal(self.stand_in.daemon_pid()?, "-CONT")?;
            }
            Fault::DaemonKilled | Fault::ProgramKilled | Fault::ProgramStopped => {}
        }
        Ok(back)
    }

    /// When the training finished a kernel that ended after this.
    fn next_kernel(&self, from: SystemTime) -> Result<Duration> {
        let from_ns = from.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let begun = Instant::now();
        loop {
            // One that is being started has no log yet.
            let log = waits(&self.train.log).unwrap_or_default();
            if let Some((ended, _)) = log.iter().rev().take_while(|(ended, _)| *ended > from_ns).last() {
                return Ok(Duration::from_nanos(ended - from_ns));
            }
            ensure!(begun.elapsed() < HANGS, "finish a kernel: the training finished none for {HANGS:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn start_serve(stand_in: &StandIn<'_>, life: u64) -> Result<Running> {
    let words = ["--every", "1", "--us", "800", "--pause", "3000"];
    stand_in.run(&format!("serve-{life}"), &["--class", "latency", "--share", "time", "--slo", "20ms"], &words)
}

fn start_train(stand_in: &StandIn<'_>, life: u64) -> Result<Running> {
    let words = ["--every", "1", "--us", "1500"];
    stand_in.run(&format!("train-{life}"), &["--class", "best-effort", "--share", "time"], &words)
}

fn signal(pid: u32, which: &str) -> Result<()> {
    let sent = Command::new("kill").args([which, &pid.to_string()]).status().context("run kill")?;
    ensure!(sent.success(), "send {which} to {pid}");
    Ok(())
}

fn tell(results: &Results) -> String {
    let mut text = format!(
        "# Whether a preempted program comes back\n\nOn the stand-in GPU. Written by `{}`; the samples are in \
         [preemptions.json](preemptions.json).\n\n- machine: {}\n- {}\n- stolen by the machine's host: {:.1}% of the time\n\n\
         A best-effort program launches kernels of 1.5 ms and waits for each, beside a latency program with one of 0.8 ms \
         every 4 ms.\nIt was preempted at least {} times. Somebody was killed with SIGKILL, or stopped for longer than its \
         claims are believed, at\na random moment, {} times in all. From then, or from when the program could go on, to the end \
         of its next kernel, in ms:\n\n| what happened | times | p50 | p99 | longest |\n|---|---|---|---|---|\n",
        results.command,
        results.machine,
        results.weft,
        results.stolen_percent,
        results.preemptions,
        results.runs.len()
    );
    for fault in Fault::ALL {
        let mut back: Vec<f64> = results.runs.iter().filter(|run| run.fault == fault).map(|run| run.back_ms).collect();
        back.sort_by(f64::total_cmp);
        let at = |part| page::at(&back, part);
        let (p50, p99, longest) = (at(0.5), at(0.99), at(1.0));
        let _ = writeln!(text, "| {} | {} | {p50:.1} | {p99:.1} | {longest:.1} |", fault.words(), back.len());
    }
    text + "\nA daemon is taken for dead 100 ms after its last sign of life, a process that waits for the GPU 200 ms after it \
            began to, and\none that does nothing counts as active for a second. A training that is started anew takes as long \
            as a process does.\n"
}
