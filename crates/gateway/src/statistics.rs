//! What became of requests, by model: counters that only rise.
//!
//! Everything that is shown anywhere (metrics, model statistics, the dashboard) is worked out from these.

use policy::Span;
use rpc::Compute;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a batch-size histogram: 1, 2, up to 4, 8, ... and all above 256.
pub const BATCH_BUCKETS: usize = 10;
/// Four buckets for every doubling from 32 us to about two minutes, and one above.
pub const LATENCY_BUCKETS: usize = 89;

/// What became of one model version's requests so far.
#[derive(Debug)]
pub struct Statistics {
    /// Answered with outputs.
    pub succeeded: AtomicU64,
    /// Of those, within their deadline.
    pub good: AtomicU64,
    /// And after it. A counter of its own: the difference of two that are read one after the other could fall.
    pub late: AtomicU64,
    /// Answered with an error of the model's.
    pub failed: AtomicU64,
    /// Answered with an error of the client's: the request made no sense for the model.
    pub invalid: AtomicU64,
    /// Refused, by [`Refused`].
    pub refused: [AtomicU64; Refused::ALL.len()],
    /// Not answered: the client went away.
    pub withdrawn: AtomicU64,
    /// Not yet answered.
    pub pending: AtomicU64,
    /// Rows of answered requests.
    pub rows: AtomicU64,
    /// Batches that answered requests of this gateway were the first of.
    pub batches: AtomicU64,
    /// Time from arrival to answer of those that succeeded, in nanoseconds.
    pub total_ns: AtomicU64,
    /// Of which they waited.
    pub queued_ns: AtomicU64,
    /// Of which they were computed: inputs put together, worked on, outputs taken apart.
    pub compute: ComputeTimes,
    /// Time to the answer of those that failed or were refused.
    pub failed_ns: AtomicU64,
    /// When the last request came, in milliseconds since 1970.
    pub last_ms: AtomicU64,
    /// Batches by size.
    pub batch_sizes: [AtomicU64; BATCH_BUCKETS],
    /// Batches by exact size, and how long they took in all.
    by_size: Mutex<BTreeMap<usize, (u64, Compute)>>,
    /// Answers with outputs by latency.
    pub latencies: [AtomicU64; LATENCY_BUCKETS],
}

/// How long requests were computed, in nanoseconds, as [`Compute`] has it.
#[derive(Debug, Default)]
pub struct ComputeTimes {
    /// Inputs were put together.
    pub input_ns: AtomicU64,
    /// Workers had them.
    pub infer_ns: AtomicU64,
    /// Outputs were taken apart.
    pub output_ns: AtomicU64,
}

impl ComputeTimes {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        [&self.input_ns, &self.infer_ns, &self.output_ns].iter().map(|part| part.load(Relaxed)).sum()
    }
}

impl Default for Statistics {
    fn default() -> Statistics {
        let zero = || AtomicU64::new(0);
        Statistics {
            succeeded: zero(),
            good: zero(),
            late: zero(),
            failed: zero(),
            invalid: zero(),
            refused: std::array::from_fn(|_| zero()),
            withdrawn: zero(),
            pending: zero(),
            rows: zero(),
            batches: zero(),
            total_ns: zero(),
            queued_ns: zero(),
            compute: ComputeTimes::default(),
            failed_ns: zero(),
            last_ms: zero(),
            by_size: Mutex::default(),
            batch_sizes: std::array::from_fn(|_| zero()),
            latencies: std::array::from_fn(|_| zero()),
        }
    }
}

/// Ways to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It could not have met its deadline.
    TooLate = 0,
    /// It held back others that could.
    Sacrificed = 1,
    /// Its worker died and there was no time left.
    WorkerDied = 2,
    /// Too many waited.
    QueueFull = 3,
    /// Its priority was too low for the load.
    Priority = 4,
    /// The model was not ready.
    Unavailable = 5,
    /// Nobody answered in time, and the gateway gave it up.
    Expired = 6,
    /// The model takes longer than its deadline, even alone.
    TooSlow = 7,
}

impl Refused {
    /// All of them, in order.
    pub const ALL: [Refused; 8] = [
        Refused::TooLate,
        Refused::Sacrificed,
        Refused::WorkerDied,
        Refused::QueueFull,
        Refused::Priority,
        Refused::Unavailable,
        Refused::Expired,
        Refused::TooSlow,
    ];

    /// The word for it in metrics.
    pub const fn name(self) -> &'static str {
        ["too_late", "sacrificed", "worker_died", "queue_full", "priority", "unavailable", "expired", "too_slow"]
            [self as usize]
    }
}

/// What is known of a request that was answered with outputs.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// From arrival to answer.
    pub total: Span,
    /// Of which it was computed.
    pub compute: Compute,
    /// Whether that was within its deadline.
    pub good: bool,
    /// Its rows.
    pub rows: usize,
    /// How many requests shared its batch.
    pub batch_size: usize,
    /// Whether it was the first of its batch.
    pub leads: bool,
}

impl Statistics {
    /// Counts a request that was answered with outputs.
    pub fn served(&self, served: Served) {
        let add = |counter: &AtomicU64, amount: u64| counter.fetch_add(amount, Relaxed);
        add(&self.succeeded, 1);
        add(if served.good { &self.good } else { &self.late }, 1);
        add(&self.rows, served.rows as u64);
        add(&self.total_ns, served.total.nanos());
        add(&self.compute.input_ns, served.compute.input.nanos());
        add(&self.compute.infer_ns, served.compute.infer.nanos());
        add(&self.compute.output_ns, served.compute.output.nanos());
        add(&self.queued_ns, (served.total - served.compute.total()).nanos());
        add(&self.latencies[latency_bucket(served.total)], 1);
        if served.leads {
            add(&self.batches, 1);
            add(&self.batch_sizes[batch_bucket(served.batch_size)], 1);
            let mut by_size = self.by_size.lock().expect("no panic holds this lock");
            let (count, took) = by_size.entry(served.batch_size).or_default();
            *count += 1;
            *took += served.compute;
        }
    }

    /// Batch sizes, how many batches had them, and how long those took in all.
    pub fn by_size(&self) -> Vec<(usize, u64, Compute)> {
        let by_size = self.by_size.lock().expect("no panic holds this lock");
        by_size.iter().map(|(size, (count, took))| (*size, *count, *took)).collect()
    }

    /// Counts a request that the model failed.
    pub fn failed(&self, total: Span) {
        self.failed.fetch_add(1, Relaxed);
        self.failed_ns.fetch_add(total.nanos(), Relaxed);
    }

    /// Counts a request that made no sense.
    pub fn invalid(&self) {
        self.invalid.fetch_add(1, Relaxed);
    }

    /// Counts a request that was refused.
    pub fn refused(&self, reason: Refused, total: Span) {
        self.refused[reason as usize].fetch_add(1, Relaxed);
        self.failed_ns.fetch_add(total.nanos(), Relaxed);
    }
}

/// The bucket of a batch of this size.
pub fn batch_bucket(size: usize) -> usize {
    (size.max(1).next_power_of_two().trailing_zeros() as usize).min(BATCH_BUCKETS - 1)
}

/// The bucket of a latency.
pub fn latency_bucket(latency: Span) -> usize {
    let quarters = latency.nanos() >> 13;
    if quarters < 4 {
        return 0;
    }
    // Two bits below the leading one divide a doubling in four.
    let doubling = quarters.ilog2() as usize;
    let quarter = (quarters >> (doubling - 2)) as usize & 3;
    (1 + (doubling - 2) * 4 + quarter).min(LATENCY_BUCKETS - 1)
}

/// The upper end of a bucket of latencies.
pub fn latency_of(bucket: usize) -> Span {
    if bucket == 0 {
        return Span::from_nanos(4 << 13);
    }
    let (doubling, quarter) = ((bucket - 1) / 4, (bucket - 1) % 4);
    Span::from_nanos(((5 + quarter as u64) << doubling) << 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_within_a_quarter_doubling_of_its_bucket() {
        for bucket in 0..LATENCY_BUCKETS - 1 {
            let end = latency_of(bucket);
            assert_eq!(latency_bucket(end - Span::from_nanos(1)), bucket);
            assert_eq!(latency_bucket(end), bucket + 1);
        }
        assert_eq!(latency_bucket(Span::MAX), LATENCY_BUCKETS - 1);
        assert!(latency_of(LATENCY_BUCKETS - 2) > Span::from_secs(100));
    }

    #[test]
    fn batches_fall_into_powers_of_two() {
        let buckets: Vec<_> = [1, 2, 3, 4, 5, 256, 257, 512].map(batch_bucket).into();
        assert_eq!(buckets, [0, 1, 2, 2, 3, 8, 9, 9]);
    }
}
