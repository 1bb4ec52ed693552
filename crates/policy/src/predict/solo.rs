//! A model alone: what lies between the points of its surface.
//!
//! Straight lines in the batch and in one over the share, which is how latency goes where a GPU is full. A place between
//! points in both directions is estimated both ways, and the flatter way counts more. Two thoughts tame measurements:
//!
//! - What disturbs a measurement makes it slower. A point that lies above one with a larger batch or a smaller share is
//!   taken to be little slower than that one.
//! - Every point is also predicted from all others. How far off those predictions are, for their own idea of how far off
//!   they may be, is the scale of every uncertainty.

use super::Unknown;
use super::quantile::quantile;
use crate::surface::{Point, Share};

/// How far a measurement may be off, as a logarithm.
const NOISE: f64 = 0.02;
/// What part of the way between two points, as a logarithm, a line between them may be off.
const BEND: f64 = 0.25;
/// What part of their difference two ways to estimate add to the uncertainty.
const DISAGREEMENT: f64 = 0.3;
/// A point above one that should be slower is taken for this much slower than it, at most.
const DIP: f64 = 1.05;
/// Scores are taken a little beyond the nine tenths that are promised: points left out one by one have more neighbours
/// left than places between points do.
const COVERED: f64 = 0.95;
/// Points that are left out one by one, about; a large surface tells as much from some as from all.
const LEFT_OUT: usize = 100;
/// The scale where there are too few points to tell.
const SCALE: f64 = 4.0;
/// Work grows with the batch to this power: larger batches use a GPU better.
const WORK: f64 = 0.8;

/// Measurements of a model, ready to be read between.
#[derive(Clone, Debug)]
pub(super) struct Solo {
    /// By batch, then by share.
    cells: Vec<Cell>,
    /// From a prediction's own spread to one that covers.
    scale: f64,
    /// Requests that a batch of one counts for: latency x throughput.
    requests: f64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    batch: usize,
    share: Share,
    seconds: f64,
}

/// A value on a line, and how far off it may be, as a logarithm.
#[derive(Clone, Copy, Debug)]
struct Value {
    at: f64,
    seconds: f64,
    spread: f64,
}

/// What is known of a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    pub(super) log_seconds: f64,
    pub(super) spread: f64,
}

impl Solo {
    pub(super) fn new(points: &[Point]) -> Solo {
        let raw: Vec<Cell> = points.iter().map(cell).collect();
        let mut ratios: Vec<f64> = points.iter().map(requests).collect();
        ratios.sort_by(f64::total_cmp);
        let requests = ratios[ratios.len() / 2];
        let scores = (0..raw.len()).step_by(raw.len() / LEFT_OUT + 1).filter_map(|index| {
            let mut others = raw.clone();
            let Cell { batch, share, seconds } = others.remove(index);
            let alone = Solo { cells: settled(&others), scale: 1.0, requests }.latency(batch, share).ok()?;
            Some((alone.log_seconds - seconds.ln()).abs() / alone.spread)
        });
        let scale = quantile(scores, COVERED).unwrap_or(SCALE);
        Solo { cells: settled(&raw), scale, requests }
    }

    pub(super) fn requests(&self) -> f64 {
        self.requests
    }

    /// How long a batch takes, alone on this share.
    pub(super) fn latency(&self, batch: usize, share: Share) -> Result<Alone, Unknown> {
        let estimate = self.estimate(batch, share).ok_or_else(|| self.unknown(batch, share))?;
        Ok(Alone { log_seconds: estimate.seconds.ln(), spread: estimate.spread * self.scale })
    }

    /// The part of this share that a batch keeps busy, alone: 1 where the share is what limits it.
    ///
    /// The work that is in a batch is at most what any larger batch took, on any smaller share.
    pub(super) fn demand(&self, batch: usize, share: Share) -> Result<f64, Unknown> {
        let size = |share: Share| f64::from(share.permille());
        let took = self.latency(batch, share)?.log_seconds.exp() * size(share);
        let harder = self.cells.iter().filter(|cell| cell.batch >= batch && cell.share <= share);
        let work = harder.map(|cell| cell.seconds * size(cell.share) * (batch as f64 / cell.batch as f64).powf(WORK));
        Ok(work.fold(took, f64::min) / took)
    }

    fn estimate(&self, batch: usize, share: Share) -> Option<Value> {
        let mut rows: Vec<(usize, Value)> = Vec::new();
        for row in self.cells.chunk_by(|left, right| left.batch == right.batch) {
            let line: Vec<Value> = row.iter().map(|cell| cell.by_share()).collect();
            if let Some(value) = between(&line, 1.0 / share.percent()) {
                rows.push((row[0].batch, value));
            }
        }
        let at_batch = |(batch, value): &(usize, Value)| Value { at: *batch as f64, ..*value };
        let own = rows.iter().find(|(of, _)| *of == batch).map(|(_, value)| *value);
        if self.cells.iter().any(|cell| (cell.batch, cell.share) == (batch, share)) {
            return own;
        }
        let others: Vec<Value> = rows.iter().filter(|(of, _)| *of != batch).map(at_batch).collect();
        let across = between(&others, batch as f64);
        match (own, across) {
            (Some(own), Some(across)) => Some(together(own, across)),
            (own, across) => own.or(across),
        }
    }

    fn unknown(&self, batch: usize, share: Share) -> Unknown {
        if self.cells.iter().all(|cell| cell.batch < batch) || self.cells.iter().all(|cell| cell.batch > batch) {
            Unknown::Batch(batch)
        } else if self.cells.iter().all(|cell| cell.share < share) || self.cells.iter().all(|cell| cell.share > share) {
            Unknown::Share(share)
        } else {
            Unknown::Edge(batch, share)
        }
    }
}

impl Cell {
    fn by_share(&self) -> Value {
        Value { at: 1.0 / self.share.percent(), seconds: self.seconds, spread: NOISE }
    }
}

fn cell(point: &Point) -> Cell {
    Cell { batch: point.batch, share: point.share, seconds: point.latency.seconds() }
}

fn requests(point: &Point) -> f64 {
    point.throughput * point.latency.seconds() / point.batch as f64
}

/// Cells with dips filled: none lies far above one that should be slower.
fn settled(cells: &[Cell]) -> Vec<Cell> {
    let settle = |cell: &Cell| {
        let slower = cells.iter().filter(|other| other.batch >= cell.batch && other.share <= cell.share);
        let least = slower.map(|other| other.seconds).fold(f64::INFINITY, f64::min);
        Cell { seconds: cell.seconds.min(least * DIP), ..*cell }
    };
    cells.iter().map(settle).collect()
}

/// The value at a place on a line through the values on both sides of it, which may come in any order.
fn between(line: &[Value], at: f64) -> Option<Value> {
    if let Some(value) = line.iter().find(|value| value.at == at) {
        return Some(*value);
    }
    let below = line.iter().filter(|value| value.at < at).max_by(|left, right| left.at.total_cmp(&right.at))?;
    let above = line.iter().filter(|value| value.at > at).min_by(|left, right| left.at.total_cmp(&right.at))?;
    let along = (at - below.at) / (above.at - below.at);
    let mix = |from: f64, to: f64| from + (to - from) * along;
    let bend = BEND * (below.seconds / above.seconds).ln().abs();
    let spread = bend.hypot(mix(below.spread, above.spread));
    Some(Value { at, seconds: mix(below.seconds, above.seconds), spread })
}

/// One value of two, the surer of which counts more.
fn together(left: Value, right: Value) -> Value {
    let (left_weight, right_weight) = (left.spread.powi(-2), right.spread.powi(-2));
    let weight = left_weight + right_weight;
    let log = (left.seconds.ln() * left_weight + right.seconds.ln() * right_weight) / weight;
    let difference = (left.seconds / right.seconds).ln().abs();
    Value { at: left.at, seconds: log.exp(), spread: weight.sqrt().recip() + DISAGREEMENT * difference }
}
