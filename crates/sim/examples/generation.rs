//! Generated text on the Azure traces: what each policy makes of objectives for the first token and for each further one.
//!
//! `generation FOLDER` reads `azure_llm_2023_conv.csv` and `azure_llm_2023_code.csv` from a folder and runs every policy on one
//! half of each trace: one 7B model on one GPU, and eight on four GPUs, with TTFT 500 ms and TPOT 50 and 25 ms. It finds the
//! highest rate at which 99% of the requests are good for each policy, and then runs all of them at parts of the best
//! baseline's. Results go to a JSON file as they are found; what the file holds is not measured again. With `--page` the tables
//! are written too. `--family` runs drawn requests instead: bursts, long prompts, long answers, little cache.
//!
//! Example: cargo run --release -p weft-sim --example generation -- ../shared/data/traces --half first

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use serde::{Deserialize, Serialize};
use sim::generate::{NAMES, Report, Scenario, bound, goodput, parse, run};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Parts of the best baseline's goodput that all policies are run at.
const LOADS: [f64; 8] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5];
/// Parts of the bound that all policies are run at besides: where bursts are so large that nobody has 99% good at any rate to
/// speak of, the loads above are next to nothing.
const PARTS: [f64; 6] = [0.05, 0.1, 0.25, 0.5, 0.75, 1.0];
/// The one of them that GPU time is compared at.
const HALF: usize = 1;
/// Requests that may be bad.
const LIMIT: f64 = 0.01;
const PRECISION: f64 = 0.02;
/// The policy that GPU time is compared with.
const EAGER: &str = "vllm-like";

/// A 7B model on an H200. See the page for where the numbers are from.
const STEP: &str = "{ floor = \"3.1ms\", prefill_token = \"27.2us\", sequence = \"239us\", cached_token = \"119ns\", attention_ps = 1060.0 }";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    command: String,
    version: String,
    machine: String,
    date: String,
    cells: BTreeMap<String, Cell>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cell {
    /// Requests a second if steps had no floor and nothing ever waited.
    bound: f64,
    /// Highest rate with 99% good, by policy.
    goodput: BTreeMap<String, f64>,
    /// The best of the baselines.
    best: f64,
    /// By policy, then by load.
    runs: BTreeMap<String, Vec<Run>>,
    /// By policy, then by part of the bound.
    parts: BTreeMap<String, Vec<Run>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Run {
    rate: f64,
    good: f64,
    good_mean_tpot: f64,
    busy: f64,
    steps: f64,
    batch: f64,
    ttft_p99: f64,
    tpot_p99: f64,
    ttft_missed: f64,
    tpot_missed: f64,
}

impl Run {
    fn of(report: &Report) -> Run {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        Run {
            rate: rounded(report.offered_rps),
            good: rounded(report.good),
            good_mean_tpot: rounded(report.good_mean_tpot),
            busy: rounded(report.busy),
            steps: rounded(report.steps_per_second),
            batch: rounded(report.mean_batch),
            ttft_p99: rounded(report.ttft_ms.p99.unwrap_or(0.0)),
            tpot_p99: rounded(report.tpot_ms.p99.unwrap_or(0.0)),
            ttft_missed: rounded(report.ttft_missed),
            tpot_missed: rounded(report.tpot_missed),
        }
    }
}

struct Arguments {
    folder: PathBuf,
    half: String,
    family: bool,
    only: String,
    policies: Vec<String>,
    redo: Vec<String>,
    json: PathBuf,
    page: Option<PathBuf>,
    date: String,
    threads: usize,
    show: bool,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let mut given = Arguments {
            folder: PathBuf::new(),
            half: "both".to_owned(),
            family: false,
            only: String::new(),
            policies: NAMES.map(str::to_owned).to_vec(),
            redo: Vec::new(),
            json: "target/generation.json".into(),
            page: None,
            date: String::new(),
            threads: 1,
            show: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            let names = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--half" => given.half = value()?,
                "--family" => given.family = true,
                "--only" => given.only = value()?,
                "--policies" => given.policies = names(value()?),
                "--redo" => given.redo = names(value()?),
                "--json" => given.json = value()?.into(),
                "--page" => given.page = Some(value()?.into()),
                "--date" => given.date = value()?,
                "--threads" => {
                    given.threads = value()?.parse().map_err(|_| "--threads needs a number".to_owned())?;
                }
                "--show" => given.show = true,
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                folder => given.folder = folder.into(),
            }
        }
        if !["first", "second", "both"].contains(&given.half.as_str()) {
            return Err("--half is first, second or both".to_owned());
        }
        Ok(given)
    }
}

fn main() {
    if let Err(problem) = Arguments::read().and_then(|arguments| measure(&arguments)) {
        eprintln!("failed to {problem}");
        std::process::exit(2);
    }
}

/// Names and texts of the scenarios.
fn scenarios(arguments: &Arguments) -> Vec<(String, String)> {
    let mut all = Vec::new();
    if arguments.family {
        for (name, requests) in FAMILY {
            for tpot in [50, 25] {
                all.push((format!("{name}, one model, TPOT {tpot} ms"), one(tpot, 120.0, requests)));
            }
        }
        for (name, requests) in FAMILY {
            all.push((format!("{name}, eight models, TPOT 50 ms"), eight(50, requests)));
        }
        let (_, steady) = FAMILY[0];
        all.push(("little cache, one model, TPOT 50 ms".to_owned(), one(50, 13.5 + 8.0, steady)));
        all.push(("very little cache, one model, TPOT 50 ms".to_owned(), one(50, 13.5 + 3.0, steady)));
    } else {
        for (half, part) in [("first", "to = \"50%\""), ("second", "from = \"50%\"")] {
            if arguments.half != "both" && arguments.half != half {
                continue;
            }
            for trace in ["conv", "code"] {
                let requests = format!("[trace]\npath = \"azure_llm_2023_{trace}.csv\"\n{part}\n");
                for tpot in [50, 25] {
                    all.push((format!("{trace}, {half} half, one model, TPOT {tpot} ms"), one(tpot, 126.9, &requests)));
                    all.push((format!("{trace}, {half} half, eight models, TPOT {tpot} ms"), eight(tpot, &requests)));
                }
            }
        }
    }
    all.retain(|(name, _)| name.contains(&arguments.only));
    all
}

const FAMILY: [(&str, &str); 4] = [
    (
        "steady",
        "[requests]\nprompt = { median = 600, sigma = 0.9, max = 8000 }\noutput = { median = 120, sigma = 0.8, max = 1000 }\n",
    ),
    (
        "bursts",
        "[requests]\narrivals = \"gamma\"\nshape = 0.1\nprompt = { median = 600, sigma = 0.9, max = 8000 }\noutput = { median = 120, sigma = 0.8, max = 1000 }\n",
    ),
    (
        "long prompts",
        "[requests]\nprompt = { median = 3500, sigma = 0.5, max = 12000 }\noutput = { median = 60, sigma = 0.8, max = 1000 }\n",
    ),
    (
        "long answers",
        "[requests]\nprompt = { median = 200, sigma = 0.7, max = 4000 }\noutput = { median = 500, sigma = 0.6, max = 2000 }\n",
    ),
];

fn head() -> String {
    "seed = 1\nwarmup = \"20s\"\nrate = 1\nnoise = 0.03\nmax_tokens = 2048\n".to_owned()
}

fn model(name: &str, count: usize, tpot: u32) -> String {
    format!(
        "[[model]]\nname = \"{name}\"\ncount = {count}\nttft = \"500ms\"\ntpot = \"{tpot}ms\"\ncontext = 16384\nweights_gb = 13.5\n\
         cache_kb_per_token = 512\nstep = {STEP}\n"
    )
}

fn one(tpot: u32, memory: f64, requests: &str) -> String {
    let gpu = format!("[[gpu]]\nmemory_gb = {memory}\n");
    head() + &gpu + &model("m", 1, tpot) + requests
}

/// Two models on each GPU, the popular ones apart: by Zipf's law with exponent 0.9.
fn eight(tpot: u32, requests: &str) -> String {
    let mut text = head() + "zipf = 0.9\n";
    for (first, second) in [(1, 8), (2, 7), (3, 6), (4, 5)] {
        let _ = write!(text, "[[gpu]]\nmemory_gb = 126.9\nmodels = [\"m-{first}\", \"m-{second}\"]\n");
    }
    text + &model("m", 8, tpot) + requests
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let mut results: Results = match std::fs::read_to_string(&arguments.json) {
        Ok(text) => {
            serde_json::from_str(&text).map_err(|error| format!("read {}: {error}", arguments.json.display()))?
        }
        Err(_) => Results::default(),
    };
    results.version = format!("weft {}", env!("CARGO_PKG_VERSION"));
    results.machine = machine();
    results.date = arguments.date.clone();
    results.command = std::env::args().skip(1).fold("generation".to_owned(), |line, word| line + " " + &word);
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()));
    for (name, text) in scenarios(arguments).iter().filter(|_| !arguments.show) {
        let open = |file: &str| read(&arguments.folder.join(file));
        let scenario = parse(name, text, &open).map_err(|error| format!("read {error}"))?;
        let mut cell = results.cells.remove(name).unwrap_or_default();
        fill(arguments, &scenario, &mut cell);
        eprintln!("{}", line(name, &cell));
        results.cells.insert(name.clone(), cell);
        let text = serde_json::to_string(&results).map_err(|error| format!("write results: {error}"))?;
        // A line for each run, so that a change shows where it is.
        let text = text.replace("},{", "},\n{").replace("},\"", "},\n\"");
        std::fs::write(&arguments.json, text)
            .map_err(|error| format!("write {}: {error}", arguments.json.display()))?;
    }
    let names: Vec<String> = results.cells.keys().filter(|name| name.contains(&arguments.only)).cloned().collect();
    let page = page(&results, &names);
    print!("{page}");
    if let Some(path) = &arguments.page {
        std::fs::write(path, page).map_err(|error| format!("write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Measures what a cell does not hold yet.
fn fill(arguments: &Arguments, scenario: &Scenario, cell: &mut Cell) {
    cell.bound = bound(scenario);
    let missing = |known: bool, name: &String| !known || arguments.redo.contains(name);
    let searched: Vec<String> =
        arguments.policies.iter().filter(|name| missing(cell.goodput.contains_key(*name), name)).cloned().collect();
    for (name, found) in searched.iter().zip(map(arguments.threads, &searched, |name| {
        goodput(&Scenario { duration: short(scenario), ..scenario.clone() }, name, LIMIT, PRECISION).average
    })) {
        cell.goodput.insert(name.clone(), (found * 1e3).round() / 1e3);
    }
    let others = cell.goodput.iter().filter(|(name, _)| *name != "weft").map(|(_, rate)| *rate);
    let best = others.fold(0.0, f64::max);
    if best != cell.best {
        cell.runs.clear();
        cell.best = best;
    }
    let base = if best > 0.0 { best } else { cell.bound / 2.0 };
    let running: Vec<String> =
        arguments.policies.iter().filter(|name| missing(cell.runs.contains_key(*name), name)).cloned().collect();
    let jobs: Vec<(String, f64)> =
        running.iter().flat_map(|name| LOADS.map(|part| (name.clone(), part * base))).collect();
    let runs = map(arguments.threads, &jobs, |(name, rate)| {
        let scenario = Scenario { rate: *rate, duration: short(scenario), ..scenario.clone() };
        Run::of(&run(&scenario, name).expect("the policy exists"))
    });
    for (name, runs) in running.iter().zip(runs.chunks(LOADS.len())) {
        cell.runs.insert(name.clone(), runs.to_vec());
    }
    let running: Vec<String> =
        arguments.policies.iter().filter(|name| missing(cell.parts.contains_key(*name), name)).cloned().collect();
    let jobs: Vec<(String, f64)> =
        running.iter().flat_map(|name| PARTS.map(|part| (name.clone(), part * cell.bound))).collect();
    let parts = map(arguments.threads, &jobs, |(name, rate)| {
        let scenario = Scenario { rate: *rate, duration: short(scenario), ..scenario.clone() };
        Run::of(&run(&scenario, name).expect("the policy exists"))
    });
    for (name, parts) in running.iter().zip(parts.chunks(PARTS.len())) {
        cell.parts.insert(name.clone(), parts.to_vec());
    }
}

/// A trace is run to its end; what is drawn, for ten minutes.
fn short(scenario: &Scenario) -> policy::Span {
    match scenario.source {
        sim::generate::Source::Trace(_) => scenario.duration,
        sim::generate::Source::Drawn { .. } => scenario.duration.min(policy::Span::from_secs(600)),
    }
}

/// Independent jobs on some threads, results in the order of the jobs.
fn map<J: Sync, T: Send>(threads: usize, jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let next = Mutex::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = {
                        let mut next = next.lock().expect("nothing panics while it is locked");
                        *next += 1;
                        *next - 1
                    };
                    let Some(job) = jobs.get(index) else { break };
                    let result = work(job);
                    done.lock().expect("nothing panics while it is locked").push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("nothing panics while it is locked");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn machine() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

/// At each load, `weft` over the best of the others.
fn ratios(all: &BTreeMap<String, Vec<Run>>, of: fn(&Run) -> f64) -> Vec<f64> {
    let Some(own) = all.get("weft") else { return Vec::new() };
    let ratio = |(place, own): (usize, &Run)| {
        let others = all.iter().filter(|(name, _)| *name != "weft").filter_map(|(_, runs)| runs.get(place));
        let best = others.map(of).fold(0.0, f64::max);
        // Where nobody serves anything, nobody is better.
        if best > 0.0 { of(own) / best } else { 1.0 }
    };
    own.iter().enumerate().map(ratio).collect()
}

/// GPU time of `weft` and of the eager baseline at half load.
fn busy(cell: &Cell) -> Option<(f64, f64)> {
    Some((cell.runs.get("weft")?.get(HALF)?.busy, cell.runs.get(EAGER)?.get(HALF)?.busy))
}

fn line(name: &str, cell: &Cell) -> String {
    let least = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
    let own = cell.goodput.get("weft").copied().unwrap_or(f64::NAN);
    let (weft, eager) = busy(cell).unwrap_or((f64::NAN, f64::NAN));
    let rounded = |values: Vec<f64>| values.iter().map(|ratio| (ratio * 1e3).round() / 1e3).collect::<Vec<_>>();
    format!(
        "{name}: bound {:.2}, 99% at {own:.2} against {:.2}, loads {:?}, parts {:?}, by mean at least {:.3} {:.3}, busy {weft:.3} \
         against {eager:.3} = {:.2}",
        cell.bound,
        cell.best,
        rounded(ratios(&cell.runs, |run| run.good)),
        rounded(ratios(&cell.parts, |run| run.good)),
        least(ratios(&cell.runs, |run| run.good_mean_tpot)),
        least(ratios(&cell.parts, |run| run.good_mean_tpot)),
        weft / eager
    )
}

fn page(results: &Results, names: &[String]) -> String {
    let mut text = String::from(
        "# Generated text: tokens on time\n\n<!-- Written by the example `generation` of weft-sim; the notes are in its source. -->\n\n",
    );
    let Results { command, version, machine, date, .. } = results;
    let _ = writeln!(text, "- Command: `{command}`\n- Version: {version}\n- Machine: {machine}\n- Date: {date}\n");
    text.push_str(NOTES);
    let cells = || names.iter().filter_map(|name| Some((name, results.cells.get(name)?)));
    let _ = writeln!(text, "\n## Highest rate with 99% good, requests/s\n");
    let _ = writeln!(text, "| | {} | weft over the best other | no policy could |", NAMES.join(" | "));
    let _ = writeln!(text, "|---|{}---:|---:|", "---:|".repeat(NAMES.len()));
    for (name, cell) in cells() {
        let rates: String = NAMES
            .iter()
            .map(|policy| cell.goodput.get(*policy).map_or("– | ".to_owned(), |rate| format!("{rate:.2} | ")))
            .collect();
        let own = cell.goodput.get("weft").copied().unwrap_or(f64::NAN);
        let ratio = if cell.best > 0.0 { format!("{:.2}", own / cell.best) } else { "–".to_owned() };
        let _ = writeln!(text, "| {name} | {rates}{ratio} | {:.2} |", cell.bound);
    }
    let strict: fn(&Run) -> f64 = |run| run.good;
    let mean: fn(&Run) -> f64 = |run| run.good_mean_tpot;
    let capacity = "Load 1 is the highest rate at which the best of the others has 99% good.";
    let parts = "Parts of the rate that no policy could exceed.";
    for (title, what, of, by_load) in [
        ("Goodput of weft over the best other, by load", capacity, strict, true),
        ("The same if only the mean time between tokens counts", capacity, mean, true),
        ("Goodput of weft over the best other, by part of the bound", parts, strict, false),
        ("The same if only the mean time between tokens counts, by part of the bound", parts, mean, false),
    ] {
        let _ = writeln!(text, "\n## {title}\n\n{what}\n");
        let loads = if by_load { &LOADS[..] } else { &PARTS[..] };
        let loads: Vec<String> = loads.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "| | {} | least |", loads.join(" | "));
        let _ = writeln!(text, "|---|{}---:|", "---:|".repeat(loads.len()));
        for (name, cell) in cells() {
            let found = ratios(if by_load { &cell.runs } else { &cell.parts }, of);
            let least = found.iter().copied().fold(f64::INFINITY, f64::min);
            let shown: Vec<String> = found.iter().map(|ratio| format!("{ratio:.3}")).collect();
            let _ = writeln!(text, "| {name} | {} | {least:.3} |", shown.join(" | "));
        }
    }
    let _ = writeln!(text, "\n## At half load\n");
    let _ = writeln!(
        text,
        "Half load is half of the highest rate at which the best of the others has 99% good. *Work* is what the requests take without \
         floors, which no policy can save.\n"
    );
    let _ = writeln!(
        text,
        "| | requests/s | busy: weft | {EAGER} | weft over {EAGER} | work | steps/s: weft | {EAGER} | good: weft | {EAGER} |"
    );
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, cell) in cells() {
        let (Some(own), Some(eager)) = (cell.runs.get("weft"), cell.runs.get(EAGER)) else { continue };
        let (own, eager) = (own[HALF], eager[HALF]);
        let _ = writeln!(
            text,
            "| {name} | {:.2} | {:.1}% | {:.1}% | {:.2} | {:.1}% | {:.0} | {:.0} | {:.2}% | {:.2}% |",
            own.rate,
            own.busy * 100.0,
            eager.busy * 100.0,
            own.busy / eager.busy,
            own.rate / cell.bound * 100.0,
            own.steps,
            eager.steps,
            own.good * 100.0,
            eager.good * 100.0
        );
    }
    text
}

/// What the page says before the tables.
const NOTES: &str = include_str!("generation/notes.md");
