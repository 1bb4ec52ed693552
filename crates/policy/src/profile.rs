//! How long a batch takes: a table by batch size, in integer nanoseconds.
//!
//! A table and not a line, because real profiles are hinges: flat while the GPU is not full, then rising.
//! Two invariants hold of every table: latency never falls as the batch grows, and every size from one to
//! [`LatencyTable::max_batch`] has an entry. An empty table means "cannot run here".

pub(crate) mod csv;

pub use csv::{CsvError, Selection};

use crate::Span;
use std::sync::Arc;

/// Batches larger than this are never planned, whatever the objective allows.
pub const MAX_BATCH: usize = 512;

/// Latency by batch size of one model on one type of GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyTable {
    /// Entry `i` is the latency of a batch of `i + 1`. Shared, so that a copy costs nothing.
    by_size: Arc<[Span]>,
}

impl LatencyTable {
    /// `alpha * size + beta`, for sizes up to `max_batch`.
    pub fn line(alpha: Span, beta: Span, max_batch: usize) -> LatencyTable {
        LatencyTable::from_sizes((1..=max_batch.min(MAX_BATCH)).map(|size| alpha * size + beta))
    }

    /// `max(floor, alpha * size + beta)`, for sizes up to `max_batch`; `beta` may lie below zero.
    pub fn hinge(floor_ms: f64, alpha_ms: f64, beta_ms: f64, max_batch: usize) -> LatencyTable {
        let at = |size: usize| Span::from_millis_f64((alpha_ms * size as f64 + beta_ms).max(floor_ms));
        LatencyTable::from_sizes((1..=max_batch.min(MAX_BATCH)).map(at))
    }

    /// Measured points, straight lines between them. Sizes below the first point cost as much as the first
    /// point; sizes beyond the last are not run. The points may come in any order.
    pub fn points(points: &[(usize, Span)]) -> LatencyTable {
        let mut points: Vec<_> = points.iter().copied().filter(|(size, _)| (1..=MAX_BATCH).contains(size)).collect();
        points.sort_unstable();
        points.dedup_by_key(|(size, _)| *size);
        let Some(&(largest, _)) = points.last() else { return LatencyTable::default() };
        LatencyTable::from_sizes((1..=largest).map(|size| {
            let right = points.partition_point(|(at, _)| *at < size);
            let (right_size, right_span) = points[right];
            if right == 0 || right_size == size {
                return right_span;
            }
            let (left_size, left_span) = points[right - 1];
            let step = right_span.nanos() as i128 - left_span.nanos() as i128;
            let along = step * (size - left_size) as i128 / (right_size - left_size) as i128;
            Span::from_nanos((left_span.nanos() as i128 + along) as u64)
        }))
    }

    /// Latencies of sizes 1, 2, 3 and so on. Where a measurement dips, the larger earlier one stands.
    pub fn from_sizes(latencies: impl IntoIterator<Item = Span>) -> LatencyTable {
        let mut highest = Span::ZERO;
        let by_size = latencies.into_iter().map(|latency| {
            highest = highest.max(latency);
            highest
        });
        LatencyTable { by_size: by_size.collect() }
    }

    /// The largest batch that can be run.
    pub fn max_batch(&self) -> usize {
        self.by_size.len()
    }

    /// How long a batch of this size takes. `size` lies between 1 and [`Self::max_batch`].
    #[inline]
    pub fn latency(&self, size: usize) -> Span {
        self.by_size[size - 1]
    }

    /// The largest batch that takes at most this long; zero when not even one request does.
    #[inline]
    pub fn largest_within(&self, budget: Span) -> usize {
        self.by_size.partition_point(|latency| *latency <= budget)
    }

    /// This table without the sizes that take longer than `objective`: they are late by themselves.
    pub fn within(self, objective: Span) -> LatencyTable {
        let largest = self.largest_within(objective);
        self.up_to(largest)
    }

    /// This table without sizes above `max_batch`.
    pub fn up_to(mut self, max_batch: usize) -> LatencyTable {
        if max_batch < self.max_batch() {
            self.by_size = self.by_size[..max_batch].into();
        }
        self
    }

    /// The table of a GPU `speed` times as fast.
    pub fn at_speed(&self, speed: f64) -> LatencyTable {
        LatencyTable::from_sizes(self.by_size.iter().map(|latency| Span::from_secs_f64(latency.seconds() / speed)))
    }

    /// The least GPU time that one request can cost, over all sizes; `None` when nothing can be run.
    pub fn cheapest(&self) -> Option<Span> {
        self.by_size.iter().enumerate().map(|(index, latency)| latency.scale(1, index as u64 + 1)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: f64) -> Span {
        Span::from_millis_f64(millis)
    }

    #[test]
    fn points_are_joined_by_lines_and_end_at_the_last() {
        let table = LatencyTable::points(&[(8, ms(9.0)), (2, ms(6.0)), (1, ms(5.0))]);
        assert_eq!(table.max_batch(), 8);
        let latencies: Vec<_> = (1..=8).map(|size| table.latency(size).millis()).collect();
        assert_eq!(latencies, [5.0, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 9.0]);
    }

    #[test]
    fn a_dip_in_a_measurement_does_not_make_larger_batches_faster() {
        let table = LatencyTable::points(&[(1, ms(5.0)), (2, ms(4.0)), (4, ms(7.0))]);
        let latencies: Vec<_> = (1..=4).map(|size| table.latency(size).millis()).collect();
        assert_eq!(latencies, [5.0, 5.0, 5.5, 7.0]);
    }

    #[test]
    fn the_largest_batch_within_a_budget() {
        let table = LatencyTable::line(ms(1.053), ms(5.072), 64);
        assert_eq!(table.largest_within(ms(25.0)), 18);
        assert_eq!(table.largest_within(ms(6.0)), 0);
        assert_eq!(table.largest_within(Span::MAX), 64);
        assert_eq!(table.clone().within(ms(25.0)).max_batch(), 18);
        assert_eq!(table.within(ms(1.0)), LatencyTable::default());
    }

    #[test]
    fn a_hinge_is_flat_and_then_rises() {
        let table = LatencyTable::hinge(5.0, 0.4, 1.0, 16);
        assert_eq!(table.latency(1), ms(5.0));
        assert_eq!(table.latency(10), ms(5.0));
        assert_eq!(table.latency(16), ms(7.4));
    }

    #[test]
    fn a_faster_gpu_takes_less_time() {
        let table = LatencyTable::line(ms(1.0), ms(4.0), 4).at_speed(2.0);
        assert_eq!(table.latency(4), ms(4.0));
    }
}
