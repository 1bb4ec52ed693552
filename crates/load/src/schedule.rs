//! When which model is asked: decided by the seed alone, before anything is sent.

use crate::ModelShare;
use policy::{Span, Time};
use sim::{Arrivals, Spacing};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shot {
    /// When, from the start of the run.
    pub at: Time,
    /// To which model, by its place in the configuration.
    pub model: usize,
}

/// All requests of a run in order of time: each model's arrivals, merged.
///
/// It is drawn as it is read, so that a long run at a high rate needs no memory; nothing that happens in between can
/// change what is drawn.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Vec<Arrivals>,
    next: BinaryHeap<Reverse<Shot>>,
    end: Time,
}

impl Schedule {
    /// Requests at `rate` a second over all models, for so long.
    pub fn new(models: &[ModelShare], rate: f64, spacing: &Spacing, seed: u64, length: Span) -> Schedule {
        let of_model = |(index, model): (usize, &ModelShare)| Arrivals::new(spacing, index, model.share * rate, seed);
        let mut arrivals: Vec<Arrivals> = models.iter().enumerate().map(of_model).collect();
        let first = arrivals.iter_mut().enumerate().map(|(model, arrivals)| Shot { at: arrivals.first(), model });
        Schedule { next: first.map(Reverse).collect(), arrivals, end: Time::ZERO + length }
    }
}

impl Iterator for Schedule {
    type Item = Shot;

    fn next(&mut self) -> Option<Shot> {
        let mut earliest = self.next.peek_mut()?;
        let shot = earliest.0;
        if shot.at >= self.end {
            return None;
        }
        earliest.0.at = self.arrivals[shot.model].after(shot.at);
        Some(shot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(shares: &[f64], spacing: &Spacing, seed: u64, seconds: u64) -> Vec<Shot> {
        let model = |share: &f64| ModelShare { name: "model".into(), share: *share };
        let models: Vec<ModelShare> = shares.iter().map(model).collect();
        Schedule::new(&models, 2_000.0, spacing, seed, Span::from_secs(seconds)).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        for spacing in [Spacing::Poisson, Spacing::Gamma { shape: 0.5 }, Spacing::Constant] {
            let one = schedule(&[0.25, 0.75], &spacing, 7, 5);
            assert_eq!(one, schedule(&[0.25, 0.75], &spacing, 7, 5));
            assert_ne!(one, schedule(&[0.25, 0.75], &spacing, 8, 5));
            assert!(one.is_sorted());
        }
    }

    #[test]
    fn a_longer_run_starts_the_same() {
        let short = schedule(&[1.0], &Spacing::Poisson, 7, 1);
        assert!(schedule(&[1.0], &Spacing::Poisson, 7, 3).starts_with(&short));
    }

    #[test]
    fn rates_weights_and_burstiness_are_as_asked() {
        let seconds = 100;
        for (spacing, expected) in
            [(Spacing::Poisson, 1.0), (Spacing::Gamma { shape: 0.5 }, 2.0), (Spacing::Constant, 0.0)]
        {
            let shots = schedule(&[0.2, 0.8], &spacing, 3, seconds);
            for (model, share) in [0.2, 0.8].into_iter().enumerate() {
                let times: Vec<f64> =
                    shots.iter().filter(|shot| shot.model == model).map(|shot| shot.at.seconds()).collect();
                let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
                let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
                assert!((mean * share * 2_000.0 - 1.0).abs() < 0.03, "{spacing:?}: {mean}");
                assert!((variance / mean.powi(2) - expected).abs() < 0.1 * expected + 1e-6, "{spacing:?}: {variance}");
            }
        }
    }

    #[test]
    fn a_run_without_traffic_ends() {
        let models = [ModelShare { name: "model".into(), share: 1.0 }];
        assert_eq!(Schedule::new(&models, 0.0, &Spacing::Poisson, 1, Span::from_secs(1)).count(), 0);
    }
}
