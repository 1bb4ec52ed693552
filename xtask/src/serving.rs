//! Serving against the peers: `cargo xtask bench serving`. Kept in `docs/benchmarks/serving.json`, told in
//! `docs/benchmarks/serving.md`.
//!
//! Five measurements. *Echo*: how fast each server answers a model that does nothing, with 8 connections. *Lone*: how
//! long a request takes that meets no other. *Steady*: how long requests take at the rate at which Triton is full.
//! *Overload*: how many requests of `magika` are answered in time when more come than can be answered. *Fidelity*:
//! whether the live server answers as many in time as the simulator says.
//!
//! Only ratios within one round mean anything on a machine that others use too: in each round every contender has its
//! turn, is started, measured and stopped, and none runs while another is measured. The JSON is saved after every
//! turn, and what it holds for the same settings is not measured again.

mod contenders;
mod wrk;
mod load;
mod bare;
mod fidelity;
mod results;
mod page;

use crate::machine::Machine;
use crate::peers::{self, Peer};
use crate::program::seconds;
use crate::server::{MachineTime, Ports, Question, Server};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use contenders::Contender;
use results::{EchoSample, FidelitySample, LoneSample, OverloadSample, Results, SteadySample};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use contenders::{echo_question, serve_weft};
pub(crate) use results::Spread;

/// Measure weft against Triton, MLServer, KServe, Ray Serve, BentoML and LitServe.
///
/// Sets up the peers under target/peers, then in turns: requests a second, latency, processor time, memory and start of
/// an echo model, and goodput of magika at 0.8 to 3 times capacity. Writes docs/benchmarks/serving.json and serving.md.
/// Takes about half an hour with what is set by default; goes on where it was stopped. Leave the machine alone
/// meanwhile. After a change to weft, say --redo weft.
///
/// Example: cargo xtask bench serving --quick --only triton
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// One short round; written to target/serving/quick.{json,md} and not to docs/.
    #[arg(long)]
    quick: bool,
    /// How often each contender has its turn. [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// Only contenders with this in their name, like weft or triton; the others keep what they have.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only this measurement.
    #[arg(long, value_name = "WHAT")]
    measure: Option<Measure>,
    /// How long to wait before a turn for others to leave the machine alone, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60)]
    patience: u64,
    /// Forget what contenders with this in their name reached, and measure them again.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    redo: Vec<String>,
    /// Forget all earlier results and start over.
    #[arg(long)]
    fresh: bool,
    /// Write the page from the results that are there, without measuring.
    #[arg(long)]
    page_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Echo,
    Lone,
    Steady,
    Overload,
    Fidelity,
}

/// Offered load over capacity, and whether a queue without limits can survive it.
const TIMES_CAPACITY: [f64; 4] = [0.8, 1.0, 1.5, 3.0];
/// Requests a second that are still alone.
const LONE_RATE: f64 = 100.0;
/// The server that every other is compared with when requests are alone.
const BARE: &str = "bare";
/// The objective of every model here.
const OBJECTIVE: &str = "100ms";
/// A turn is repeated when others used more of the machine than this meanwhile.
const DISTURBED: f64 = 0.1;
/// How often a turn is tried; the least disturbed counts.
const TRIES: usize = 3;
/// Ray starts half a dozen processes.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How long things are measured.
#[derive(Clone, Copy, Debug)]
struct Settings {
    rounds: u64,
    warmup: Duration,
    echo: Duration,
    load: Duration,
}

/// What all turns need.
struct Bench<'a> {
    workspace: &'a Workspace,
    arguments: &'a Arguments,
    settings: Settings,
    results: Results,
    json: PathBuf,
    folder: PathBuf,
}

pub(crate) fn serving(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let folder = workspace.output("serving")?;
    let (json, page) = if arguments.quick {
        (folder.join("quick.json"), folder.join("quick.md"))
    } else {
        let documents = workspace.root.join("docs/benchmarks");
        (documents.join("serving.json"), documents.join("serving.md"))
    };
    let mut results = if arguments.fresh { Results::default() } else { Results::load(&json)? };
    results.forget(&arguments.redo);
    let length = |usual, quick| Duration::from_secs(if arguments.quick { quick } else { usual });
    let settings = Settings {
        rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 }),
        warmup: length(2, 1),
        echo: length(6, 2),
        load: length(10, 4),
    };
    let mut bench = Bench { workspace, arguments, settings, results, json, folder };
    if !arguments.page_only {
        bench.measure()?;
    }
    std::fs::write(&page, page::page(&bench.results)).with_context(|| format!("write {}", page.display()))?;
    eprintln!("wrote {} and {}", workspace.relative(&bench.json), workspace.relative(&page));
    Ok(())
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<()> {
        peers::wrk()?;
        let contenders = self.contenders()?;
        ensure!(!contenders.is_empty(), "find contenders named {}", self.arguments.only.join(" or "));
        self.results.machine = Some(Machine::here());
        self.results.command = format!("cargo xtask bench serving --rounds {}", self.settings.rounds);
        self.results.weft = self.workspace.weft(["--version"]).read().unwrap_or_default().trim().to_owned();
        let start = Instant::now();
        for round in 1..=self.settings.rounds {
            eprintln!("\n== round {round} of {}, {} so far", self.settings.rounds, seconds(start.elapsed()));
            if self.wanted(Measure::Echo) {
                for contender in contenders.iter().filter(|contender| contender.serves_echo()) {
                    self.turn(contender, |bench| bench.echo(contender, round));
                }
            }
            if self.wanted(Measure::Lone) && self.can_load() {
                self.bare(round)?;
                for contender in contenders.iter().filter(|contender| contender.is_steady()) {
                    self.turn(contender, |bench| bench.lone(contender, round));
                }
            }
            if self.wanted(Measure::Steady) && self.can_load() {
                for contender in contenders.iter().filter(|contender| contender.is_steady()) {
                    self.turn(contender, |bench| bench.steady(contender, round));
                }
            }
            if self.wanted(Measure::Overload) && self.can_load() {
                self.overload(&contenders, round)?;
            }
            if self.wanted(Measure::Fidelity) && contenders.iter().any(Contender::is_ours) {
                self.fidelity(round)?;
            }
        }
        self.save()
    }

    fn wanted(&self, measure: Measure) -> bool {
        self.arguments.measure.is_none_or(|only| only == measure)
    }

    /// Whether `weft load` is there, which all but the first measurement need.
    fn can_load(&self) -> bool {
        let there = self.workspace.weft(["load", "--help"]).works();
        if !there {
            eprintln!("\n  **** THERE IS NO `weft load`: STEADY AND OVERLOAD ARE LEFT OUT ****\n");
        }
        there
    }

    /// Those who can be set up, of those asked for.
    fn contenders(&self) -> Result<Vec<Contender>> {
        let mut found = Vec::new();
        // Built once, however many of them are ours.
        let mut weft: Option<bool> = None;
        for contender in Contender::all() {
            let name = contender.name();
            let asked = |only: &Vec<String>| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
            if !asked(&self.arguments.only) {
                continue;
            }
            let ready = match &contender {
                Contender::Peer(peer) => peer.set_up(self.workspace),
                Contender::Triton(_) => Peer::Triton.set_up(self.workspace),
                _ => weft
                    .map_or_else(|| self.build_weft(), |built| if built { Ok(()) } else { Err(anyhow!("see above")) }),
            };
            if contender.is_ours() {
                weft = Some(ready.is_ok());
            }
            match ready {
                Ok(()) => found.push(contender),
                Err(error) => peers::say_missing(&name, &error),
            }
        }
        Ok(found)
    }

    fn build_weft(&self) -> Result<()> {
        setup::build_weft(self.workspace)?;
        ensure!(self.workspace.weft(["up", "--help"]).works(), "run weft up: there is no such command");
        Ok(())
    }

    /// One contender's turn. One that fails is named and does not end the others.
    fn turn(&mut self, contender: &Contender, action: impl FnOnce(&mut Self) -> Result<()>) {
        if let Err(error) = action(self) {
            eprintln!("\n  **** {} FAILED AND IS LEFT OUT THIS TIME: {error:#} ****\n", contender.name());
        }
    }

    /// Waits until others leave the machine alone, or patience ends.
    fn wait_for_quiet(&self) {
        let start = Instant::now();
        let mut said = false;
        loop {
            let before = MachineTime::now();
            std::thread::sleep(Duration::from_millis(500));
            let others = MachineTime::now().others_since(before, Duration::ZERO);
            if others <= DISTURBED || start.elapsed().as_secs() >= self.arguments.patience {
                return;
            }
            if !said {
                eprintln!("  waiting: others use {:.0}% of the machine", others * 100.0);
                said = true;
            }
        }
    }

    fn start(&self, contender: &Contender, question: &Question) -> Result<(Server, Duration)> {
        let ports = Ports::free();
        let program = contender.program(self.workspace, &ports)?;
        let mut server = Server::start(&contender.name(), program, ports, &self.folder)?;
        let took = server.wait(question, START_LIMIT)?;
        Ok((server, took))
    }

    fn echo(&mut self, contender: &Contender, round: u64) -> Result<()> {
        let settings = format!("wrk, {} connections, {} s", wrk::CONNECTIONS, self.settings.echo.as_secs());
        let name = contender.name();
        if self.results.echo_of(&name, contender.title(), &settings).rounds.iter().any(|old| old.round == round) {
            return Ok(());
        }
        let question = contender.question();
        self.wait_for_quiet();
        let (server, took) = self.start(contender, &question)?;
        // Idle, but awake: after its first answer and a moment to settle.
        std::thread::sleep(Duration::from_secs(1));
        let memory = server.memory();
        wrk::run(&self.folder, &name, server.ports.http, &question, self.settings.warmup)?;
        let mut tries = Vec::new();
        while tries.len() < TRIES && tries.iter().all(|(_, _, others)| *others > DISTURBED) {
            if !tries.is_empty() {
                self.wait_for_quiet();
            }
            let (machine, before) = (MachineTime::now(), server.processor_time());
            let measured = wrk::run(&self.folder, &name, server.ports.http, &question, self.settings.echo)?;
            let used = server.processor_time().saturating_sub(before);
            tries.push((measured, used, MachineTime::now().others_since(machine, used)));
        }
        tries.sort_by(|(_, _, one), (_, _, other)| one.total_cmp(other));
        let (measured, used, others) = tries.swap_remove(0);
        server.ask(&question)?;
        server.stop()?;
        ensure!(measured.requests > 0, "get answers from {name}: there was none");
        let sample = EchoSample {
            round,
            requests_per_second: measured.requests as f64 / measured.seconds,
            p50_ms: measured.p50_ms,
            p99_ms: measured.p99_ms,
            cpu_ms_per_request: used.as_secs_f64() * 1e3 / measured.requests as f64,
            memory_mb: memory.proportional as f64 / 1e6,
            resident_mb: memory.resident as f64 / 1e6,
            start_s: took.as_secs_f64(),
            failed: measured.failed,
            others,
        };
        eprintln!(
            "  {name:<14} {:>7.0} requests/s, p50 {:.2} ms, p99 {:.2} ms, CPU {:.3} ms, {:.0} MB, start {:.2} s, others \
             {:.0}%",
            sample.requests_per_second,
            sample.p50_ms,
            sample.p99_ms,
            sample.cpu_ms_per_request,
            sample.memory_mb,
            sample.start_s,
            others * 100.0
        );
        self.results.echo_of(&name, contender.title(), &settings).rounds.push(sample);
        self.save()
    }

    /// The echo model at the rate that Triton reached in this round.
    fn steady(&mut self, contender: &Contender, round: u64) -> Result<()> {
        let name = contender.name();
        let settings = format!("Poisson at Triton's rate, {} s", self.settings.load.as_secs());
        let rate = self.results.echo_rate("triton", round).context("know Triton's rate: measure it first")?;
        if self.results.steady_of(&name, contender.title(), &settings).rounds.iter().any(|old| old.round == round) {
            return Ok(());
        }
        let question = contender.question();
        let (server, _) = self.start(contender, &question)?;
        wrk::run(&self.folder, &name, server.ports.http, &question, self.settings.warmup)?;
        let measured = load::run(self.workspace, server.ports.http, "echo", rate, self.settings.load)?;
        server.stop()?;
        let sample = SteadySample { round, rate, good_rps: measured.good_rps, p99_ms: measured.p99_ms };
        eprintln!("  {name:<14} at {rate:.0} requests/s: good {:.0}, p99 {:?} ms", sample.good_rps, sample.p99_ms);
        self.results.steady_of(&name, contender.title(), &settings).rounds.push(sample);
        self.save()
    }

    /// The echo model, asked by one client that takes its time.
    fn lone(&mut self, contender: &Contender, round: u64) -> Result<()> {
        let name = contender.name();
        let settings = format!("{LONE_RATE} requests/s at equal distances, {} s", self.settings.load.as_secs());
        if self.results.lone_of(&name, contender.title(), &settings).rounds.iter().any(|old| old.round == round) {
            return Ok(());
        }
        let question = contender.question();
        self.wait_for_quiet();
        let (server, _) = self.start(contender, &question)?;
        let sample = self.send_lone(server.ports.http, round)?;
        let sample = LoneSample { computed_ms: Some(server.computed_ms("echo")?), ..sample };
        server.stop()?;
        eprintln!(
            "  {name:<14} alone: p50 {:.3} ms, p99 {:.3} ms, of which the model {:.3} ms",
            sample.p50_ms,
            sample.p99_ms,
            sample.computed_ms.unwrap_or_default()
        );
        self.results.lone_of(&name, contender.title(), &settings).rounds.push(sample);
        self.save()
    }

    /// The same with a server that does nothing: what the client and the way there and back take.
    fn bare(&mut self, round: u64) -> Result<()> {
        let settings = format!("{LONE_RATE} requests/s at equal distances, {} s", self.settings.load.as_secs());
        let title = || "a server that knows one answer".to_owned();
        if self.results.lone_of(BARE, title(), &settings).rounds.iter().any(|old| old.round == round) {
            return Ok(());
        }
        self.wait_for_quiet();
        let sample = self.send_lone(bare::start()?, round)?;
        eprintln!("  {BARE:<14} alone: p50 {:.3} ms, p99 {:.3} ms", sample.p50_ms, sample.p99_ms);
        self.results.lone_of(BARE, title(), &settings).rounds.push(sample);
        self.save()
    }

    fn send_lone(&self, port: u16, round: u64) -> Result<LoneSample> {
        let measured = load::lone(self.workspace, port, "echo", LONE_RATE, self.settings.load)?;
        let found = |part: Option<f64>| part.context("find percentiles in what weft load printed");
        Ok(LoneSample { round, p50_ms: found(measured.p50_ms)?, p99_ms: found(measured.p99_ms)?, computed_ms: None })
    }

    /// The live server against the simulator.
    fn fidelity(&mut self, round: u64) -> Result<()> {
        let settings = format!("eleven A100 models on 8 virtual GPUs, Poisson, {} s", self.settings.load.as_secs());
        for rate in fidelity::RATES {
            let kept = self.results.fidelity_of(&settings);
            if kept.rounds.iter().any(|old| old.round == round && old.rate == rate) {
                continue;
            }
            self.wait_for_quiet();
            let measured = fidelity::run(self.workspace, &self.folder, rate, self.settings.load)?;
            let (simulated_good_rps, live_good_rps) = (measured.simulated, measured.live);
            eprintln!("  at {rate} requests/s: {simulated_good_rps:.0} good simulated, {live_good_rps:.0} live");
            let sample = FidelitySample { round, rate, simulated_good_rps, live_good_rps };
            self.results.fidelity_of(&settings).rounds.push(sample);
            self.save()?;
        }
        Ok(())
    }

    fn overload(&mut self, contenders: &[Contender], round: u64) -> Result<()> {
        let taking_part: Vec<&Contender> = contenders.iter().filter(|contender| contender.serves_magika()).collect();
        let Some(first) = taking_part.iter().find(|contender| matches!(contender, Contender::Triton(_))) else {
            eprintln!("  overload needs Triton, whose capacity the rates are multiples of");
            return Ok(());
        };
        let capacity = match self.results.capacity(round) {
            Some(capacity) => capacity,
            None => self.capacity(first)?,
        };
        eprintln!("  capacity of Triton with magika: {capacity:.1} requests/s");
        for times in TIMES_CAPACITY {
            for contender in &taking_part {
                self.turn(contender, |bench| bench.overloaded(contender, round, capacity, times));
            }
        }
        Ok(())
    }

    /// What Triton with its defaults answers when 8 connections always wait for it.
    fn capacity(&self, contender: &Contender) -> Result<f64> {
        let question = contender.question();
        let (server, _) = self.start(contender, &question)?;
        wrk::run(&self.folder, "capacity", server.ports.http, &question, self.settings.warmup)?;
        let measured = wrk::run(&self.folder, "capacity", server.ports.http, &question, self.settings.echo)?;
        server.stop()?;
        Ok(measured.requests as f64 / measured.seconds)
    }

    fn overloaded(&mut self, contender: &Contender, round: u64, capacity: f64, times: f64) -> Result<()> {
        let name = contender.name();
        let settings = format!("Poisson, objective {OBJECTIVE}, {} s", self.settings.load.as_secs());
        let kept = self.results.overload_of(&name, contender.title(), &settings);
        if kept.rounds.iter().any(|old| old.round == round && old.times_capacity == times) {
            return Ok(());
        }
        let question = contender.question();
        self.wait_for_quiet();
        let (server, _) = self.start(contender, &question)?;
        let (machine, before) = (MachineTime::now(), server.processor_time());
        let measured = load::run(self.workspace, server.ports.http, "magika", capacity * times, self.settings.load)?;
        let others = MachineTime::now().others_since(machine, server.processor_time().saturating_sub(before));
        server.stop()?;
        let good_rps = measured.good_rps;
        let sample = OverloadSample { round, capacity, times_capacity: times, good_rps, others };
        eprintln!("  {name:<34} at {times} times capacity: {good_rps:.1} good a second");
        self.results.overload_of(&name, contender.title(), &settings).rounds.push(sample);
        self.save()
    }

    fn save(&mut self) -> Result<()> {
        let names = Contender::all().iter().map(Contender::name).chain([BARE.to_owned()]).collect::<Vec<_>>();
        self.results.keep_order(&names);
        self.results.save(Path::new(&self.json))
    }
}
