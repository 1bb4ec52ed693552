//! Processes of one model that share a slice of a GPU, as ParvaGPU measured them: what company costs.
//!
//! A row that repeats, digit for digit, what one process fewer gave is taken for one whose last process did not start.
//! Such rows are counted and left out, unless they are asked for.

use super::{Accuracy, Half, drawn, scrambled};
use crate::predict::{Predictor, Tenant};
use crate::profile::csv::{batch_size, numbers, rows, seconds};
use crate::surface::{Point, Share, Surface};
use crate::{CsvError, ModelId, Span};

/// Slices of a whole GPU.
const WHOLE: u32 = 7;

const HEAD: &str = "Mig instance,Batch size,Workload Number,Throughput";

/// Measurements of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Slices {
    rows: Vec<Row>,
    alone: Surface,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    share: Share,
    batch: usize,
    processes: usize,
    latency: Span,
    /// Of one process.
    throughput: f64,
    /// It says what one process fewer gave, digit for digit.
    repeats: bool,
}

impl Slices {
    /// Reads rows of slices, batch, processes, throughput of one process and latency.
    pub fn from_csv(text: &str) -> Result<Slices, CsvError> {
        if !text.starts_with(HEAD) {
            return Err(CsvError { line: 1, problem: format!("expected a header \"{HEAD},Latency\"") });
        }
        let mut found: Vec<Row> = Vec::new();
        for (line, cells) in rows(text).skip(1) {
            let [slices, batch, processes, throughput, _rounded] = numbers(line, &cells)?;
            let share = Share::from_percent(slices * 100.0 / f64::from(WHOLE));
            let share = share.ok_or_else(|| CsvError { line, problem: format!("{slices} is no number of slices") })?;
            // A throughput of zero marks a configuration that ran out of memory.
            if throughput > 0.0 {
                let (batch, processes) = (batch_size(line, batch)?, batch_size(line, processes)?);
                let fewer = |row: &Row| (row.share, row.batch, row.processes + 1) == (share, batch, processes);
                let repeats = found.iter().any(|row| fewer(row) && row.throughput == throughput);
                let latency = seconds(line, batch as f64 / throughput)?;
                found.push(Row { share, batch, processes, latency, throughput, repeats });
            }
        }
        let point =
            |row: &Row| Point { batch: row.batch, share: row.share, latency: row.latency, throughput: row.throughput };
        let alone: Vec<Point> = found.iter().filter(|row| row.processes == 1).map(point).collect();
        let alone = Surface::new(&alone).map_err(|error| CsvError { line: 0, problem: error.problem })?;
        let rows = found.into_iter().filter(|row| row.processes > 1).collect();
        Ok(Slices { rows, alone })
    }

    /// What one process does by itself.
    pub fn alone(&self) -> &Surface {
        &self.alone
    }

    /// Rows with several processes that repeat the row with one process fewer.
    pub fn repeats(&self) -> usize {
        self.rows.iter().filter(|row| row.repeats).count()
    }

    /// Rows with several processes.
    pub fn company(&self) -> usize {
        self.rows.len()
    }
}

/// Predicts rows with several processes from all rows with one and from half of the others, which are observed one
/// after the other in an order that looks random, model after model. An accuracy for each model.
///
/// `EveryOther` holds back every other number of processes of each slice and batch, so that most are seen in some
/// company; `Drawn` may leave a slice and batch without any.
pub fn company(models: &[Slices], half: Half, with_repeats: bool) -> Vec<Accuracy> {
    let mut predictor = Predictor::default();
    let mut accuracies = Vec::new();
    for (index, slices) in models.iter().enumerate() {
        let model = ModelId(index as u32);
        predictor.learn(model, &slices.alone);
        let rows: Vec<Row> = slices.rows.iter().copied().filter(|row| with_repeats || !row.repeats).collect();
        let held = held(&rows, half);
        let seed = if let Half::Drawn(seed) = half { seed } else { 0 };
        observe(&mut predictor, model, &rows, |row| !held[row], seed);
        let mut accuracy = Accuracy::default();
        for (row, _) in rows.iter().zip(&held).filter(|(_, held)| **held) {
            accuracy.note_row(&predictor, model, row);
        }
        accuracies.push(accuracy);
    }
    accuracies
}

/// Predicts all rows with several processes of each model from its rows with one alone: what company costs who was never
/// seen in any. How far off it may be is learned from the company of the other models. An accuracy for each model.
pub fn strangers(models: &[Slices]) -> Vec<Accuracy> {
    let id = |index: usize| ModelId(index as u32);
    let rows: Vec<Vec<Row>> =
        models.iter().map(|slices| slices.rows.iter().copied().filter(|row| !row.repeats).collect()).collect();
    let one = |stranger: usize| {
        let mut predictor = Predictor::default();
        for (index, slices) in models.iter().enumerate() {
            predictor.learn(id(index), &slices.alone);
            if index != stranger {
                observe(&mut predictor, id(index), &rows[index], |_| true, 0);
            }
        }
        let mut accuracy = Accuracy::default();
        rows[stranger].iter().for_each(|row| accuracy.note_row(&predictor, id(stranger), row));
        accuracy
    };
    (0..models.len()).map(one).collect()
}

/// Learns from those rows that may be seen, one after the other in an order that looks random.
fn observe(predictor: &mut Predictor, model: ModelId, rows: &[Row], seen: impl Fn(usize) -> bool, seed: u64) {
    let mut order: Vec<usize> = (0..rows.len()).filter(|row| seen(*row)).collect();
    order.sort_by_key(|row| scrambled(!seed, *row as u64));
    for row in order {
        let (tenant, share, neighbours) = rows[row].asked(model);
        // What cannot be placed among the rows with one process cannot be learned from.
        let _ = predictor.observe(tenant, share, &neighbours, rows[row].latency);
    }
}

impl Accuracy {
    fn note_row(&mut self, predictor: &Predictor, model: ModelId, row: &Row) {
        let (tenant, share, neighbours) = row.asked(model);
        self.note(predictor, (tenant, share, &neighbours), row.latency);
    }
}

impl Row {
    fn asked(&self, model: ModelId) -> (Tenant, Share, Vec<Tenant>) {
        let tenant = Tenant { model, batch: self.batch };
        (tenant, self.share, vec![tenant; self.processes - 1])
    }
}

fn held(rows: &[Row], half: Half) -> Vec<bool> {
    let first = match half {
        Half::EveryOther(first) => first,
        Half::Drawn(seed) => return drawn(seed, rows.len()),
    };
    let mut held = Vec::new();
    let places = rows.chunk_by(|left, right| (left.share, left.batch) == (right.share, right.batch));
    for (place, rows) in places.enumerate() {
        held.extend((0..rows.len()).map(|row| ((row + place) % 2 == 0) == first));
    }
    held
}
