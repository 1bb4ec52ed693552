//! What clients see of two builds of `weft` when nothing fails: `cargo xtask compare-serving`.
//!
//! Only ratios mean anything on a machine that others use too: in each round both builds are started anew and measured in
//! slices of a tenth of a second, in turns, while the other has nothing to do. What disturbs the machine disturbs both. Both
//! read the same configuration, and nothing is asked of their administrators.

use crate::connection::Connection;
use crate::machine::Machine;
use crate::program::Program;
use crate::server::{MachineTime, Ports, Server};
use crate::serving::{Spread, echo_question};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Compare throughput and p99 of two builds of weft, in turns.
///
/// Each serves an echo model in Python and a virtual model with `weft up`, to one connection and to sixteen that each send
/// the next request when the last was answered. Throughput and p99 of a round are the medians of its slices. Prints a table,
/// writes target/compare-serving/results.json, and fails when the new build is surely worse by more than the tolerance: the
/// whole 95% confidence interval of the median of the rounds' ratios is beyond it. Leave the machine alone meanwhile; it takes
/// about 10 minutes.
///
/// Example: cargo xtask compare-serving --base ../old/target/release/weft --new target/release/weft
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The weft to compare with.
    #[arg(long, value_name = "PATH")]
    base: PathBuf,
    /// The weft that must not be worse.
    #[arg(long, value_name = "PATH")]
    new: PathBuf,
    /// How often each is measured.
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u64).range(7..=1000))]
    rounds: u64,
    /// How long each figure is measured in a round, in seconds.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,
    /// By how much the new one may be worse, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    tolerance: f64,
    /// Where the results go.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const MODELS: [&str; 2] = ["echo", "virtual"];
/// Requests that are under way at a time.
const CONNECTIONS: [usize; 2] = [1, 16];
const WARM_UP: Duration = Duration::from_secs(1);
/// Shorter than most of what disturbs a machine, and long enough for a p99 of its own.
const SLICE: Duration = Duration::from_millis(100);
/// Whose turn it is, over and over: neither build is always first.
const TURNS: [usize; 8] = [0, 1, 1, 0, 1, 0, 0, 1];
const START: Duration = Duration::from_secs(60);
/// An answer that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// One build in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// Answers a second.
    throughput: f64,
    p99_ms: f64,
    /// Answers that were no results.
    refused: usize,
    /// Of the server and its workers, for each answer: what the machine's host takes away is not in it.
    processor_us: f64,
}

/// Both builds in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    base: Sample,
    new: Sample,
}

/// All rounds of a model under a load.
#[derive(Debug, Serialize)]
struct Compared {
    model: &'static str,
    connections: usize,
    rounds: Vec<Round>,
}

#[derive(Debug, Serialize)]
struct Results {
    command: String,
    base: String,
    new: String,
    machine: Machine,
    date: String,
    /// Of the machine's time, by its host.
    stolen_percent: f64,
    loads: Vec<Compared>,
}

pub(crate) fn compare_serving(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let began = MachineTime::now();
    let bench = Bench {
        workspace,
        folder: workspace.output("compare-serving")?,
        builds: [&arguments.base, &arguments.new]
            .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        length: Duration::from_secs(arguments.seconds),
    };
    for build in &bench.builds {
        ensure!(build.is_file(), "find a weft at {}: build it first", build.display());
    }
    let loads = bench.measure(arguments.rounds)?;
    let said = |build: &Path| Program::new(build).arguments(["--version"]).read().map(|text| text.trim().to_owned());
    let results = Results {
        command: format!("cargo xtask compare-serving --rounds {} --seconds {}", arguments.rounds, arguments.seconds),
        base: said(&bench.builds[0])?,
        new: said(&bench.builds[1])?,
        machine: Machine::here(),
        date: Program::new("date").arguments(["-u", "+%Y-%m-%d"]).read()?.trim().to_owned(),
        stolen_percent: MachineTime::now().stolen_since(began) * 100.0,
        loads,
    };
    let json = arguments.json.clone().unwrap_or_else(|| bench.folder.join("results.json"));
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    let figures = results.figures(arguments.tolerance / 100.0);
    eprintln!("\n{}\nwrote {}", table(&results, &figures), workspace.relative(&json));
    let worse = figures.iter().filter(|figure| figure.verdict == Verdict::Worse).map(|figure| figure.what.as_str());
    let worse: Vec<&str> = worse.collect();
    ensure!(worse.is_empty(), "stay within {}% of the base: {}", arguments.tolerance, worse.join("; "));
    Ok(())
}

struct Bench<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    /// The base, and the new one.
    builds: [PathBuf; 2],
    length: Duration,
}

impl Bench<'_> {
    fn measure(&self, rounds: u64) -> Result<Vec<Compared>> {
        let loads = MODELS.iter().flat_map(|model| CONNECTIONS.map(|connections| (*model, connections)));
        let load = |(model, connections)| Compared { model, connections, rounds: Vec::new() };
        let mut all: Vec<Compared> = loads.map(load).collect();
        for round in 1..=rounds {
            let servers = [self.start(0)?, self.start(1)?];
            for compared in &mut all {
                let measured = self.round(&servers, compared)?;
                let ratio = measured.new.throughput / measured.base.throughput;
                let Compared { model, connections, rounds: done } = compared;
                eprintln!("  round {round}/{rounds}, {model}, {connections} at a time: throughput x {ratio:.3}");
                done.push(measured);
            }
            servers.into_iter().try_for_each(Server::stop)?;
        }
        Ok(all)
    }

    /// Measures both builds under a load.
    fn round(&self, servers: &[Server; 2], Compared { model, connections, .. }: &Compared) -> Result<Round> {
        let mut clients = Vec::new();
        for server in servers {
            let mut own = Clients::open(server.ports.http, model, *connections)?;
            own.ask(WARM_UP)?;
            clients.push(own);
        }
        let before = servers.each_ref().map(Server::processor_time);
        let mut slices = [Vec::new(), Vec::new()];
        let count = (self.length.as_millis() / SLICE.as_millis()) as usize * 2;
        for build in TURNS.into_iter().cycle().take(count) {
            slices[build].push(clients[build].ask(SLICE)?);
        }
        let used = [0, 1].map(|build| servers[build].processor_time().saturating_sub(before[build]));
        let sample = |build: usize| {
            let slices = &slices[build];
            let answers: usize = slices.iter().map(|slice| slice.took_ms.len()).sum();
            let processor_us = used[build].as_secs_f64() * 1e6 / answers.max(1) as f64;
            let throughput = Spread::of(slices.iter().map(|slice| slice.throughput)).context("measure throughput")?;
            let p99 = Spread::of(slices.iter().filter_map(Slice::p99_ms)).context("measure p99")?;
            let refused = slices.iter().map(|slice| slice.refused).sum();
            Ok::<_, anyhow::Error>(Sample { throughput: throughput.median, p99_ms: p99.median, refused, processor_us })
        };
        Ok(Round { base: sample(0)?, new: sample(1)? })
    }

    fn start(&self, build: usize) -> Result<Server> {
        let name = ["base", "new"][build];
        let state = self.folder.join(format!("state-{name}"));
        if state.exists() {
            std::fs::remove_dir_all(&state).with_context(|| format!("empty {}", state.display()))?;
        }
        let ports = Ports::free();
        let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
        let echo = self.workspace.root.join("bench/models/echo.py");
        let workers = setup::worker_settings_of(self.workspace, &self.builds[1])?;
        let text = format!(
            "state = {state:?}\n[listen]\nhttp = {http:?}\ngrpc = {grpc:?}\nmetrics = {metrics:?}\n{workers}virtual_gpus = 2\n\
             [[model]]\nname = \"echo\"\nkind = \"python\"\npath = {echo:?}\nmax_batch = 8\nslo = \"100ms\"\n\
             [[model]]\nname = \"virtual\"\nkind = \"virtual\"\nlatency = {{ alpha = \"20us\", beta = \"200us\" }}\n\
             max_batch = 8\nslo = \"100ms\"\n"
        );
        let config = self.folder.join(format!("{name}.toml"));
        std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let config = config.display().to_string();
        let program = Program::new(&self.builds[build]).arguments(["up", &config]).folder(&self.workspace.root);
        let mut server = Server::start(name, program, ports, &self.folder)?;
        MODELS.iter().try_for_each(|model| server.wait_until_asked(model, START))?;
        Ok(server)
    }
}

/// Connections that each send the next request when the last was answered.
struct Clients {
    path: String,
    connections: Vec<Connection>,
}

/// What they saw in a while.
struct Slice {
    throughput: f64,
    took_ms: Vec<f64>,
    refused: usize,
}

impl Slice {
    fn p99_ms(&self) -> Option<f64> {
        let mut took = self.took_ms.clone();
        took.sort_by(f64::total_cmp);
        took.get(took.len() * 99 / 100).copied()
    }
}

impl Clients {
    fn open(port: u16, model: &str, connections: usize) -> Result<Clients> {
        let open = |_| Connection::open(port, PATIENCE).context("connect");
        let connections = (0..connections).map(open).collect::<Result<_>>()?;
        Ok(Clients { path: format!("/v2/models/{model}/infer"), connections })
    }

    fn ask(&mut self, length: Duration) -> Result<Slice> {
        let body = &echo_question().body;
        let (path, begin) = (&self.path, Instant::now());
        let work = |connection: &mut Connection| -> Result<(Vec<f64>, usize)> {
            let (mut took, mut refused) = (Vec::new(), 0);
            while begin.elapsed() < length {
                let asked = Instant::now();
                let answer =
                    connection.post(path, body).map_err(|why| anyhow!("get an answer from {path}: {why:?}"))?;
                // A machine that does something else for a moment makes the server refuse.
                refused += usize::from(answer.status != 200);
                took.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            Ok((took, refused))
        };
        let seen = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.connections.iter_mut().map(|connection| scope.spawn(move || work(connection))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Result<Vec<_>>>()
        })?;
        let passed = begin.elapsed().as_secs_f64();
        let refused = seen.iter().map(|(_, refused)| refused).sum();
        let took_ms: Vec<f64> = seen.into_iter().flat_map(|(took, _)| took).collect();
        Ok(Slice { throughput: (took_ms.len() - refused) as f64 / passed, took_ms, refused })
    }
}

/// What the rounds say of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    NotWorse,
    Undecided,
    Worse,
}

impl Verdict {
    /// Of ratios of the new build to the base, where more is better.
    fn of(ratios: &[f64], tolerance: f64) -> Verdict {
        let limit = 1.0 - tolerance;
        match interval(ratios) {
            Some([least, _]) if least >= limit => Verdict::NotWorse,
            Some([_, most]) if most < limit => Verdict::Worse,
            _ => Verdict::Undecided,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::NotWorse => "not worse",
            Verdict::Undecided => "undecided: more rounds, or a calmer machine",
            Verdict::Worse => "WORSE",
        }
    }
}

/// The 95% confidence interval of the median, from the order of the values alone; `None` of fewer than six.
fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Half of the values lie below the median, by chance more or fewer: a binomial distribution.
    let mut chance = 0.5_f64.powi(i32::try_from(sorted.len()).ok()?);
    let (mut below, mut outside) = (chance, 0);
    while below <= 0.025 {
        outside += 1;
        chance *= (sorted.len() - outside + 1) as f64 / outside as f64;
        below += chance;
    }
    let first = outside.checked_sub(1)?;
    Some([sorted[first], sorted[sorted.len() - 1 - first]])
}

/// A figure of all rounds.
struct Figure {
    what: String,
    base: Spread,
    new: Spread,
    /// New over base, round by round.
    ratio: Spread,
    verdict: Verdict,
}

impl Results {
    fn figures(&self, tolerance: f64) -> Vec<Figure> {
        let of_load = |Compared { model, connections, rounds }: &Compared| {
            let figure = |what: String, of: fn(&Sample) -> f64, more_is_better: bool| {
                let ratios: Vec<f64> = rounds.iter().map(|round| of(&round.new) / of(&round.base)).collect();
                let judged = ratios.iter().map(|ratio| if more_is_better { *ratio } else { 2.0 - ratio });
                Some(Figure {
                    what,
                    base: Spread::of(rounds.iter().map(|round| of(&round.base)))?,
                    new: Spread::of(rounds.iter().map(|round| of(&round.new)))?,
                    ratio: Spread::of(ratios.iter().copied())?,
                    verdict: Verdict::of(&judged.collect::<Vec<_>>(), tolerance),
                })
            };
            let throughput = figure(
                format!("{model}, {connections} at a time: requests a second"),
                |sample| sample.throughput,
                true,
            );
            let p99 = figure(format!("{model}, {connections} at a time: p99 in ms"), |sample| sample.p99_ms, false);
            let used = format!("{model}, {connections} at a time: processor time of a request in us");
            let used = figure(used, |sample| sample.processor_us, false);
            [throughput, p99, used].into_iter().flatten().collect::<Vec<_>>()
        };
        self.loads.iter().flat_map(of_load).collect()
    }
}

fn table(results: &Results, figures: &[Figure]) -> String {
    let mut text =
        String::from("| what | base | new | new over base: median (least to most) | |\n|---|---|---|---|---|\n");
    for Figure { what, base, new, ratio, verdict } in figures {
        let Spread { median, least, most } = ratio;
        let verdict = verdict.name();
        let _ = writeln!(
            text,
            "| {what} | {:.2} | {:.2} | {median:.3} ({least:.3} to {most:.3}) | {verdict} |",
            base.median, new.median
        );
    }
    let rounds: Vec<&Round> = results.loads.iter().flat_map(|compared| &compared.rounds).collect();
    let _ = writeln!(
        text,
        "\n{} rounds; {}; stolen by its host: {:.1}% of the time; refused: {} requests by the base, {} by the new",
        rounds.len() / results.loads.len().max(1),
        results.machine,
        results.stolen_percent,
        rounds.iter().map(|round| round.base.refused).sum::<usize>(),
        rounds.iter().map(|round| round.new.refused).sum::<usize>()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_order_statistics_of_the_tables() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&values(5)), None);
        assert_eq!(interval(&values(7)), Some([1.0, 7.0]));
        assert_eq!(interval(&values(9)), Some([2.0, 8.0]));
        assert_eq!(interval(&values(20)), Some([6.0, 15.0]));
    }

    #[test]
    fn one_bad_round_decides_nothing() {
        let verdict = |ratios: &[f64]| Verdict::of(ratios, 0.02);
        assert_eq!(verdict(&[1.0, 0.99, 1.01, 1.0, 0.99, 1.0, 1.0]), Verdict::NotWorse);
        assert_eq!(verdict(&[0.5, 0.99, 1.01, 1.0, 0.99, 1.0, 1.0]), Verdict::Undecided);
        assert_eq!(verdict(&[0.9, 0.91, 0.92, 0.9, 0.95, 0.9, 0.97]), Verdict::Worse);
    }

    #[test]
    fn a_higher_p99_is_worse_and_a_higher_throughput_is_not() {
        let sample = |throughput, p99_ms| Sample { throughput, p99_ms, refused: 0, processor_us: 10.0 };
        let rounds = vec![Round { base: sample(100.0, 5.0), new: sample(110.0, 5.5) }; 7];
        let results = Results {
            command: String::new(),
            base: String::new(),
            new: String::new(),
            machine: Machine::here(),
            date: String::new(),
            stolen_percent: 0.0,
            loads: vec![Compared { model: "echo", connections: 1, rounds }],
        };
        let verdicts: Vec<Verdict> = results.figures(0.02).iter().map(|figure| figure.verdict).collect();
        assert_eq!(verdicts, [Verdict::NotWorse, Verdict::Worse, Verdict::NotWorse]);
    }
}
