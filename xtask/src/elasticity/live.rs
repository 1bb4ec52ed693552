//! Workers that follow the load, live on this machine's CPU: a burst of ten times the load, and starts from zero.

use super::{percent, verdict};
use crate::machine::Machine;
use crate::server::{Ports, Server};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests a second before, in and after the burst, and for how many seconds.
const TRACE: [(f64, usize); 3] = [(10.0, 60), (100.0, 15), (10.0, 30)];
const ROUNDS: usize = 3;
const OBJECTIVE: &str = "400ms";
/// Starts from zero of each kind.
const STARTS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    machine: Machine,
    rounds: Vec<Round>,
    /// Milliseconds until the first answer of a model whose objective leaves time for a start.
    answered_ms: Vec<f64>,
    answered_objective_ms: f64,
    /// Milliseconds until the refusal of a model whose objective does not.
    refused_ms: Vec<f64>,
    refusal: String,
}

/// The same requests with workers that follow the load, and with as many as those were on average, rounded down and up.
#[derive(Debug, Serialize, Deserialize)]
struct Round {
    elastic: Run,
    fewer: Run,
    more: Run,
}

#[derive(Debug, Serialize, Deserialize)]
struct Run {
    /// What was asked for.
    workers: String,
    /// What there was on average, those that were starting included.
    average: f64,
    most: usize,
    sent: f64,
    good: f64,
}

impl Run {
    fn violations(&self) -> f64 {
        1.0 - self.good / self.sent
    }
}

pub(super) fn measure(workspace: &Workspace) -> Result<Results> {
    let folder = workspace.output("elasticity")?;
    let trace: Vec<f64> = TRACE.iter().flat_map(|(rate, seconds)| vec![*rate; *seconds]).collect();
    let lines: String = trace.iter().map(|rate| format!("{rate}\n")).collect();
    std::fs::write(folder.join("burst.txt"), lines).context("write the trace")?;
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        eprintln!("  round {round} of {ROUNDS}");
        let elastic = run(workspace, &folder, "\"1..10\"", trace.len())?;
        let count = elastic.average.floor() as usize;
        let fewer = run(workspace, &folder, &count.to_string(), trace.len())?;
        let more = run(workspace, &folder, &(count + 1).to_string(), trace.len())?;
        rounds.push(Round { elastic, fewer, more });
    }
    let answered = start_from_zero(workspace, &folder, "2s")?;
    let refused = start_from_zero(workspace, &folder, "100ms")?;
    ensure!(answered.iter().all(|first| first.status == 200), "answer after a start: {answered:?}");
    ensure!(refused.iter().all(|first| first.status == 503), "refuse what cannot be in time: {refused:?}");
    let refusal = refused.first().map(|first| first.body.clone()).unwrap_or_default();
    let millis = |all: Vec<First>| all.into_iter().map(|first| first.millis).collect();
    let (answered_ms, refused_ms) = (millis(answered), millis(refused));
    Ok(Results { machine: Machine::here(), rounds, answered_ms, answered_objective_ms: 2_000.0, refused_ms, refusal })
}

/// A server with one model that naps, with so many workers.
fn serve(workspace: &Workspace, folder: &Path, settings: &str) -> Result<Server> {
    let nap = workspace.root.join("bench/models/nap.py");
    let text = format!(
        "{}[[model]]\nname = \"nap\"\nkind = \"python\"\npath = {nap:?}\nmax_batch = 1\n{settings}",
        setup::worker_settings(workspace)?
    );
    let config = folder.join("weft.toml");
    std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let state = folder.join("state");
    if state.exists() {
        std::fs::remove_dir_all(&state).context("begin with nothing deployed")?;
    }
    let ports = Ports::free();
    let addresses = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
    let [http, grpc, metrics] = addresses.each_ref().map(String::as_str);
    let (config, state) = (config.display().to_string(), state.display().to_string());
    let words = ["up", &config, "--state", &state, "--http", http, "--grpc", grpc, "--metrics", metrics];
    let mut server = Server::start("elastic", workspace.weft(words), ports, folder)?;
    server.wait_until_asked("nap", PATIENCE)?;
    Ok(server)
}

fn run(workspace: &Workspace, folder: &Path, workers: &str, seconds: usize) -> Result<Run> {
    let server = serve(workspace, folder, &format!("slo = \"{OBJECTIVE}\"\nworkers = {workers}\n"))?;
    wait_for(&server, folder, "all workers", |ready, wanted| ready == wanted)?;
    let url = format!("http://127.0.0.1:{}", server.ports.http);
    let trace = format!("trace:{}:per-second", folder.join("burst.txt").display());
    let (duration, report) = (format!("{seconds}s"), folder.join("load.json"));
    let words = ["load", "--url", &url, "--model", "nap", "--arrivals", &trace, "--duration", &duration];
    let words = words.into_iter().chain(["--warmup", "0s", "--slo", OBJECTIVE, "--shape", "INPUT:1x1", "--json"]);
    let mut load = workspace.weft(words).start(&report)?;
    let (mut samples, mut sum, mut most) = (0, 0, 0);
    let status = loop {
        if let Some(status) = load.try_wait().context("wait for the load")? {
            break status;
        }
        let workers = server.admin(&folder.join("state"), "workers")?;
        let there = workers["workers"].as_array().into_iter().flatten().filter(|worker| worker["state"] != "stopping");
        let count = there.count();
        (samples, sum, most) = (samples + 1, sum + count, most.max(count));
        std::thread::sleep(Duration::from_millis(250));
    };
    let text = std::fs::read_to_string(&report).context("read the report of the load")?;
    ensure!(status.success(), "send load: {status}; it said:\n{text}");
    // What the generator says while it runs stands before its result.
    let start = text.find('{').context("find the report of the load")?;
    let value: Value = serde_json::from_str(&text[start..]).context("read the report of the load")?;
    let number = |name: &str| value[name].as_f64().with_context(|| format!("find {name} in the report of the load"));
    let average = sum as f64 / f64::from(samples).max(1.0);
    let run = Run {
        workers: workers.trim_matches('"').to_owned(),
        average,
        most,
        sent: number("sent")?,
        good: number("good")?,
    };
    eprintln!("    {} workers, {average:.2} on average: {} too late", run.workers, percent(run.violations()));
    server.stop()?;
    Ok(run)
}

/// What became of the first request.
#[derive(Debug)]
struct First {
    status: u16,
    body: String,
    millis: f64,
}

/// Asks a model whenever it has no worker left.
fn start_from_zero(workspace: &Workspace, folder: &Path, objective: &str) -> Result<Vec<First>> {
    let settings = format!("slo = \"{objective}\"\nworkers = \"0..1\"\nkeep_alive = \"1s\"\n");
    let server = serve(workspace, folder, &settings)?;
    let mut all = Vec::new();
    for _ in 0..STARTS {
        wait_for(&server, folder, "no worker", |ready, wanted| ready + wanted == 0)?;
        let body = r#"{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,1],"data":[1]}]}"#;
        let began = Instant::now();
        let (status, body) = server.post("/v2/models/nap/infer", body)?;
        all.push(First { status, body, millis: began.elapsed().as_secs_f64() * 1e3 });
        // Whoever was refused has a worker started all the same.
        wait_for(&server, folder, "a worker", |ready, _| ready > 0)?;
    }
    server.stop()?;
    Ok(all)
}

fn wait_for(server: &Server, folder: &Path, what: &str, so: impl Fn(u64, u64) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let models = server.admin(&folder.join("state"), "models")?;
        let number = |name: &str| models["models"][0][name].as_u64().unwrap_or(u64::MAX / 4);
        if so(number("workers_ready"), number("workers_wanted")) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "wait for {what}: {models}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Live, on a CPU: a burst of ten times the load\n")?;
        writeln!(
            out,
            "Measured on {}. A Python model that takes 50 ms for a request, with an objective of {OBJECTIVE}, is sent {} \
             requests a second for {} s, {} for {} s, and {} for {} s. Workers follow the load between 1 and 10; then the \
             same with as many as there were on average, rounded down and rounded up, at all times. Workers that were \
             starting are counted. What was refused counts as too late.\n",
            self.machine, TRACE[0].0, TRACE[0].1, TRACE[1].0, TRACE[1].1, TRACE[2].0, TRACE[2].1
        )?;
        writeln!(out, "| round | workers | on average | at most | requests | too late |")?;
        writeln!(out, "|---:|---:|---:|---:|---:|---:|")?;
        for (index, Round { elastic, fewer, more }) in self.rounds.iter().enumerate() {
            for run in [elastic, fewer, more] {
                let late = percent(run.violations());
                let Run { workers, average, most, sent, .. } = run;
                writeln!(out, "| {} | {workers} | {average:.2} | {most} | {sent} | {late} |", index + 1)?;
            }
        }
        let ratios = self.rounds.iter().map(|round| round.elastic.violations() / round.more.violations());
        let worst = ratios.fold(0.0, f64::max);
        writeln!(
            out,
            "\n- At most half as many too late as with fixed workers of the same cost, here against those of a higher \
             cost: {worst:.2} of them in the worst round, {}",
            verdict(worst <= 0.5)
        )?;
        writeln!(out, "\n## Live, on a CPU: from zero\n")?;
        let range = |all: &[f64]| {
            let (least, most) = (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
            format!("{least:.1} to {most:.1} ms in {} tries", all.len())
        };
        let longest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        writeln!(
            out,
            "The same model without any worker is asked once.\n\n- With an objective of {} s, which leaves time for a \
             start: answered after {}, {}\n- With an objective of 100 ms, which does not: refused after {}, {}. It says: \
             `{}`",
            self.answered_objective_ms / 1e3,
            range(&self.answered_ms),
            verdict(longest(&self.answered_ms) <= self.answered_objective_ms),
            range(&self.refused_ms),
            verdict(longest(&self.refused_ms) < 5.0),
            self.refusal
        )
    }
}
