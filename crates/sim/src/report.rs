//! What a run showed.

use crate::Scenario;
use hdrhistogram::Histogram;
use policy::{Reason, Span};
use serde::Serialize;

/// The result of a run. Counts are of requests that arrived in the measured part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The seed it was run with.
    pub seed: u64,
    /// Requests a second that came.
    pub offered_rps: f64,
    /// Requests a second answered within their objective.
    pub good_rps: f64,
    /// Fraction of requests that were late, refused or lost.
    pub bad_average: f64,
    /// The same for the model that fared worst.
    pub bad_worst: f64,
    /// Its name.
    pub worst_model: String,
    /// Bad requests by cause, as fractions of all.
    pub bad_by_cause: Causes,
    /// Requests per batch.
    pub mean_batch: f64,
    /// The batch size that a request saw: percentiles over requests.
    pub batch_size: Percentiles,
    /// Milliseconds from arrival to the start of the batch, over requests that were run.
    pub queueing_ms: Percentiles,
    /// Milliseconds from arrival to answer, over requests that were run.
    pub latency_ms: Percentiles,
    /// Fraction of the measured time each GPU was busy, by id.
    pub gpu_busy: Vec<f64>,
    /// No policy could have answered more requests a second in time.
    pub bound_rps: f64,
    /// The part of that bound that was reached.
    pub bound_fraction: f64,
    /// By model.
    pub models: Vec<ModelReport>,
    /// Requests simulated, warm-up included.
    pub requests: u64,
    /// Batches run, warm-up included.
    pub batches: u64,
    /// The run was cut short because it was certain to be bad; its figures are of the part that was run.
    pub gave_up: bool,
}

/// Bad requests by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Causes {
    /// Answered after the objective.
    pub late: f64,
    /// Refused: could not have been on time any more.
    pub too_late: f64,
    /// Refused so that a batch of others could be on time.
    pub sacrificed: f64,
    /// Refused: its GPU died.
    pub gpu_lost: f64,
}

/// A distribution in six numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

/// One model's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Requests a second that came.
    pub offered_rps: f64,
    /// Fraction that was bad.
    pub bad: f64,
    /// Requests per batch.
    pub mean_batch: f64,
}

/// Counts of one model.
#[derive(Clone, Debug, Default)]
struct Tally {
    offered: u64,
    good: u64,
    late: u64,
    refused: [u64; Reason::ALL.len()],
    batches: u64,
    batched: u64,
}

impl Tally {
    fn bad(&self) -> u64 {
        self.late + self.refused.iter().sum::<u64>()
    }
}

/// Counts kept while a run goes on.
#[derive(Debug)]
pub(crate) struct Tallies {
    models: Vec<Tally>,
    batch_size: Histogram<u64>,
    queueing: Histogram<u64>,
    latency: Histogram<u64>,
    pub(crate) busy: Vec<Span>,
    pub(crate) requests: u64,
    pub(crate) batches: u64,
    bad: u64,
}

impl Tallies {
    pub(crate) fn new(models: usize, gpus: usize) -> Tallies {
        let histogram = || Histogram::new(3).expect("three digits are a valid precision");
        Tallies {
            models: vec![Tally::default(); models],
            batch_size: histogram(),
            queueing: histogram(),
            latency: histogram(),
            busy: vec![Span::ZERO; gpus],
            requests: 0,
            batches: 0,
            bad: 0,
        }
    }

    pub(crate) fn offered(&mut self, model: usize) {
        self.models[model].offered += 1;
    }

    pub(crate) fn refused(&mut self, model: usize, reason: Reason) {
        self.models[model].refused[reason as usize] += 1;
        self.bad += 1;
    }

    pub(crate) fn answered(&mut self, model: usize, on_time: bool, queueing: Span, latency: Span) {
        let tally = &mut self.models[model];
        tally.batched += 1;
        if on_time {
            tally.good += 1;
        } else {
            tally.late += 1;
            self.bad += 1;
        }
        // Microseconds are finer than anyone reads and keep the histograms small enough for the cache.
        for (histogram, span) in [(&mut self.queueing, queueing), (&mut self.latency, latency)] {
            // Recording with saturation would not let the histogram grow.
            histogram.record(span.nanos() / 1_000).expect("a histogram grows as needed");
        }
    }

    /// A batch of this size, of which so many requests are counted.
    pub(crate) fn batch(&mut self, model: usize, size: usize, counted: u64) {
        self.models[model].batches += 1;
        self.batch_size.record_n(size as u64, counted).expect("a histogram grows as needed");
    }

    /// Bad requests so far.
    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    pub(crate) fn report(&self, scenario: &Scenario, measured: Span, gave_up: bool) -> Report {
        let seconds = measured.seconds().max(f64::MIN_POSITIVE);
        let sum = |of: fn(&Tally) -> u64| self.models.iter().map(of).sum::<u64>();
        let (offered, good, bad) = (sum(|tally| tally.offered), sum(|tally| tally.good), sum(Tally::bad));
        let of_all = |count: u64| ratio(count, offered);
        let refused = |reason: Reason| of_all(self.models.iter().map(|tally| tally.refused[reason as usize]).sum());
        let models = scenario.models.iter().zip(&self.models).map(|(model, tally)| ModelReport {
            name: model.name.clone(),
            offered_rps: tally.offered as f64 / seconds,
            bad: ratio(tally.bad(), tally.offered),
            mean_batch: ratio(tally.batched, tally.batches),
        });
        let models: Vec<ModelReport> = models.collect();
        let worst = models.iter().reduce(|worst, model| if model.bad > worst.bad { model } else { worst });
        let good_rps = good as f64 / seconds;
        let offered_rps = offered as f64 / seconds;
        // What came strays from what was asked for, so the bound is on what came.
        let came: Vec<f64> = models.iter().map(|model| model.offered_rps).collect();
        let bound_rps = crate::bound::good_rate_of(scenario, &came);
        // All that came, but for rounding.
        let bound_rps = if bound_rps > offered_rps * (1.0 - 1e-9) { offered_rps } else { bound_rps };
        Report {
            policy: scenario.policy.clone(),
            seed: scenario.seed,
            offered_rps,
            good_rps,
            bad_average: of_all(bad),
            bad_worst: worst.map_or(0.0, |model| model.bad),
            worst_model: worst.map_or_else(String::new, |model| model.name.clone()),
            bad_by_cause: Causes {
                late: of_all(sum(|tally| tally.late)),
                too_late: refused(Reason::TooLate),
                sacrificed: refused(Reason::Sacrificed),
                gpu_lost: refused(Reason::GpuLost),
            },
            mean_batch: ratio(sum(|tally| tally.batched), sum(|tally| tally.batches)),
            batch_size: percentiles(&self.batch_size, 1.0),
            queueing_ms: percentiles(&self.queueing, 1e-3),
            latency_ms: percentiles(&self.latency, 1e-3),
            gpu_busy: self.busy.iter().map(|busy| busy.seconds() / seconds).collect(),
            bound_rps,
            bound_fraction: if bound_rps > 0.0 { good_rps / bound_rps } else { 0.0 },
            models,
            requests: self.requests,
            batches: self.batches,
            gave_up,
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn percentiles(histogram: &Histogram<u64>, unit: f64) -> Percentiles {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 * unit;
    Percentiles {
        mean: histogram.mean() * unit,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 * unit,
    }
}
