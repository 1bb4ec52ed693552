//! Latencies of a run: exact percentiles, and a histogram that fits on a line of a file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The latencies of the requests of one run, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Latencies {
    pub(super) mean_us: f64,
    pub(super) p50_us: u64,
    pub(super) p90_us: u64,
    pub(super) p99_us: u64,
    /// Of fewer than a thousand requests it is the slowest.
    pub(super) p999_us: u64,
    pub(super) max_us: u64,
    pub(super) histogram: Histogram,
}

impl Latencies {
    /// Of at least one request.
    pub(super) fn new(mut latencies_us: Vec<u64>) -> Option<Latencies> {
        latencies_us.sort_unstable();
        let max_us = *latencies_us.last()?;
        let at = |per_mille| percentile(&latencies_us, per_mille);
        Some(Latencies {
            mean_us: latencies_us.iter().map(|&latency| latency as f64).sum::<f64>() / latencies_us.len() as f64,
            p50_us: at(500),
            p90_us: at(900),
            p99_us: at(990),
            p999_us: at(999),
            max_us,
            histogram: Histogram::new(&latencies_us),
        })
    }
}

/// The least of the sorted values that so many of a thousand do not exceed.
fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted[rank - 1]
}

/// How many requests took how long, with three digits. As text: `5120:3 5130:1`, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Histogram {
    counts: BTreeMap<u64, u64>,
}

impl Histogram {
    fn new(latencies_us: &[u64]) -> Histogram {
        let mut counts = BTreeMap::new();
        for &latency in latencies_us {
            *counts.entry(three_digits(latency)).or_insert(0) += 1;
        }
        Histogram { counts }
    }

    /// How many took no longer than this.
    pub(super) fn within(&self, limit_us: f64) -> u64 {
        self.counts.iter().filter(|(latency, _)| **latency as f64 <= limit_us).map(|(_, count)| count).sum()
    }
}

/// Rounded, a half upwards.
fn three_digits(value: u64) -> u64 {
    let mut step = 1;
    while value / step >= 1000 {
        step *= 10;
    }
    value.saturating_add(step / 2) / step * step
}

impl From<Histogram> for String {
    fn from(histogram: Histogram) -> String {
        let mut text = String::new();
        for (latency, count) in histogram.counts {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{latency}:{count}");
        }
        text
    }
}

impl TryFrom<String> for Histogram {
    type Error = String;

    fn try_from(text: String) -> Result<Histogram, String> {
        let entry = |word: &str| {
            let (latency, count) = word.split_once(':')?;
            Some((latency.parse().ok()?, count.parse().ok()?))
        };
        let counts = text.split_whitespace().map(|word| entry(word).ok_or_else(|| format!("`{word}` in a histogram")));
        Ok(Histogram { counts: counts.collect::<Result<_, String>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let of = |count: u64| Latencies::new((1..=count).rev().collect()).unwrap();
        let thousand = of(1000);
        assert_eq!((thousand.p50_us, thousand.p90_us, thousand.p99_us, thousand.p999_us), (500, 900, 990, 999));
        assert_eq!((thousand.max_us, thousand.mean_us), (1000, 500.5));
        let three = of(3);
        assert_eq!((three.p50_us, three.p99_us, three.p999_us, three.max_us), (2, 3, 3, 3));
        assert_eq!(of(1).p50_us, 1);
        assert_eq!(Latencies::new(vec![]), None);
    }

    #[test]
    fn a_histogram_is_a_line_and_back() {
        let values = [7, 7, 999, 5123, 5125, 5120, 123_456, 9996];
        assert_eq!(values.map(three_digits), [7, 7, 999, 5120, 5130, 5120, 123_000, 10_000]);
        let histogram = Histogram::new(&values);
        let text = String::from(histogram.clone());
        assert_eq!(text, "7:2 999:1 5120:2 5130:1 10000:1 123000:1");
        assert_eq!(Histogram::try_from(text), Ok(histogram.clone()));
        assert_eq!(Histogram::try_from(String::new()), Ok(Histogram::default()));
        assert!(Histogram::try_from("5:x".to_owned()).is_err());
        assert_eq!([6.0, 7.0, 5125.0, 1e9].map(|limit| histogram.within(limit)), [0, 2, 5, 8]);
        assert_eq!(three_digits(u64::MAX) / 1_000_000_000_000_000_000, 18);
    }
}
