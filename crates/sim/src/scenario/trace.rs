//! Recorded traffic: a rate that changes slot by slot. A trace starts anew when it ends.
//!
//! - `azure`: a header `HashOwner,HashApp,HashFunction,Trigger,480,481,...` and a row per function with its
//!   invocations in each minute. Function `i` is added to model `i % models`, so every function counts; a
//!   model's share of the traffic is its part of all invocations.
//! - `per-second`: one rate per line, a second each, for all models together.
//!
//! Rows average 1: a model's rate in a slot is its mean rate times the slot's weight.

use super::normalise;
use super::source::{ScenarioError, Source};
use crate::workload::Spacing;
use policy::Span;
use serde::Deserialize;

/// Rows of a model and slots that weigh more than this are typing errors, and sums of them stay finite.
const WEIGHT_MAX: f64 = 1e12;

/// How a trace is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// Invocations by function and minute, as in the Azure Functions traces.
    Azure,
    /// One rate per line, a second each.
    PerSecond,
}

/// What a trace says about the traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The rate slot by slot, relative to its average.
    pub spacing: Spacing,
    /// Requests a second over all models, on average.
    pub rate: f64,
    /// Each model's part of all requests, where the trace says so.
    pub shares: Option<Vec<f64>>,
}

/// Reads a trace for so many models, at the speed it was recorded at. `path` is for messages.
pub fn trace(path: &str, text: &str, format: TraceFormat, models: usize) -> Result<Trace, ScenarioError> {
    read(&Source { file: path, text }, format, 1.0, models)
}

/// Reads a trace, `speedup` times as fast as it was recorded.
pub(super) fn read(source: &Source, format: TraceFormat, speedup: f64, models: usize) -> Result<Trace, ScenarioError> {
    match format {
        TraceFormat::Azure => azure(source, speedup, models),
        TraceFormat::PerSecond => per_second(source, speedup),
    }
}

/// Reads invocations by function and minute, `speedup` times as fast as they were recorded.
fn azure(source: &Source, speedup: f64, models: usize) -> Result<Trace, ScenarioError> {
    const HEADER: &str = "expected a header \"HashOwner,HashApp,HashFunction,Trigger,\" and then a column per minute";
    let header = source.text.lines().next().unwrap_or_default().trim();
    let columns = header.strip_prefix("HashOwner,HashApp,HashFunction,Trigger,");
    let columns = columns.filter(|columns| columns.split(',').all(|minute| minute.trim().parse::<u32>().is_ok()));
    let minutes = columns.ok_or_else(|| source.error_on(1, HEADER))?.split(',').count();

    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut totals = vec![0.0; models];
    for (index, (line, text)) in source.lines().skip(1).enumerate() {
        let found = text.split(',').count();
        if found != minutes + 4 {
            let problem = format!("expected {} cells as in the header, found {found}", minutes + 4);
            return Err(source.error_on(line, problem));
        }
        let model = index % models;
        if rows.len() == model {
            rows.push(vec![0.0; minutes]);
        }
        for (sum, cell) in rows[model].iter_mut().zip(text.split(',').skip(4)) {
            let problem =
                || source.error_on(line, format!("expected a count of invocations, found \"{}\"", cell.trim()));
            let count = f64::from(cell.trim().parse::<u32>().map_err(|_| problem())?);
            *sum += count;
            totals[model] += count;
        }
    }
    let total: f64 = totals.iter().sum();
    if total == 0.0 {
        return Err(source.error_on(0, "no invocations: expected a row of counts per function"));
    }
    for row in &mut rows {
        average_one(row);
    }
    normalise(&mut totals, 1.0);
    let rate = total / (minutes as f64 * 60.0) * speedup;
    Ok(Trace { spacing: Spacing::Trace { slot: slot(60.0, speedup), rows }, rate, shares: Some(totals) })
}

/// Reads one rate per second, `speedup` times as fast as it was recorded.
fn per_second(source: &Source, speedup: f64) -> Result<Trace, ScenarioError> {
    let rates = source.lines().map(|(line, text)| source.number(line, "rate", text, 0.0..=WEIGHT_MAX));
    let mut row: Vec<f64> = rates.collect::<Result<_, _>>()?;
    if row.iter().all(|rate| *rate == 0.0) {
        return Err(source.error_on(0, "no requests: expected one rate per line, one of them above 0"));
    }
    let rate = row.iter().sum::<f64>() / row.len() as f64 * speedup;
    average_one(&mut row);
    Ok(Trace { spacing: Spacing::Trace { slot: slot(1.0, speedup), rows: vec![row] }, rate, shares: None })
}

/// Rows written in the scenario itself; a model takes the row `model % rows`. `Err`: what is wrong with them.
pub(super) fn inline(slot: Span, rows: &[Vec<f64>], models: usize) -> Result<Spacing, String> {
    if !(1..=models).contains(&rows.len()) {
        return Err(format!(
            "rows has {} lists: expected 1 for all models, or up to one for each of {models}",
            rows.len()
        ));
    }
    let sensible = |row: &Vec<f64>| {
        row.iter().all(|weight| (0.0..=WEIGHT_MAX).contains(weight)) && row.iter().any(|weight| *weight > 0.0)
    };
    if let Some(index) = rows.iter().position(|row| !sensible(row)) {
        return Err(format!("list {} of rows: expected weights of 0 to {WEIGHT_MAX}, one of them above 0", index + 1));
    }
    let mut rows = rows.to_vec();
    for row in &mut rows {
        average_one(row);
    }
    Ok(Spacing::Trace { slot, rows })
}

/// The row of a model without traffic is flat: any would do, and every row then averages 1.
fn average_one(row: &mut [f64]) {
    if row.iter().all(|weight| *weight == 0.0) {
        row.fill(1.0);
    }
    normalise(row, row.len() as f64);
}

fn slot(seconds: f64, speedup: f64) -> Span {
    Span::from_secs_f64(seconds / speedup)
}
