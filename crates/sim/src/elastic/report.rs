//! What a run showed. Everything is counted in the measured time alone.

use serde::Serialize;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The seed it was run with.
    pub seed: u64,
    /// Requests that came.
    pub requests: u64,
    /// The part of them that was not answered in time: late, dropped or refused.
    pub violations: f64,
    /// GPUs with anything on them, summed over time.
    pub gpu_seconds: f64,
    /// GPUs in use at the busiest time.
    pub peak_gpus: usize,
    /// The part of those GPU seconds that nobody computed in: neither batches, at what is in them, nor training.
    pub fragmentation: f64,
    /// Workers that were started.
    pub cold_starts: u64,
    /// Workers that there was no room for.
    pub unplaced: u64,
    /// What training did of what it does alone, a mean over jobs; nothing where nothing trains.
    pub training: Option<f64>,
    /// Requests answered in time, a second.
    pub throughput: f64,
    /// The same for each GPU in use.
    pub throughput_per_gpu: f64,
    /// What training did for each GPU in use: GPUs' worth of training alone over GPUs.
    pub training_per_gpu: f64,
    /// By function.
    pub functions: Vec<FunctionReport>,
    /// By job.
    pub jobs: Vec<JobReport>,
    /// Over time.
    pub samples: Vec<Sample>,
}

/// A function's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionReport {
    /// Its name.
    pub name: String,
    /// Requests that came.
    pub requests: u64,
    /// The part of them that was not answered in time.
    pub violations: f64,
    /// Requests that found no worker, ready or starting.
    pub met_nobody: u64,
    /// Milliseconds from arrival to answer, of those that were answered: median.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Workers, starting ones included, on average.
    pub workers: f64,
    /// Requests in a batch, on average.
    pub batch: f64,
    /// Workers that were started.
    pub cold_starts: u64,
}

/// A training job's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// What it did of what it does alone.
    pub speed: f64,
}

/// A stretch of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When it begins, in seconds from the start of what is measured.
    pub second: f64,
    /// Requests a second that came.
    pub rate: f64,
    /// The part of those answered or refused in it that was not in time.
    pub violations: f64,
    /// GPUs in use, at its end.
    pub gpus: usize,
    /// Workers, starting ones included, at its end.
    pub workers: usize,
    /// What training does at its end, of what it does alone.
    pub training: f64,
}

/// What is kept of one function while a run goes on.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) late: u64,
    pub(super) met_nobody: u64,
    pub(super) latencies: hdrhistogram::Histogram<u32>,
    pub(super) worker_seconds: f64,
    pub(super) batches: u64,
    pub(super) batched: u64,
    pub(super) cold_starts: u64,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            requests: 0,
            late: 0,
            met_nobody: 0,
            // Microseconds, to a part in a thousand.
            latencies: hdrhistogram::Histogram::new(3).expect("three digits can be kept"),
            worker_seconds: 0.0,
            batches: 0,
            batched: 0,
            cold_starts: 0,
        }
    }

    pub(super) fn report(&self, name: &str, seconds: f64) -> FunctionReport {
        let at = |part: f64| (!self.latencies.is_empty()).then(|| self.latencies.value_at_quantile(part) as f64 / 1e3);
        FunctionReport {
            name: name.to_owned(),
            requests: self.requests,
            violations: part(self.late as f64, self.requests as f64),
            met_nobody: self.met_nobody,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            workers: self.worker_seconds / seconds,
            batch: part(self.batched as f64, self.batches as f64),
            cold_starts: self.cold_starts,
        }
    }
}

/// One over the other; nothing of nothing is nothing.
pub(super) fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}
