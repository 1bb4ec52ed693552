//! Counts kept while a run goes on. Only requests that were intended in the measured part are counted.

use crate::client::{Failure, FailureKind, Outcome};
use hdrhistogram::Histogram;
use policy::Span;
use std::collections::BTreeMap;

/// Different reasons that are told apart; more than this are counted together.
const REASONS_MAX: usize = 32;
const OTHER_REASONS: &str = "other reasons";

/// A request whose outcome is known.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) model: usize,
    pub(crate) outcome: Outcome,
    /// Whether it was sent at all.
    pub(crate) sent: bool,
    /// From its intended time until it was sent.
    pub(crate) lateness: Span,
    /// From its intended time to the last byte of its answer.
    pub(crate) latency: Span,
}

/// Counts of everything.
#[derive(Debug)]
pub(crate) struct Tally {
    objective: Span,
    pub(crate) models: Vec<ModelTally>,
    pub(crate) lateness: Histogram<u64>,
    /// Since the last look, warm-up included.
    recent: Recent,
}

/// Counts of one model.
#[derive(Debug)]
pub(crate) struct ModelTally {
    pub(crate) offered: u64,
    pub(crate) unsent: u64,
    pub(crate) good: u64,
    pub(crate) late: u64,
    /// By status and reason.
    pub(crate) refused: BTreeMap<(u16, String), u64>,
    /// By kind and reason.
    pub(crate) failed: BTreeMap<(FailureKind, String), u64>,
    /// In microseconds, of all that were answered.
    pub(crate) latency: Histogram<u64>,
    /// In microseconds, of those that were answered within the objective.
    pub(crate) good_latency: Histogram<u64>,
    /// In microseconds, until a refusal came.
    pub(crate) refusal_latency: Histogram<u64>,
}

#[derive(Debug)]
struct Recent {
    good: u64,
    late: u64,
    refused: u64,
    failed: u64,
    latency: Histogram<u64>,
}

/// The last second or so, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Since the start of the run.
    pub elapsed: Span,
    /// Whether the measured part has begun.
    pub measured: bool,
    /// Requests a second whose outcome became known.
    pub done_rps: f64,
    /// Requests a second answered within the objective.
    pub good_rps: f64,
    /// Requests a second answered after it.
    pub late_rps: f64,
    /// Requests a second refused.
    pub refused_rps: f64,
    /// Requests a second without an answer.
    pub error_rps: f64,
    /// 99th percentile of the latency of those answered.
    pub latency_ms_p99: f64,
}

/// A histogram of microseconds. It grows as needed.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are a valid precision")
}

fn record(histogram: &mut Histogram<u64>, span: Span) {
    // To the nearest, since lateness is often less than one.
    histogram.record((span.nanos() + 500) / 1_000).expect("a histogram grows as needed");
}

impl Tally {
    pub(crate) fn new(models: usize, objective: Span) -> Tally {
        Tally {
            objective,
            models: (0..models).map(|_| ModelTally::new()).collect(),
            lateness: histogram(),
            recent: Recent::new(),
        }
    }

    /// Takes note of a request whose outcome is known.
    pub(crate) fn done(&mut self, done: Done, measured: bool) {
        let model = &mut self.models[done.model];
        let recent = &mut self.recent;
        if measured {
            record(&mut self.lateness, done.lateness);
            model.unsent += u64::from(!done.sent);
        }
        match done.outcome {
            Outcome::Answered => {
                let good = done.latency <= self.objective;
                *(if good { &mut recent.good } else { &mut recent.late }) += 1;
                record(&mut recent.latency, done.latency);
                if !measured {
                    return;
                }
                record(&mut model.latency, done.latency);
                if good {
                    model.good += 1;
                    record(&mut model.good_latency, done.latency);
                } else {
                    model.late += 1;
                }
            }
            Outcome::Refused { status, reason } => {
                recent.refused += 1;
                if measured {
                    record(&mut model.refusal_latency, done.latency);
                    count(&mut model.refused, status, reason);
                }
            }
            Outcome::Failed(Failure { kind, reason }) => {
                recent.failed += 1;
                if measured {
                    count(&mut model.failed, kind, reason);
                }
            }
        }
    }

    /// Counts requests whose outcome will not be known any more.
    pub(crate) fn cut_off(&mut self) {
        for model in &mut self.models {
            let known = model.good + model.late + sum(&model.refused) + sum(&model.failed);
            if model.offered > known {
                let reason = "still under way when the run was cut off".to_owned();
                *model.failed.entry((FailureKind::Unanswered, reason)).or_default() += model.offered - known;
            }
        }
    }

    /// What happened since the last look, `elapsed` after the start and `since` after that look.
    pub(crate) fn look(&mut self, elapsed: Span, since: Span, measured: bool) -> Moment {
        let recent = std::mem::replace(&mut self.recent, Recent::new());
        let rate = |count: u64| count as f64 / since.seconds().max(1e-9);
        Moment {
            elapsed,
            measured,
            done_rps: rate(recent.good + recent.late + recent.refused + recent.failed),
            good_rps: rate(recent.good),
            late_rps: rate(recent.late),
            refused_rps: rate(recent.refused),
            error_rps: rate(recent.failed),
            latency_ms_p99: recent.latency.value_at_quantile(0.99) as f64 / 1e3,
        }
    }
}

impl ModelTally {
    pub(crate) fn new() -> ModelTally {
        ModelTally {
            offered: 0,
            unsent: 0,
            good: 0,
            late: 0,
            refused: BTreeMap::new(),
            failed: BTreeMap::new(),
            latency: histogram(),
            good_latency: histogram(),
            refusal_latency: histogram(),
        }
    }

    /// Adds another model's counts.
    pub(crate) fn add(&mut self, other: &ModelTally) {
        self.offered += other.offered;
        self.unsent += other.unsent;
        self.good += other.good;
        self.late += other.late;
        for (key, count) in &other.refused {
            *self.refused.entry(key.clone()).or_default() += count;
        }
        for (key, count) in &other.failed {
            *self.failed.entry(key.clone()).or_default() += count;
        }
        for (own, other) in [
            (&mut self.latency, &other.latency),
            (&mut self.good_latency, &other.good_latency),
            (&mut self.refusal_latency, &other.refusal_latency),
        ] {
            own.add(other).expect("a histogram grows as needed");
        }
    }
}

impl Recent {
    fn new() -> Recent {
        Recent { good: 0, late: 0, refused: 0, failed: 0, latency: histogram() }
    }
}

pub(crate) fn sum<K>(counts: &BTreeMap<K, u64>) -> u64 {
    counts.values().sum()
}

/// Counts by reason. A server that says something new each time does not fill the memory.
fn count<K: Ord>(counts: &mut BTreeMap<(K, String), u64>, kind: K, reason: String) {
    let key = (kind, reason);
    let room = counts.len() < REASONS_MAX || counts.contains_key(&key);
    let key = if room { key } else { (key.0, OTHER_REASONS.to_owned()) };
    *counts.entry(key).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(outcome: Outcome, latency: u64) -> Done {
        Done { model: 0, outcome, sent: true, lateness: Span::ZERO, latency: Span::from_millis(latency) }
    }

    #[test]
    fn every_request_has_one_outcome() {
        let mut tally = Tally::new(1, Span::from_millis(100));
        tally.models[0].offered = 6;
        for latency in [1, 100, 101] {
            tally.done(done(Outcome::Answered, latency), true);
        }
        tally.done(done(Outcome::Refused { status: 429, reason: "full".into() }, 1), true);
        tally.done(done(Outcome::Failed(Failure::protocol("nonsense")), 1), true);
        tally.done(done(Outcome::Answered, 1), false);
        tally.cut_off();
        let model = &tally.models[0];
        assert_eq!((model.good, model.late, sum(&model.refused), sum(&model.failed)), (2, 1, 1, 2));
        assert_eq!(tally.lateness.len(), 5);
        let moment = tally.look(Span::from_secs(1), Span::from_secs(1), true);
        assert_eq!((moment.good_rps, moment.done_rps), (3.0, 6.0));
        assert_eq!(tally.look(Span::from_secs(2), Span::from_secs(1), true).done_rps, 0.0);
    }

    #[test]
    fn reasons_without_an_end_are_counted_together() {
        let mut counts = BTreeMap::new();
        for number in 0..1_000 {
            count(&mut counts, 500u16, format!("reason {number}"));
        }
        assert_eq!((counts.len(), sum(&counts)), (REASONS_MAX + 1, 1_000));
    }
}
