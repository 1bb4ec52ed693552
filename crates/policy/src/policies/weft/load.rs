//! How full the cluster is, were every batch as large as its objective allows.
//!
//! Not how busy it is: a cluster that runs small batches because it can is busy and not full. From rates and
//! latency tables alone: a lane whose batches start as late as they may collects `1 + (objective - l(b)) / gap`
//! requests, and so needs `l(b) / (b * gap)` GPUs. The sum over lanes is the load.
//!
//! By the square-root rule of staffing, what keeps random demand from colliding on `n` servers is a headroom
//! of so many times the square root of `n`. Where there is enough, an idle GPU costs nothing; as it shrinks,
//! the price rises.

use super::budget::ONE;
use crate::{LatencyTable, Network, Span};

/// Headroom, in square roots of the number of GPUs (of [`ONE`]), at which idling costs all and nothing.
const HEADROOM: (i64, i64) = (ONE * 8 / 10, ONE * 16 / 10);

/// GPUs (of [`ONE`]) that a model needs when its requests come `gap` apart.
pub(super) fn gpus_needed(table: &LatencyTable, gap: Span, objective: Span, network: &Network) -> u64 {
    let budget = objective - network.control - network.response;
    if gap == Span::MAX || table.max_batch() == 0 {
        return 0;
    }
    let gap = gap.nanos().max(1);
    let fits = |size: usize| {
        let joined = Span::from_nanos(gap.saturating_mul(size as u64 - 1));
        joined + table.latency(size) + network.data_per_request * size <= budget
    };
    let (mut low, mut high) = (1, table.max_batch());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    // Between whole sizes, in proportion: most lanes of a crowded cluster collect only a few requests.
    let one = ONE as u64;
    let waited = (budget - table.latency(low)).nanos();
    let size = (one + waited.saturating_mul(one) / gap).clamp(low as u64 * one, table.max_batch() as u64 * one);
    let size = size.min((low as u64 + 1) * one);
    let next = table.latency((low + 1).min(table.max_batch())) - table.latency(low);
    let takes = table.latency(low) + next.scale(size - low as u64 * one, one);
    (u128::from(takes.nanos()) * u128::from(one) * u128::from(one) / (u128::from(size) * u128::from(gap))) as u64
}

/// How many of `live` GPUs to use when `needed` (of [`ONE`]) are needed: that many and their square root. The rest
/// are left idle as a whole, to be given back or opened when somebody would be late without them; less than a tenth
/// is not worth leaving.
pub(super) fn gpus_open(needed: u64, live: usize) -> usize {
    let root = (needed << 10).isqrt();
    let open = ((needed + root) as usize).div_ceil(ONE as usize).max(1);
    if open * 10 < live * 9 { open } else { live }
}

/// What a GPU-second idle costs, in GPU-seconds (of [`ONE`]), when `needed` GPUs (of [`ONE`]) of `live` are
/// needed, and it costs `full` when there is no headroom.
pub(super) fn idle_price(needed: u64, live: usize, full: u64) -> u64 {
    let free = live as i64 * ONE - needed.min(1 << 40) as i64;
    let root = ((live as u64) << 20).isqrt() as i64;
    let headroom = (free * ONE / root.max(1)).clamp(HEADROOM.0, HEADROOM.1);
    full * (HEADROOM.1 - headroom) as u64 / (HEADROOM.1 - HEADROOM.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_needs_what_its_largest_batches_cost() {
        let line = LatencyTable::line(Span::from_micros(1_053), Span::from_micros(5_072), 64);
        let needed = |gap: f64| {
            let gpus = gpus_needed(&line, Span::from_millis_f64(gap), Span::from_millis(25), &Network::default());
            (gpus as f64 / ONE as f64 * 100.0).round() / 100.0
        };
        // One request in a hundred milliseconds runs with a fifth of another (6.3 ms for 1.19); a thousand a
        // second run ten at a time (15.7 ms for 10.24); six thousand a second are more than eight GPUs can do.
        assert_eq!([needed(100.0), needed(1.0), needed(1.0 / 6.0)], [0.05, 1.54, 8.11]);
    }

    #[test]
    fn the_reserve_is_what_the_load_leaves() {
        let open = |needed: f64, live: usize| gpus_open((needed * ONE as f64) as u64, live);
        assert_eq!([open(0.0, 8), open(1.0, 8), open(2.5, 8), open(5.0, 8)], [1, 2, 5, 8]);
        assert_eq!([open(30.0, 128), open(110.0, 128), open(5.0, 1)], [36, 128, 1]);
    }

    #[test]
    fn idling_is_free_with_headroom_and_dear_without() {
        let price = |needed: f64, live: usize| {
            idle_price((needed * ONE as f64) as u64, live, 2 * ONE as u64) as f64 / ONE as f64
        };
        assert_eq!(price(2.4, 8), 0.0);
        assert_eq!(price(8.0, 8), 2.0);
        assert_eq!(price(80.0, 100), 0.0);
        assert_eq!(price(95.0, 100), 2.0);
        assert_eq!(price(0.0, 0), 2.0);
    }
}
