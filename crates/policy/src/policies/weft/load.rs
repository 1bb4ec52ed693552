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
pub(super) use crate::staffing::gpus_needed;

/// Headroom, in square roots of the number of GPUs (of [`ONE`]), at which idling costs all and nothing.
const HEADROOM: (i64, i64) = (ONE * 8 / 10, ONE * 16 / 10);

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
