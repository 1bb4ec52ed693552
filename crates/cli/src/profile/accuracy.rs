//! `weft profile accuracy`: how good predictions from such measurements are.

use super::file::{text, wrong};
use crate::output::{Misuse, print, print_json};
use anyhow::Result;
use policy::predict::accuracy::{Accuracy, Half, Slices, company, solo, strangers};
use policy::surface::Surface;
use report::columns::{align, row};
use report::numbers::{count, share};
use serde::Serialize;
use std::path::PathBuf;

/// Hold back half of a set of measurements and check how well the other half predicts it.
///
/// Takes grids of one model each, as --from-grid does, and measurements of processes that share MIG slices, with the header
/// "Mig instance,Batch size,Workload Number,Throughput,Latency"; of these it predicts the rows with several processes. It
/// holds back every other point first, then random halves, and for processes that share also all rows of one model, as if
/// that model had never been colocated. Errors are relative to the measured latency. `covered` is the part of points within
/// the stated uncertainty, which should be at least 90%.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Files with measurements; models that share slices are learned in the order of the files
    #[arg(value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,

    /// Number of random halves
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// Print a JSON list with an object for each file and split
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft profile accuracy examples/11-profile/resnet.csv
  weft profile accuracy examples/11-profile/resnet.csv --seeds 100 --json | jq '.[].mean'";

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    model: String,
    /// What is predicted: the model `alone`, or in `company`.
    predicted: &'static str,
    /// What is held back: `every other` point, a half that is `drawn`, or `all` company.
    held: &'static str,
    /// Rows that repeat the one before, digit for digit, which are left out unless `repeats_in`.
    repeats: usize,
    repeats_in: bool,
    predictions: usize,
    /// Points that the predictor says it does not know.
    unknown: usize,
    mean: Option<f64>,
    worst: Option<f64>,
    covered: Option<f64>,
    /// The median of what is stated.
    uncertainty: Option<f64>,
    /// Predictions that are more than 30% off.
    beyond_30_percent: usize,
}

enum Measured {
    Alone(Surface),
    Company(Slices),
}

pub(super) fn main(arguments: &Arguments) -> Result<()> {
    let mut alone = Vec::new();
    let mut together = Vec::new();
    for path in &arguments.paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match read(path)? {
            Measured::Alone(surface) => alone.push((name, surface)),
            Measured::Company(slices) => together.push((name, slices)),
        }
    }
    let (names, slices): (Vec<String>, Vec<Slices>) = together.into_iter().unzip();
    let chessboard: Vec<Half> = [true, false].map(Half::EveryOther).into();
    let drawn: Vec<Half> = (1..=arguments.seeds).map(Half::Drawn).collect();
    let mut lines = Vec::new();
    for (held, halves) in [("every other", chessboard), ("drawn", drawn)] {
        for (name, surface) in &alone {
            let all = sum(halves.iter().map(|half| solo(surface, *half)));
            lines.push(line(name, "alone", held, (0, false), &all));
        }
        for repeats_in in [false, true] {
            // The same again, where nothing repeats.
            if repeats_in && slices.iter().all(|slices| slices.repeats() == 0) {
                continue;
            }
            let runs: Vec<Vec<Accuracy>> = halves.iter().map(|half| company(&slices, *half, repeats_in)).collect();
            for (index, name) in names.iter().enumerate() {
                let all = sum(runs.iter().map(|run| run[index].clone()));
                lines.push(line(name, "company", held, (slices[index].repeats(), repeats_in), &all));
            }
        }
    }
    for (index, all) in strangers(&slices).iter().enumerate() {
        lines.push(line(&names[index], "company", "all", (slices[index].repeats(), false), all));
    }
    match arguments.json {
        true => print_json(&lines),
        false => print(&told(&lines)),
    }
}

fn read(path: &std::path::Path) -> Result<Measured, Misuse> {
    let text = text("measurements", path)?;
    let measured = match text.starts_with("Mig instance,") {
        true => Slices::from_csv(&text).map(Measured::Company),
        false => Surface::from_csv(&text).map(Measured::Alone),
    };
    measured.map_err(|error| wrong("measurements", path, error))
}

fn sum(accuracies: impl Iterator<Item = Accuracy>) -> Accuracy {
    let mut all = Accuracy::default();
    accuracies.for_each(|accuracy| all.add(accuracy));
    all
}

fn line(
    model: &str,
    predicted: &'static str,
    held: &'static str,
    (repeats, repeats_in): (usize, bool),
    all: &Accuracy,
) -> Line {
    Line {
        model: model.to_owned(),
        predicted,
        held,
        repeats,
        repeats_in,
        predictions: all.trials.len(),
        unknown: all.unknown,
        mean: all.mean(),
        worst: all.worst(),
        covered: all.covered(),
        uncertainty: all.uncertainty(),
        beyond_30_percent: all.beyond(0.3),
    }
}

fn told(lines: &[Line]) -> String {
    let heads = ["model", "predicted", "held back", "mean error", "worst", "stated", "covered", "of", "unknown"];
    let mut rows = vec![row(heads)];
    let part = |value: Option<f64>| share(value.unwrap_or(f64::NAN));
    for line in lines {
        let held = if line.repeats_in { format!("{}, repeats too", line.held) } else { line.held.to_owned() };
        let mut cells = vec![line.model.clone(), line.predicted.to_owned(), held];
        cells.extend([line.mean, line.worst, line.uncertainty, line.covered].map(part));
        cells.extend([line.predictions, line.unknown].map(count));
        rows.push(cells);
    }
    align(&rows)
}
