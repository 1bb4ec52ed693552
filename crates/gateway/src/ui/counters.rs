//! One reading of a model's counters, and what happened between two.

use super::latency::{Latencies, Objective, percentiles};
use crate::statistics::{BATCH_BUCKETS, LATENCY_BUCKETS, Refused, Statistics};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of a sample behind its `seq`.
pub(super) const FIELDS: usize = 24;
/// Sizes that the dashboard tells apart; larger batches are counted with the last.
const SIZES: usize = 8;
/// The order in which the dashboard has reasons.
const REASONS: [Refused; 6] = [
    Refused::TooLate,
    Refused::Sacrificed,
    Refused::QueueFull,
    Refused::WorkerDied,
    Refused::Priority,
    Refused::Unavailable,
];

/// What a model's counters were at a moment.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// Requests that came: those that were decided and those that are not yet.
    offered: u64,
    good: u64,
    late: u64,
    failed: u64,
    refused: [u64; REASONS.len()],
    succeeded: u64,
    batch_sizes: [u64; BATCH_BUCKETS],
    latencies: [u64; LATENCY_BUCKETS],
}

/// What happened in a second. The places are those of the contract in `ui/README.md`, less one for `seq`; what there
/// was none of is not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample(pub(super) [f32; FIELDS]);

impl Counters {
    /// Reads them.
    pub(super) fn read(statistics: &Statistics) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let mut refused = REASONS.map(|reason| read(&statistics.refused[reason as usize]));
        // Too late in any case: the dashboard does not tell for whose sake.
        refused[0] += read(&statistics.refused[Refused::TooSlow as usize]);
        // What the gateway gave up counts with what was not available.
        refused[5] += read(&statistics.refused[Refused::Expired as usize]);
        let (good, late, failed) = (read(&statistics.good), read(&statistics.late), read(&statistics.failed));
        Counters {
            offered: good + late + failed + refused.iter().sum::<u64>() + read(&statistics.pending),
            good,
            late,
            failed,
            refused,
            succeeded: read(&statistics.succeeded),
            batch_sizes: std::array::from_fn(|bucket| read(&statistics.batch_sizes[bucket])),
            latencies: std::array::from_fn(|bucket| read(&statistics.latencies[bucket])),
        }
    }

    /// Goes on to a later reading. Returns a sample for each of the `seconds` between them, and the answers of all.
    pub(super) fn advance(&mut self, mut later: Counters, seconds: u64, level: Level) -> (Sample, Answers) {
        // A request is for a moment neither pending nor decided. What then seems missing comes with the next reading.
        later.offered = later.offered.max(self.offered);
        let rate = |later: u64, earlier: u64| later.saturating_sub(earlier) as f32 / seconds as f32;
        let latencies: Latencies =
            std::array::from_fn(|bucket| later.latencies[bucket].saturating_sub(self.latencies[bucket]) as u32);
        let mut sample = [0.0; FIELDS];
        sample[0] = rate(later.offered, self.offered);
        sample[1] = rate(later.good, self.good);
        sample[2] = rate(later.late, self.late);
        sample[3] = rate(later.failed, self.failed);
        for (place, (later, earlier)) in later.refused.iter().zip(self.refused).enumerate() {
            sample[4 + place] = rate(*later, earlier);
        }
        let answers = Answers { latencies, late: later.late.saturating_sub(self.late) };
        let objective = Objective { millis: level.objective_ms, late: answers.late };
        let found = percentiles(&answers.latencies, objective);
        sample[10..13].copy_from_slice(&found.map_or([f32::NAN; 3], |found| found.map(|latency| latency as f32)));
        sample[13] = level.waiting as f32;
        sample[14] = level.running as f32;
        sample[15] = rate(later.succeeded, self.succeeded);
        for (size, (later, earlier)) in later.batch_sizes.iter().zip(self.batch_sizes).enumerate() {
            sample[16 + size.min(SIZES - 1)] += rate(*later, earlier);
        }
        *self = later;
        (Sample(sample), answers)
    }
}

/// Answers with outputs between two readings.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    /// How long they took.
    pub(super) latencies: Latencies,
    /// How many of them came after their deadline.
    pub(super) late: u64,
}

/// How things are when a second ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    /// Requests in the queue.
    pub(super) waiting: u64,
    /// Requests in batches.
    pub(super) running: u64,
    /// What answers may take.
    pub(super) objective_ms: f64,
}

impl Sample {
    /// Whether nothing happened, so that it need not be kept.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|value| *value == 0.0 || value.is_nan())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Served;
    use policy::Span;
    use rpc::Compute;

    #[test]
    fn a_sample_is_what_happened_in_between() {
        let statistics = Statistics::default();
        let served = |millis, good, batch_size, leads| {
            let total = Span::from_millis(millis);
            statistics.served(Served { total, compute: Compute::default(), good, rows: 1, batch_size, leads });
        };
        served(10, true, 1, true);
        let mut before = Counters::read(&statistics);
        for (place, reason) in Refused::ALL.into_iter().enumerate() {
            (0..=place).for_each(|_| statistics.refused(reason, Span::ZERO));
        }
        for (size, leads) in [(300, true), (300, false), (100, true), (3, true), (3, false)] {
            served(20, size != 3, size, leads);
        }
        statistics.failed(Span::ZERO);
        statistics.pending.store(4, Relaxed);
        let level = Level { waiting: 3, running: 1, objective_ms: 100.0 };
        let (sample, answers) = before.advance(Counters::read(&statistics), 1, level);
        assert_eq!(sample.0[..10], [46.0, 3.0, 2.0, 1.0, 9.0, 2.0, 4.0, 3.0, 5.0, 13.0]);
        assert!(sample.0[10..13].iter().all(|latency| (18.0..22.0).contains(latency)), "{:?}", &sample.0[10..13]);
        assert_eq!(sample.0[13..], [3.0, 1.0, 5.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
        assert_eq!((answers.latencies.iter().sum::<u32>(), answers.late), (5, 2));

        let (sample, _) = before.advance(Counters::read(&statistics), 1, Level::default());
        assert!(sample.is_empty(), "{sample:?}");
    }

    #[test]
    fn a_late_reading_is_divided_and_a_torn_one_takes_nothing_back() {
        let statistics = Statistics::default();
        statistics.pending.store(8, Relaxed);
        let mut before = Counters::read(&statistics);
        // Two were taken out of what is pending and are not decided yet.
        statistics.pending.store(6, Relaxed);
        let (sample, _) = before.advance(Counters::read(&statistics), 1, Level::default());
        assert_eq!(sample.0[0], 0.0);
        (0..6).for_each(|_| statistics.failed(Span::ZERO));
        let (sample, _) = before.advance(Counters::read(&statistics), 4, Level::default());
        assert_eq!((sample.0[0], sample.0[3]), (1.0, 1.5));
    }
}
