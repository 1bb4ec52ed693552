//! How policies do on a family of workloads that nobody tuned on, against the best of the others in each cell.
//!
//! `family FOLDER` measures goodput in every scenario file of a folder (or those named by `--cells`), and how much GPU
//! time and how many GPUs are used at 20, 30 and 50% of capacity (`--load`). Results go to a JSON file as they are
//! found; what the file holds is not measured again, except the policies named by `--redo`. With `--page` the tables are
//! written as a page too.
//!
//! Example: cargo run --release -p weft-sim --example family -- target/family --cells 0..500/12 --requests 60000

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use policy::Span;
use serde::{Deserialize, Serialize};
use sim::{POLICIES, Scenario, Search, bound};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Parts of capacity at which GPU time is compared.
const LOADS: [f64; 3] = [0.2, 0.3, 0.5];
/// A GPU that is busy for less of the time counts as idle.
const IDLE: f64 = 0.01;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    command: String,
    version: String,
    machine: String,
    date: String,
    /// By cell, then by policy.
    goodput: BTreeMap<String, BTreeMap<String, Goodput>>,
    /// By cell, then by policy, then by load.
    load: BTreeMap<String, BTreeMap<String, Vec<Load>>>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Goodput {
    average: f64,
    worst: f64,
}

/// One run at a part of capacity.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Load {
    bad: f64,
    /// GPUs busy, on average.
    busy: f64,
    /// GPUs that did next to nothing.
    idle: usize,
}

struct Arguments {
    folder: PathBuf,
    cells: Vec<usize>,
    policies: Vec<String>,
    redo: Vec<String>,
    /// Name under which results of `weft` are kept and compared.
    subject: String,
    json: PathBuf,
    page: Option<PathBuf>,
    date: String,
    requests: f64,
    precision: f64,
    load: bool,
    show: bool,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let mut given = Arguments {
            folder: PathBuf::new(),
            cells: Vec::new(),
            policies: POLICIES.iter().map(|name| (*name).to_owned()).collect(),
            redo: Vec::new(),
            subject: "weft".to_owned(),
            json: "target/family.json".into(),
            page: None,
            date: String::new(),
            requests: 500_000.0,
            precision: 0.01,
            load: false,
            show: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            let number = |text: String| text.parse::<f64>().map_err(|_| format!("`{text}` is not a number"));
            let names = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--cells" => given.cells = cells(&value()?)?,
                "--policies" => given.policies = names(value()?),
                "--redo" => given.redo = names(value()?),
                "--subject" => given.subject = value()?,
                "--json" => given.json = value()?.into(),
                "--page" => given.page = Some(value()?.into()),
                "--date" => given.date = value()?,
                "--requests" => given.requests = number(value()?)?,
                "--precision" => given.precision = number(value()?)?,
                "--load" => given.load = true,
                "--show" => given.show = true,
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                folder => given.folder = folder.into(),
            }
        }
        Ok(given)
    }
}

/// `3,17,40..80/4`: numbers, and ranges with a step.
fn cells(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is not a cell"));
    let mut cells = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => cells.push(number(part)?),
            Some((first, rest)) => {
                let (end, step) = rest.split_once('/').unwrap_or((rest, "1"));
                cells.extend((number(first)?..number(end)?).step_by(number(step)?.max(1)));
            }
        }
    }
    Ok(cells)
}

fn main() {
    if let Err(problem) = Arguments::read().and_then(|arguments| measure(&arguments)) {
        eprintln!("failed to {problem}");
        std::process::exit(2);
    }
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
    results.command = std::env::args().skip(1).fold("family".to_owned(), |line, word| line + " " + &word);
    let names: Vec<String> = match arguments.cells[..] {
        [] => every_file(&arguments.folder)?,
        _ => arguments.cells.iter().map(|cell| format!("cell-{cell:05}")).collect(),
    };
    for name in names.iter().filter(|_| !arguments.show) {
        let path = arguments.folder.join(format!("{name}.toml"));
        let scenario = shortened(scenario(&path)?, arguments.requests);
        for policy in &arguments.policies {
            let kept = if policy == "weft" { &arguments.subject } else { policy };
            let scenario = Scenario { policy: policy.clone(), ..scenario.clone() };
            let redo = arguments.redo.contains(policy);
            if arguments.load {
                let capacity =
                    capacity(&results, name).ok_or(format!("find the goodput of {name}: measure it first"))?;
                let known = results.load.entry(name.clone()).or_default();
                if redo || !known.contains_key(kept) {
                    known.insert(kept.clone(), LOADS.map(|part| at(&scenario, part * capacity)).to_vec());
                }
            } else {
                let known = results.goodput.entry(name.clone()).or_default();
                if redo || !known.contains_key(kept) {
                    let search = Search { precision: arguments.precision, ..Search::default() };
                    let found = sim::goodput(&scenario, &search);
                    let rounded = |rate: f64| (rate * 10.0).round() / 10.0;
                    known
                        .insert(kept.clone(), Goodput { average: rounded(found.average), worst: rounded(found.worst) });
                }
            }
        }
        let text = serde_json::to_string(&results).map_err(|error| format!("write results: {error}"))?;
        // A line for each cell, so that a change shows where it is.
        let text = text.replace("},\"cell", "},\n\"cell").replace(",\"load\"", ",\n\"load\"");
        std::fs::write(&arguments.json, text)
            .map_err(|error| format!("write {}: {error}", arguments.json.display()))?;
        if !arguments.load {
            eprintln!("{}", row(&results, &arguments.subject, name));
        }
    }
    let page = page(&results, &arguments.subject, &names);
    print!("{page}");
    if let Some(path) = &arguments.page {
        std::fs::write(path, page).map_err(|error| format!("write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn every_file(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("read {}: {error}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    Ok(names)
}

fn scenario(path: &Path) -> Result<Scenario, String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()));
    let folder = path.parent().unwrap_or(Path::new("."));
    sim::parse(&path.display().to_string(), &read(path)?, &|name| read(&folder.join(name)))
        .map_err(|error| format!("read {error}"))
}

/// The scenario over so much time as this many requests at the fluid bound take, between four seconds and its own.
fn shortened(scenario: Scenario, requests: f64) -> Scenario {
    let most = Span::from_secs_f64((requests / bound::goodput(&scenario, 0.01)).max(4.0));
    Scenario { duration: scenario.duration.min(most), ..scenario }
}

/// The most that any policy serves in a cell.
fn capacity(results: &Results, cell: &str) -> Option<f64> {
    results.goodput.get(cell)?.values().map(|found| found.average).max_by(f64::total_cmp)
}

fn at(scenario: &Scenario, rate: f64) -> Load {
    let report = sim::run(&Scenario { rate, ..scenario.clone() });
    let idle = report.gpu_busy.iter().filter(|busy| **busy < IDLE).count();
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    Load { bad: rounded(report.bad_average), busy: rounded(report.gpu_busy.iter().sum()), idle }
}

fn machine() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

/// The subject against the best of the others: average, worst model. Other settings and versions of Weft are no others.
fn ratios(results: &Results, subject: &str, cell: &str) -> Option<[(f64, f64, String); 2]> {
    let cell = results.goodput.get(cell)?;
    let own = cell.get(subject)?;
    let others = || cell.iter().filter(|(name, _)| POLICIES[1..].contains(&name.as_str()));
    let best = |of: fn(&Goodput) -> f64| others().max_by(|left, right| of(left.1).total_cmp(&of(right.1)));
    let against = |of: fn(&Goodput) -> f64| {
        let (name, best) = best(of)?;
        // Where nobody serves anything, nobody is better.
        let ratio = if of(best) > 0.0 { of(own) / of(best) } else { 1.0 };
        Some((ratio, of(own), name.clone()))
    };
    Some([against(|goodput| goodput.average)?, against(|goodput| goodput.worst)?])
}

fn row(results: &Results, subject: &str, cell: &str) -> String {
    match ratios(results, subject, cell) {
        None => format!("{cell}: no {subject}"),
        Some([(average, own, best), (worst, worst_own, worst_best)]) => {
            format!(
                "{cell}: {average:.3} ({own:.0} against {best}), worst model {worst:.3} ({worst_own:.0} against {worst_best})"
            )
        }
    }
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() as f64 - 1.0);
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * (place - place.floor())
}

fn page(results: &Results, subject: &str, names: &[String]) -> String {
    let mut text = String::from("# A family of workloads\n\n<!-- Written by the example `family` of weft-sim. -->\n\n");
    let Results { command, version, machine, date, .. } = results;
    let _ = writeln!(text, "- Command: `{command}`\n- Version: {version}\n- Machine: {machine}\n- Date: {date}\n");
    let subjects: Vec<String> = {
        let known = results
            .goodput
            .values()
            .flat_map(|cell| cell.keys())
            .filter(|name| !POLICIES[1..].contains(&name.as_str()));
        let mut subjects: Vec<String> = known.cloned().collect();
        subjects.sort();
        subjects.dedup();
        subjects
    };
    let _ = writeln!(text, "## Goodput over the best other policy\n");
    let _ = writeln!(
        text,
        "| | cells | worst | tenth percentile | median | below 0.97 | worst model: worst | tenth percentile | median | below 0.97 |"
    );
    let _ = writeln!(text, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for name in &subjects {
        let found: Vec<_> = names.iter().filter_map(|cell| ratios(results, name, cell)).collect();
        if found.is_empty() {
            continue;
        }
        let _ = write!(text, "| {name} | {}", found.len());
        for place in 0..2 {
            let mut sorted: Vec<f64> = found.iter().map(|pair| pair[place].0).collect();
            sorted.sort_by(f64::total_cmp);
            let below = sorted.iter().filter(|ratio| **ratio < 0.97).count();
            let _ = write!(
                text,
                " | {:.3} | {:.3} | {:.3} | {below}",
                sorted[0],
                quantile(&sorted, 0.1),
                quantile(&sorted, 0.5)
            );
        }
        text.push_str(" |\n");
    }
    let mut rows: Vec<_> = names.iter().filter_map(|cell| Some((cell, ratios(results, subject, cell)?))).collect();
    rows.sort_by(|left, right| left.1[0].0.total_cmp(&right.1[0].0));
    let _ = writeln!(
        text,
        "\n| cell | {subject} | over the best other | | worst model | over the best other | |\n|---|---:|---:|---|---:|---:|---|"
    );
    for (cell, [average, worst]) in rows {
        let (ratio, own, best) = average;
        let _ = writeln!(
            text,
            "| {cell} | {own:.0} | {ratio:.3} | {best} | {:.0} | {:.3} | {} |",
            worst.1, worst.0, worst.2
        );
    }
    if !results.load.is_empty() {
        loads(&mut text, results, names);
    }
    text
}

/// GPU time over the least of all other policies that keep 99% good, and whole GPUs idle.
fn loads(text: &mut String, results: &Results, names: &[String]) {
    let _ = writeln!(text, "\n## GPU time over the least of the others that keep 99% good\n");
    let _ = writeln!(
        text,
        "| | load | cells | median | ninth decile | largest | kept 99% good | GPUs idle |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    let known = results.load.values().flat_map(|cell| cell.keys());
    let mut subjects: Vec<&String> = known.collect();
    subjects.sort();
    subjects.dedup();
    for name in subjects {
        for (place, part) in LOADS.iter().enumerate() {
            let (mut found, mut good, mut idle, mut count) = (Vec::new(), 0, 0, 0);
            for cell in names.iter().filter_map(|cell| results.load.get(cell)) {
                let Some(own) = cell.get(name).map(|loads| loads[place]) else { continue };
                let others = cell.iter().filter(|(other, _)| *other != name && POLICIES[1..].contains(&other.as_str()));
                let fine = others.map(|(_, loads)| loads[place]).filter(|load| load.bad <= 0.01);
                count += 1;
                idle += own.idle;
                good += usize::from(own.bad <= 0.01);
                if let Some(least) = fine.map(|load| load.busy).min_by(f64::total_cmp)
                    && own.bad <= 0.01
                {
                    found.push(own.busy / least);
                }
            }
            found.sort_by(f64::total_cmp);
            if found.is_empty() {
                continue;
            }
            let (median, decile) = (quantile(&found, 0.5), quantile(&found, 0.9));
            let largest = found[found.len() - 1];
            let _ = writeln!(
                text,
                "| {name} | {:.0}% | {count} | {median:.3} | {decile:.3} | {largest:.3} | {good} | {idle} |",
                part * 100.0
            );
        }
    }
}
