//! How good predictions are: half of what was measured is held back, the other half is learned from, and what is
//! predicted of the first is compared with it.

mod slices;

pub use slices::{Slices, company, strangers};

use super::{Predictor, Tenant};
use crate::surface::{Point, Share, Surface};
use crate::{ModelId, Span};

/// Which half of the measurements is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Every other, like one colour of a chessboard: `true` for the one that has the first.
    EveryOther(bool),
    /// A half that this seed draws.
    Drawn(u64),
}

/// One prediction, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// How far it is off, as a part of what was measured.
    pub error: f64,
    /// What was said of how far off it may be.
    pub uncertainty: f64,
    /// Whether what was measured lies within that.
    pub covered: bool,
}

/// Predictions and what they were worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// Every prediction that was made.
    pub trials: Vec<Trial>,
    /// Measurements that the predictor said it did not know.
    pub unknown: usize,
}

impl Accuracy {
    /// The mean error; `None` without a prediction.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.trials.iter().map(|trial| trial.error).sum();
        if self.trials.is_empty() { None } else { Some(sum / self.trials.len() as f64) }
    }

    /// The largest error.
    pub fn worst(&self) -> Option<f64> {
        self.trials.iter().map(|trial| trial.error).max_by(f64::total_cmp)
    }

    /// The part of predictions whose uncertainty covers what was measured.
    pub fn covered(&self) -> Option<f64> {
        let covered = self.trials.iter().filter(|trial| trial.covered).count();
        if self.trials.is_empty() { None } else { Some(covered as f64 / self.trials.len() as f64) }
    }

    /// The uncertainty that was said of half of the predictions, or less.
    pub fn uncertainty(&self) -> Option<f64> {
        let mut said: Vec<f64> = self.trials.iter().map(|trial| trial.uncertainty).collect();
        said.sort_by(f64::total_cmp);
        said.get(said.len() / 2).copied()
    }

    /// Predictions that are further off than this.
    pub fn beyond(&self, error: f64) -> usize {
        self.trials.iter().filter(|trial| trial.error > error).count()
    }

    /// Adds other predictions.
    pub fn add(&mut self, other: Accuracy) {
        self.trials.extend(other.trials);
        self.unknown += other.unknown;
    }

    fn note(&mut self, predictor: &Predictor, asked: (Tenant, Share, &[Tenant]), measured: Span) {
        match predictor.predict(asked.0, asked.1, asked.2) {
            Ok(estimate) => self.trials.push(Trial {
                error: (estimate.latency.seconds() / measured.seconds() - 1.0).abs(),
                uncertainty: estimate.uncertainty,
                covered: estimate.covers(measured),
            }),
            Err(_) => self.unknown += 1,
        }
    }
}

/// Holds back half of a surface's points and predicts them from the others.
pub fn solo(surface: &Surface, half: Half) -> Accuracy {
    let (batches, shares) = (surface.batches(), surface.shares());
    let place = |point: &Point| {
        let batch = batches.iter().position(|batch| *batch == point.batch).unwrap_or_default();
        batch + shares.iter().position(|share| *share == point.share).unwrap_or_default()
    };
    let held: Vec<bool> = match half {
        Half::EveryOther(first) => surface.points().iter().map(|point| (place(point) % 2 == 0) == first).collect(),
        Half::Drawn(seed) => drawn(seed, surface.points().len()),
    };
    let of = |wanted: bool| {
        let points = surface.points().iter().zip(&held).filter(move |(_, held)| **held == wanted);
        points.map(|(point, _)| *point)
    };
    let mut accuracy = Accuracy::default();
    let Ok(known) = Surface::new(&of(false).collect::<Vec<_>>()) else {
        accuracy.unknown = of(true).count();
        return accuracy;
    };
    let model = ModelId(0);
    let mut predictor = Predictor::default();
    predictor.learn(model, &known);
    for point in of(true) {
        let tenant = Tenant { model, batch: point.batch };
        accuracy.note(&predictor, (tenant, point.share, &[]), point.latency);
    }
    accuracy
}

/// Half of `count` things, the smaller half where it is odd: whether each was drawn.
fn drawn(seed: u64, count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| scrambled(seed, *index as u64));
    let mut drawn = vec![false; count];
    order.iter().take(count / 2).for_each(|index| drawn[*index] = true);
    drawn
}

/// A number that looks random and depends on nothing else: splitmix64 (Steele, Lea and Flood, 2014).
fn scrambled(seed: u64, index: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    bits ^ (bits >> 31)
}
