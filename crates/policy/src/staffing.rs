//! How many GPUs a model's requests need, and how much room randomness asks for beside that.
//!
//! From rates and latency tables alone: a lane whose batches start as late as they may collects
//! `1 + (objective - l(b)) / gap` requests, and so needs `l(b) / (b * gap)` GPUs. The sum over lanes is the load.
//!
//! By the square-root rule of staffing, what keeps random demand from colliding on `n` servers is a headroom of so many
//! times the square root of `n`, and where arrivals are burstier than Poisson's, of `n` times their dispersion.

use crate::{LatencyTable, Network, Span};

/// One GPU, one request, one as a factor: what numbers here are counted in.
pub const ONE: u64 = 1 << 10;

/// GPUs (of [`ONE`]) that a model needs when its requests come `gap` apart.
pub fn gpus_needed(table: &LatencyTable, gap: Span, objective: Span, network: &Network) -> u64 {
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
    let waited = (budget - table.latency(low)).nanos();
    let size = (ONE + waited.saturating_mul(ONE) / gap).clamp(low as u64 * ONE, table.max_batch() as u64 * ONE);
    let size = size.min((low as u64 + 1) * ONE);
    let next = table.latency((low + 1).min(table.max_batch())) - table.latency(low);
    let takes = table.latency(low) + next.scale(size - low as u64 * ONE, ONE);
    (u128::from(takes.nanos()) * u128::from(ONE) * u128::from(ONE) / (u128::from(size) * u128::from(gap))) as u64
}

/// The spread of a demand of so much variance (of [`ONE`]), in GPUs (of [`ONE`]): its square root.
pub fn spread(variance: u64) -> u64 {
    (variance.min(u64::MAX >> 10) << 10).isqrt()
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
    fn a_spread_is_a_square_root() {
        assert_eq!([spread(0), spread(ONE), spread(4 * ONE), spread(10_000 * ONE)], [0, ONE, 2 * ONE, 100 * ONE]);
    }
}
