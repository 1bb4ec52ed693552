//! What clients see of two builds of `weft` when nothing fails: `cargo xtask compare-serving`.
//!
//! Only ratios within one round mean anything on a machine that others use too: in each round both builds are started
//! anew and measured in short slices, in turns, while the other has nothing to do. Both read the same configuration, and
//! nothing is asked of their administrators.

use crate::connection::Connection;
use crate::machine::Machine;
use crate::program::Program;
use crate::server::{MachineTime, Ports, Server};
use crate::serving::{Spread, echo_question};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Compare throughput and p99 of two builds of weft, in turns.
///
/// Each serves an echo model in Python and a virtual model with `weft up`. Throughput is that of 16 connections which each
/// send the next request when the last was answered; p99 is that of `weft load` of the new build at half the throughput
/// of the old one. Prints a table, writes target/compare-serving/results.json, and fails when the new build is surely worse
/// by more than the tolerance: the whole 95% confidence interval of the median of the rounds' ratios is beyond it. Leave the
/// machine alone meanwhile; it takes about 10 minutes.
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
/// Requests that are under way at a time when throughput is measured.
const CONNECTIONS: usize = 16;
const WARM_UP: Duration = Duration::from_secs(1);
/// Slices of a measurement, and whose turn it is: neither build is always first.
const TURNS: [usize; 8] = [0, 1, 1, 0, 1, 0, 0, 1];
const SLICES: u32 = TURNS.len() as u32 / 2;
const START: Duration = Duration::from_secs(60);
/// An answer that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// One build in one round, with one model.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// Requests a second in a closed loop.
    throughput: f64,
    /// The median of its slices.
    p99_ms: f64,
    /// Slices in which `weft load` itself could not keep up.
    generator_late: usize,
    /// Requests that `weft load` got no answer to.
    unanswered: u64,
}

/// A part of what a sample is made of.
#[derive(Clone, Copy, Debug)]
struct Slice {
    p99_ms: f64,
    generator_late: bool,
    unanswered: u64,
}

/// Both builds in one round, with one model.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    base: Sample,
    new: Sample,
}

/// All rounds of a model.
#[derive(Debug, Serialize)]
struct Compared {
    model: &'static str,
    /// Requests a second at which p99 was measured.
    rate: f64,
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
    models: Vec<Compared>,
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
    let models = bench.measure(arguments.rounds)?;
    let said = |build: &Path| Program::new(build).arguments(["--version"]).read().map(|text| text.trim().to_owned());
    let results = Results {
        command: format!("cargo xtask compare-serving --rounds {} --seconds {}", arguments.rounds, arguments.seconds),
        base: said(&bench.builds[0])?,
        new: said(&bench.builds[1])?,
        machine: Machine::here(),
        date: Program::new("date").arguments(["-u", "+%Y-%m-%d"]).read()?.trim().to_owned(),
        stolen_percent: MachineTime::now().stolen_since(began) * 100.0,
        models,
    };
    let json = arguments.json.clone().unwrap_or_else(|| bench.folder.join("results.json"));
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    let figures = results.figures(arguments.tolerance / 100.0);
    eprintln!("\n{}\nwrote {}", table(&results, &figures), workspace.relative(&json));
    let worse = figures.iter().filter(|figure| figure.verdict == Verdict::Worse).map(|figure| figure.what.as_str());
    let worse: Vec<&str> = worse.collect();
    let unanswered = results.models.iter().flat_map(|compared| &compared.rounds).map(|round| round.new.unanswered);
    let unanswered: u64 = unanswered.sum();
    ensure!(unanswered == 0, "answer every request with the new build: {unanswered} got none");
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
        let server = self.start(0)?;
        let mut models = Vec::new();
        for model in MODELS {
            closed_loop(server.ports.http, model, WARM_UP)?;
            let rate = closed_loop(server.ports.http, model, self.length)? / 2.0;
            models.push(Compared { model, rate, rounds: Vec::new() });
        }
        server.stop()?;
        for round in 1..=rounds {
            let servers = [self.start(0)?, self.start(1)?];
            for compared in &mut models {
                let measured = self.round(&servers, compared)?;
                let ratio = measured.new.throughput / measured.base.throughput;
                eprintln!("  round {round}/{rounds}, {}: throughput x {ratio:.3}", compared.model);
                compared.rounds.push(measured);
            }
            servers.into_iter().try_for_each(Server::stop)?;
        }
        Ok(models)
    }

    /// Measures both builds with a model.
    fn round(&self, servers: &[Server; 2], Compared { model, rate, .. }: &Compared) -> Result<Round> {
        let slice = self.length / SLICES;
        for server in servers {
            closed_loop(server.ports.http, model, WARM_UP)?;
        }
        let mut throughputs = [Vec::new(), Vec::new()];
        for build in TURNS {
            throughputs[build].push(closed_loop(servers[build].ports.http, model, slice)?);
        }
        let mut slices = [Vec::new(), Vec::new()];
        for build in TURNS {
            slices[build].push(self.open_loop(&servers[build], model, *rate, slice)?);
        }
        let sample = |build: usize| {
            let throughput = throughputs[build].iter().sum::<f64>() / f64::from(SLICES);
            let p99_ms = Spread::of(slices[build].iter().map(|slice| slice.p99_ms)).context("measure p99")?.median;
            let generator_late = slices[build].iter().filter(|slice| slice.generator_late).count();
            let unanswered = slices[build].iter().map(|slice| slice.unanswered).sum();
            Ok::<_, anyhow::Error>(Sample { throughput, p99_ms, generator_late, unanswered })
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

    /// What `weft load` sees at this rate.
    fn open_loop(&self, server: &Server, model: &str, rate: f64, length: Duration) -> Result<Slice> {
        let (url, rate) = (format!("http://127.0.0.1:{}", server.ports.http), format!("{rate:.2}"));
        let length = format!("{}ms", length.as_millis());
        let words = ["load", "--url", &url, "--model", model, "--rate", &rate, "--duration", &length];
        let words = words.into_iter().chain(["--warmup", "500ms", "--shape", "INPUT:1x16", "--json"]);
        let printed = Program::new(&self.builds[1]).arguments(words).folder(&self.workspace.root).read()?;
        let value: Value = serde_json::from_str(&printed).context("read what weft load printed")?;
        let number =
            |value: &Value, name: &str| value[name].as_f64().with_context(|| format!("find {name} in {printed}"));
        let unanswered = number(&value, "errors")? as u64;
        Ok(Slice {
            p99_ms: number(&value["latency_ms"], "p99")?,
            generator_late: value["generator_late"] == true,
            unanswered,
        })
    }
}

/// Requests a second that are answered when as many as there are connections are always under way.
fn closed_loop(port: u16, model: &str, length: Duration) -> Result<f64> {
    let path = format!("/v2/models/{model}/infer");
    let body = &echo_question().body;
    let answered = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = || -> Result<()> {
        let mut connection = Connection::open(port, PATIENCE).context("connect")?;
        while begin.elapsed() < length {
            let answer = connection.post(&path, body).map_err(|why| anyhow!("get an answer from {model}: {why:?}"))?;
            // A machine that does something else for a moment makes the server refuse: such an answer does not count.
            let counts = usize::from(answer.status == 200);
            answered.fetch_add(counts, Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(answered.into_inner() as f64 / begin.elapsed().as_secs_f64())
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
        let of_model = |Compared { model, rate, rounds }: &Compared| {
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
            let throughput = figure(format!("{model}: requests a second"), |sample| sample.throughput, true);
            let p99 = figure(format!("{model}: p99 at {rate:.0}/s, ms"), |sample| sample.p99_ms, false);
            [throughput, p99].into_iter().flatten().collect::<Vec<_>>()
        };
        self.models.iter().flat_map(of_model).collect()
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
    let rounds: Vec<&Round> = results.models.iter().flat_map(|compared| &compared.rounds).collect();
    let late: usize = rounds.iter().map(|round| round.base.generator_late + round.new.generator_late).sum();
    let _ = writeln!(
        text,
        "\n{} rounds; {}; stolen by its host: {:.1}% of the time; `weft load` could not keep up in {late} of {} slices; \
         without an answer: {} requests to the base, {} to the new",
        rounds.len() / MODELS.len(),
        results.machine,
        results.stolen_percent,
        rounds.len() * TURNS.len(),
        rounds.iter().map(|round| round.base.unanswered).sum::<u64>(),
        rounds.iter().map(|round| round.new.unanswered).sum::<u64>()
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
        let sample = |throughput, p99_ms| Sample { throughput, p99_ms, generator_late: 0, unanswered: 0 };
        let rounds = vec![Round { base: sample(100.0, 5.0), new: sample(110.0, 5.5) }; 7];
        let results = Results {
            command: String::new(),
            base: String::new(),
            new: String::new(),
            machine: Machine::here(),
            date: String::new(),
            stolen_percent: 0.0,
            models: vec![Compared { model: "echo", rate: 50.0, rounds }],
        };
        let verdicts: Vec<Verdict> = results.figures(0.02).iter().map(|figure| figure.verdict).collect();
        assert_eq!(verdicts, [Verdict::NotWorse, Verdict::Worse]);
    }
}
