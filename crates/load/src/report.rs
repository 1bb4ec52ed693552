//! What a run showed.

use crate::Config;
use crate::client::Connections;
use crate::tally::{ModelTally, Tally, sum};
use hdrhistogram::Histogram;
use policy::Span;
use serde::Serialize;

/// The result of a run. Counts and rates are of requests that were intended in the measured part; all times count
/// from a request's intended time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests a second that were to be sent.
    pub offered_rps: f64,
    /// Requests a second that were sent.
    pub sent_rps: f64,
    /// Requests a second answered within the objective.
    pub good_rps: f64,
    /// Requests a second answered after it.
    pub late_rps: f64,
    /// Requests a second answered with a refusal.
    pub refused_rps: f64,
    /// Requests a second without a whole answer.
    pub error_rps: f64,
    /// Requests that were to be sent.
    pub offered: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests answered within the objective.
    pub good: u64,
    /// Requests answered after it.
    pub late: u64,
    /// Requests answered with a refusal.
    pub refused: u64,
    /// Requests without a whole answer, or answered with an error.
    pub errors: u64,
    /// Milliseconds to the last byte of the answer, of all that were answered.
    pub latency_ms: Percentiles,
    /// The same of those that were answered within the objective.
    pub good_latency_ms: Percentiles,
    /// Milliseconds until a refusal came.
    pub refusal_latency_ms: Percentiles,
    /// Milliseconds that the generator sent later than intended.
    pub send_lateness_ms: SendLateness,
    /// The generator was too late for its figures to be those of the server alone.
    pub generator_late: bool,
    /// The most connections that were in use at a time.
    pub connections_max: usize,
    /// How many there may have been; `None` where requests share connections.
    pub connections_limit: Option<usize>,
    /// Refusals by status and reason, the most common first.
    pub refusals: Vec<Refusals>,
    /// Requests without a whole answer by kind and reason, the most common first.
    pub failures: Vec<Failures>,
    /// By model.
    pub models: Vec<ModelReport>,
    /// The objective in milliseconds.
    pub slo_ms: f64,
    /// Seconds measured.
    pub duration_s: f64,
    /// The run was stopped before its time.
    pub stopped_early: bool,
    /// From which times and random inputs were drawn.
    pub seed: u64,
}

/// A distribution in six numbers; zeros when there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
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
    /// Mean.
    pub mean: f64,
}

/// How late the generator was.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SendLateness {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Refusals for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusals {
    /// HTTP's status, or what stands for it.
    pub status: u16,
    /// What the server said, with `#` for numbers.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// Requests without a whole answer, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// `connection`, `protocol`, `unanswered`, or `status` where the server answered with an error.
    pub kind: &'static str,
    /// HTTP's status, or what stands for it, where the server answered.
    pub status: Option<u16>,
    /// What happened.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// One model's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Requests a second that were to be sent.
    pub offered_rps: f64,
    /// Requests a second answered within the objective.
    pub good_rps: f64,
    /// Requests a second answered after it.
    pub late_rps: f64,
    /// Requests a second refused.
    pub refused_rps: f64,
    /// Requests a second without a whole answer.
    pub error_rps: f64,
    /// Milliseconds to the last byte of the answer, of all that were answered.
    pub latency_ms: Percentiles,
    /// The same of those that were answered within the objective.
    pub good_latency_ms: Percentiles,
}

/// Later than this at the 99th percentile is too late.
const LATENESS_MS_MAX: f64 = 1.0;

/// Sums up. `measured` is how long the measured part was in the end.
pub(crate) fn report(config: &Config, tally: &Tally, connections: Connections, measured: Span) -> Report {
    let seconds = measured.seconds().max(1e-9);
    let rate = |count: u64| count as f64 / seconds;
    let mut all = ModelTally::new();
    for model in &tally.models {
        all.add(model);
    }
    let models = config.models.iter().zip(&tally.models).map(|(model, tally)| ModelReport {
        name: model.name.clone(),
        offered_rps: rate(tally.offered),
        good_rps: rate(tally.good),
        late_rps: rate(tally.late),
        refused_rps: rate(sum(&tally.refused)),
        error_rps: rate(sum(&tally.failed)),
        latency_ms: percentiles(&tally.latency),
        good_latency_ms: percentiles(&tally.good_latency),
    });
    let refusal = |((status, reason), count): (&(u16, String), &u64)| Refusals {
        status: *status,
        reason: reason.clone(),
        count: *count,
    };
    let mut refusals: Vec<Refusals> = all.refused.iter().map(refusal).collect();
    refusals.sort_by_key(|refusals| std::cmp::Reverse(refusals.count));
    let failure = |((kind, reason), count): (&(crate::client::FailureKind, String), &u64)| Failures {
        kind: kind.name(),
        status: kind.status(),
        reason: reason.clone(),
        count: *count,
    };
    let mut failures: Vec<Failures> = all.failed.iter().map(failure).collect();
    failures.sort_by_key(|failures| std::cmp::Reverse(failures.count));
    let lateness = percentiles(&tally.lateness);
    let (refused, errors, sent) = (sum(&all.refused), sum(&all.failed), all.offered - all.unsent);
    Report {
        offered_rps: rate(all.offered),
        sent_rps: rate(sent),
        good_rps: rate(all.good),
        late_rps: rate(all.late),
        refused_rps: rate(refused),
        error_rps: rate(errors),
        offered: all.offered,
        sent,
        good: all.good,
        late: all.late,
        refused,
        errors,
        latency_ms: percentiles(&all.latency),
        good_latency_ms: percentiles(&all.good_latency),
        refusal_latency_ms: percentiles(&all.refusal_latency),
        generator_late: lateness.p99 > LATENESS_MS_MAX,
        send_lateness_ms: SendLateness { p50: lateness.p50, p99: lateness.p99, max: lateness.max },
        connections_max: connections.used_max,
        connections_limit: connections.limit,
        refusals,
        failures,
        models: models.collect(),
        slo_ms: config.objective.millis(),
        duration_s: measured.seconds(),
        stopped_early: measured < config.duration,
        seed: config.seed,
    }
}

/// Milliseconds of a histogram of microseconds.
fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    // A value stands for a range of them; no percentile may be above the largest.
    let most = histogram.max();
    let at = |quantile: f64| histogram.value_at_quantile(quantile).min(most) as f64 / 1e3;
    Percentiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: most as f64 / 1e3,
        mean: histogram.mean() / 1e3,
    }
}
