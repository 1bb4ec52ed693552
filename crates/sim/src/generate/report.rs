//! What a run showed. Requests that arrive in the measured time count, wherever they end.

use policy::generation::Reason;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The seed it was run with.
    pub seed: u64,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Requests that came.
    pub requests: u64,
    /// The same, a second.
    pub offered_rps: f64,
    /// Requests with their first token within TTFT and every further one by `first + k * TPOT`, a second.
    pub good_rps: f64,
    /// The same as a part of those that came.
    pub good: f64,
    /// The part with the first token within TTFT and the mean time between tokens within TPOT, which is how the field counts.
    pub good_mean_tpot: f64,
    /// The part that got all tokens, in time or not.
    pub answered: f64,
    /// The part that got its first token late or not at all.
    pub ttft_missed: f64,
    /// The part that got its first token in time and a later one late.
    pub tpot_missed: f64,
    /// Refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Requests whose clients left. They count as good if all was in time until then.
    pub left: u64,
    /// Milliseconds to the first token, of those that got one.
    pub ttft_ms: Quantiles,
    /// Milliseconds between tokens, the mean of each answer of at least two tokens.
    pub tpot_ms: Quantiles,
    /// The part of the measured time that GPUs ran steps, a mean over them.
    pub busy: f64,
    /// The same for each GPU.
    pub gpu_busy: Vec<f64>,
    /// Steps a second, over all GPUs.
    pub steps_per_second: f64,
    /// Sequences in a step.
    pub mean_batch: f64,
    /// Tokens generated a second.
    pub tokens_per_second: f64,
    /// Caches that were dropped to make room.
    pub evictions: u64,
    /// The most of a cache that was ever in use.
    pub cache_peak: f64,
    /// By model.
    pub models: Vec<ModelReport>,
}

/// A model's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Requests that came.
    pub requests: u64,
    /// The part of them that was good.
    pub good: f64,
}

/// Where a distribution lies; nothing where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half are less.
    pub p50: Option<f64>,
    /// Nine in ten are less.
    pub p90: Option<f64>,
    /// Ninety-nine in a hundred are less.
    pub p99: Option<f64>,
}

impl Quantiles {
    pub(super) fn of(values: &mut [f64]) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (values.len() as f64 * part) as usize;
            values.get(place.min(values.len().saturating_sub(1))).map(|value| (value * 1e3).round() / 1e3)
        };
        Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

/// What is counted while a run goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) good: u64,
    pub(super) good_mean: u64,
    pub(super) answered: u64,
    pub(super) ttft_missed: u64,
    pub(super) tpot_missed: u64,
    pub(super) left: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
    pub(super) ttft: Vec<f64>,
    pub(super) tpot: Vec<f64>,
    pub(super) busy: Vec<f64>,
    pub(super) steps: u64,
    pub(super) members: u64,
    pub(super) tokens: u64,
    pub(super) evictions: u64,
    pub(super) models: Vec<(u64, u64)>,
}

impl Tally {
    pub(super) fn refused(&mut self, reason: Reason) {
        *self.refused.entry(reason.name()).or_default() += 1;
    }
}

/// One over the other; nothing of nothing is nothing.
pub(super) fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}
