//! What a run showed.

use policy::Span;
use serde::Serialize;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the policy.
    pub policy: String,
    /// The seed it was run with.
    pub seed: u64,
    /// Part of the time in which the GPU ran a kernel.
    pub gpu_busy: f64,
    /// Part of the time that was lost to changing from one process to another.
    pub gpu_switching: f64,
    /// By tenant.
    pub tenants: Vec<TenantReport>,
}

/// One tenant's part. Requests are those answered in the measured time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantReport {
    /// Its name.
    pub name: String,
    /// Requests answered.
    pub answered: u64,
    /// Requests answered a second.
    pub throughput: f64,
    /// The same over what it is alone on the GPU.
    pub throughput_alone: f64,
    /// Milliseconds from a request's arrival to its answer; `None` when there was none.
    pub completion_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Mean completion time over what it is alone on the GPU.
    pub completion_alone: Option<f64>,
    /// 99th percentile over what it is alone on the GPU.
    pub p99_alone: Option<f64>,
    /// GPU time used, as a part of the time that passed.
    pub gpu_share: f64,
    /// Launches that were made.
    pub launches: u64,
    /// Part of the time that it waited to launch.
    pub held: f64,
}

/// What is kept of one tenant while a run goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) completions: Vec<Span>,
    pub(super) launches: u64,
    pub(super) held: Span,
    /// GPU time used in the measured part.
    pub(super) used: Span,
}

impl Tally {
    pub(super) fn report(mut self, name: &str, measured: Span) -> TenantReport {
        self.completions.sort();
        let count = self.completions.len();
        let total: f64 = self.completions.iter().map(|span| span.millis()).sum();
        let at = |permille: usize| {
            let rank = (count * permille).div_ceil(1_000).max(1) - 1;
            self.completions.get(rank).map(|span| span.millis())
        };
        TenantReport {
            name: name.to_owned(),
            answered: count as u64,
            throughput: count as f64 / measured.seconds(),
            throughput_alone: 1.0,
            completion_ms: (count > 0).then(|| total / count as f64),
            p50_ms: at(500),
            p99_ms: at(990),
            completion_alone: None,
            p99_alone: None,
            gpu_share: self.used.seconds() / measured.seconds(),
            launches: self.launches,
            held: self.held.seconds() / measured.seconds(),
        }
    }
}

impl TenantReport {
    /// Sets this run beside the tenant's run alone.
    pub(super) fn beside(&mut self, alone: &TenantReport) {
        let ratio = |own: Option<f64>, alone: Option<f64>| Some(own? / alone?);
        self.throughput_alone = if alone.throughput > 0.0 { self.throughput / alone.throughput } else { 0.0 };
        self.completion_alone = ratio(self.completion_ms, alone.completion_ms);
        self.p99_alone = ratio(self.p99_ms, alone.p99_ms);
    }
}
