//! Latencies of a second or of several, and their percentiles.

use crate::statistics::{LATENCY_BUCKETS, latency_of};

/// How many answers took how long, by the buckets of the statistics.
pub(super) type Latencies = [u32; LATENCY_BUCKETS];

/// Adds others to some.
pub(super) fn merge(into: &mut Latencies, other: &Latencies) {
    for (into, other) in into.iter_mut().zip(other) {
        *into = into.saturating_add(*other);
    }
}

/// What else is known about the answers: how many came after their deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    /// The deadline of those that brought none of their own.
    pub(super) millis: f64,
    /// Answers after their deadline.
    pub(super) late: u64,
}

/// The 50th, 90th and 99th percentile in milliseconds; none when there are no latencies.
///
/// Within a bucket latencies are taken to be spread evenly. Batches run as late as deadlines allow, so the bucket that
/// holds the objective is where many are; on which side of it a percentile is follows from how many were late. Requests
/// with deadlines of their own can make that wrong by the width of this bucket, never by more.
pub(super) fn percentiles(latencies: &Latencies, objective: Objective) -> Option<[f64; 3]> {
    let total: u64 = latencies.iter().map(|count| u64::from(*count)).sum();
    if total == 0 {
        return None;
    }
    Some([50, 90, 99].map(|percent: u64| {
        let rank = (total * percent).div_ceil(100) as f64;
        let in_time = objective.late * 100 <= total * (100 - percent);
        let mut below = 0.0;
        for (bucket, count) in latencies.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= rank {
                let mut from = bucket.checked_sub(1).map_or(0.0, |before| latency_of(before).millis());
                if bucket == LATENCY_BUCKETS - 1 {
                    return from;
                }
                let mut to = latency_of(bucket).millis();
                if from < objective.millis && objective.millis < to {
                    *(if in_time { &mut to } else { &mut from }) = objective.millis;
                }
                // Each stands in the middle of its own part of the bucket.
                return from + (to - from) * (rank - below - 0.5) / count;
            }
            below += count;
        }
        latency_of(LATENCY_BUCKETS - 2).millis()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::latency_bucket;
    use policy::Span;

    fn percentiles(latencies: &Latencies) -> Option<[f64; 3]> {
        super::percentiles(latencies, Objective { millis: 0.0, late: 0 })
    }

    fn of(micros: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = [0; LATENCY_BUCKETS];
        micros.for_each(|micros| latencies[latency_bucket(Span::from_micros(micros))] += 1);
        latencies
    }

    #[test]
    fn percentiles_are_near_the_exact_ones() {
        let found = percentiles(&of(1..=100_000)).unwrap();
        for (found, exact) in found.into_iter().zip([50.0, 90.0, 99.0]) {
            assert!((found / exact - 1.0f64).abs() < 0.06, "{found} for {exact}");
        }
        let same = percentiles(&of(std::iter::repeat_n(20_000, 1_000))).unwrap();
        assert!(same.iter().all(|found| (16.0..24.0).contains(found)), "{same:?}");
        assert!(same[0] <= same[1] && same[1] <= same[2]);
    }

    #[test]
    fn one_none_and_endless() {
        assert_eq!(percentiles(&of(std::iter::empty())), None);
        let one = percentiles(&of(std::iter::once(10_000))).unwrap();
        assert!(one.iter().all(|found| (8.0..12.6).contains(found)), "{one:?}");
        let endless = percentiles(&of(std::iter::once(u64::MAX / 1_000))).unwrap();
        assert_eq!(endless, [latency_of(LATENCY_BUCKETS - 2).millis(); 3]);
        let least = percentiles(&of(std::iter::once(0))).unwrap();
        assert!(least[2] <= 0.032_768 && least[0] > 0.0);
    }

    #[test]
    fn what_was_in_time_is_not_shown_as_late() {
        // All in the bucket from 8.4 to 10.5 ms.
        let latencies = of(std::iter::repeat_n(9_800, 1_000));
        let p99 = |late| super::percentiles(&latencies, Objective { millis: 10.0, late }).unwrap()[2];
        assert!(p99(0) > 9.9 && p99(10) <= 10.0, "{} {}", p99(0), p99(10));
        assert!(p99(11) > 10.0 && p99(11) < 10.5, "{}", p99(11));
        let p50 = super::percentiles(&latencies, Objective { millis: 10.0, late: 11 }).unwrap()[0];
        assert!((8.4..10.0).contains(&p50), "{p50}");
        let elsewhere = super::percentiles(&latencies, Objective { millis: 2.0, late: 0 });
        assert_eq!(elsewhere, percentiles(&latencies));
    }

    #[test]
    fn merged_seconds_are_not_a_mean_of_percentiles() {
        let mut all = of(std::iter::repeat_n(1_000, 990));
        merge(&mut all, &of(std::iter::repeat_n(100_000, 10)));
        let [p50, _, p99] = percentiles(&all).unwrap();
        assert!(p50 < 1.3 && p99 < 1.3, "{p50} {p99}");
        merge(&mut all, &of(std::iter::repeat_n(100_000, 10)));
        assert!(percentiles(&all).unwrap()[2] > 80.0);
    }
}
