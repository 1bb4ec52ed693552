//! The simulator against figures of an H200: every pair of `docs/benchmarks/sharing*.json` of which both programs were seen
//! alone, in the settings that no controller decides (time slices, MPS, MPS with a part of the SMs), and the pairs of
//! `frontier.json` under Weft.
//!
//! `cargo run --release -p weft-sim --example sharing_fidelity [-- FOLDER]` prints a table in Markdown.

#![allow(clippy::print_stdout, reason = "it is a program")]

use policy::Span;
use serde_json::Value;
use sim::sharing::{AtRandom, Pair, Solo, predict};
use std::path::{Path, PathBuf};

/// What is allowed: of the throughput alone, and of the p99 that was measured.
const THROUGHPUT: f64 = 0.05;
const P99: f64 = 0.1;
/// Kernels of programs that launch one graph for each request: as many as the same program launches without graphs, in
/// `sharing-frontier.json`.
const GRAPHS: [(&str, f64); 1] = [("resnet50-graph", 210.0)];
/// The training programs of `frontier.json` alone: kernels of a step, and the part of the time that the GPU is busy. As
/// `sharing-frontier.json` has GPT-2; ViT-L, which has as many layers again, is taken to be like it.
const STEP_KERNELS: f64 = 900.0;
const STEP_BUSY: f64 = 0.95;

/// A figure: what was expected, and what was measured.
#[derive(Clone, Copy)]
struct Figure {
    expected: f64,
    measured: f64,
}

impl Figure {
    fn new(expected: f64, measured: Option<f64>) -> Option<Figure> {
        Some(Figure { expected, measured: measured? })
    }

    fn apart(self) -> f64 {
        (self.expected - self.measured).abs()
    }

    fn off(self) -> f64 {
        (self.expected / self.measured - 1.0).abs()
    }
}

struct Row {
    file: String,
    pair: String,
    setting: String,
    throughput: Option<Figure>,
    best_effort: Option<Figure>,
    p99: Option<Figure>,
    best_effort_at_random: Option<Figure>,
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value["median"].as_f64())
}

fn solo(value: &Value, kernels: Option<f64>) -> Option<Solo> {
    Some(Solo {
        launches: number(&value["launches"])?,
        gpu_ms: number(&value["gpu_ms"])?,
        takes_ms: number(&value["takes_ms"])?,
        kernels,
    })
}

/// A file of `weft bench sharing`.
fn of_bench(path: &Path, results: &Value) -> Vec<Row> {
    let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut rows = Vec::new();
    let at_random = AtRandom {
        load: number(&results["options"]["poisson_load"]).unwrap_or(0.5),
        lead: Span::from_secs_f64(number(&results["options"]["lead_seconds"]).unwrap_or(1.0)),
        duration: Span::from_secs_f64(number(&results["options"]["poisson_seconds"]).unwrap_or(4.0)),
    };
    for figures in results["figures"].as_array().into_iter().flatten() {
        let name = figures["pair"].as_str().unwrap_or_default();
        let solos = results["solos"].as_array().into_iter().flatten().find(|solos| solos["pair"] == name);
        let Some(solos) = solos else { continue };
        let kernels = GRAPHS.iter().find(|(graph, _)| name.starts_with(graph)).map(|(_, kernels)| *kernels);
        let (Some(latency), Some(best_effort)) = (solo(&solos["latency"], kernels), solo(&solos["best_effort"], None))
        else {
            continue;
        };
        // What the program did when nothing counted its launches is what ratios are to.
        let takes_ms = number(&figures["capacity_rps"]).map_or(latency.takes_ms, |rate| 1e3 / rate);
        let pair = Pair { latency: Solo { takes_ms, ..latency }, objective: None, best_effort };
        for setting in figures["settings"].as_array().into_iter().flatten() {
            let named = setting["setting"].as_str().unwrap_or_default();
            let policy = if named == "mps" { "mps-sms-100" } else { named };
            if named != "default" && !named.starts_with("mps") {
                continue;
            }
            let Some(expected) = predict(policy, pair, at_random, 1) else { continue };
            let (closed, poisson) = (&setting["closed"], &setting["poisson"]);
            rows.push(Row {
                file: file.clone(),
                pair: name.to_owned(),
                setting: named.to_owned(),
                throughput: Figure::new(expected.throughput, number(&closed["throughput"])),
                best_effort: Figure::new(expected.best_effort, number(&closed["best_effort"])),
                p99: Figure::new(expected.p99, number(&poisson["p99"])),
                best_effort_at_random: Figure::new(expected.best_effort_at_random, number(&poisson["best_effort"])),
            });
        }
    }
    rows
}

/// The pairs of `frontier.json` whose requests came at random: Weft in temporal mode.
fn of_frontier(results: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for row in results["rows"].as_array().into_iter().flatten().filter(|row| row["how"] == "random") {
        let (program, training) = (row["program"].as_str().unwrap_or_default(), row["training"].as_str().unwrap_or(""));
        let (Some(own), Some(steps)) = (number(&row["own"]), number(&results["steps"][training])) else { continue };
        let takes_ms = own * 1e3;
        let latency = Solo { launches: 1.0, gpu_ms: takes_ms - 0.03, takes_ms, kernels: None };
        let step_ms = 1e3 / steps;
        let best_effort =
            Solo { launches: STEP_KERNELS, gpu_ms: STEP_BUSY * step_ms, takes_ms: step_ms, kernels: None };
        let at_random = AtRandom { load: 0.5, lead: Span::from_secs(12), duration: Span::from_secs(20) };
        let pair = Pair { latency, objective: None, best_effort };
        let Some(expected) = predict("weft-time", pair, at_random, 1) else { continue };
        let (alone, beside) = (&row["alone"], &row["beside"]);
        let ratio = |of: &str| Some(number(&beside[of])? / number(&alone[of])?);
        rows.push(Row {
            file: "frontier".to_owned(),
            pair: format!("{program}-{training}"),
            setting: "weft".to_owned(),
            throughput: None,
            best_effort: None,
            p99: Figure::new(expected.p99, ratio("p99")),
            best_effort_at_random: Figure::new(expected.best_effort_at_random, number(&row["kept"])),
        });
    }
    rows
}

fn cell(figure: Option<Figure>, is_off: impl Fn(Figure) -> bool) -> String {
    figure.map_or("– | –".to_owned(), |figure| {
        let mark = if is_off(figure) { " (*)" } else { "" };
        format!("{:.2} | {:.2}{mark}", figure.expected, figure.measured)
    })
}

fn main() {
    let folder = std::env::args()
        .nth(1)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks"), PathBuf::from);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of figures is there")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut rows = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let read = || serde_json::from_slice::<Value>(&std::fs::read(&path).ok()?).ok();
        match name.as_str() {
            "frontier" => rows.extend(read().map(|results| of_frontier(&results)).unwrap_or_default()),
            _ if name.starts_with("sharing") => {
                rows.extend(read().map(|results| of_bench(&path, &results)).unwrap_or_default());
            }
            _ => {}
        }
    }
    println!(
        "| figures | pair | setting | throughput | measured | best-effort | measured | p99 | measured | best-effort at random | measured |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let rate = |figure: Figure| figure.apart() > THROUGHPUT;
    for row in &rows {
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.file,
            row.pair,
            row.setting,
            cell(row.throughput, rate),
            cell(row.best_effort, rate),
            cell(row.p99, |figure| figure.off() > P99),
            cell(row.best_effort_at_random, rate),
        );
    }
    let within = |figures: Vec<Option<Figure>>, is_off: &dyn Fn(Figure) -> bool| {
        let known: Vec<Figure> = figures.into_iter().flatten().collect();
        format!("{} of {}", known.iter().filter(|figure| !is_off(**figure)).count(), known.len())
    };
    let rates = rows.iter().flat_map(|row| [row.throughput, row.best_effort, row.best_effort_at_random]).collect();
    println!(
        "\nWithin {THROUGHPUT} of the throughput alone: {}. p99 within {:.0}%: {}. (*): not.",
        within(rates, &rate),
        P99 * 100.0,
        within(rows.iter().map(|row| row.p99).collect(), &|figure| figure.off() > P99),
    );
}
