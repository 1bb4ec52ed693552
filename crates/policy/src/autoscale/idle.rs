//! How long a worker is worth keeping while nobody calls, and when somebody will: from the gaps there were.
//!
//! A hybrid of what Shahrad et al. do (Serverless in the Wild, ATC 2020): where gaps are about as long each time, the
//! worker goes at once and is started again before the next call; otherwise it stays for as long as nearly all gaps
//! lasted.

use crate::Span;
use std::collections::VecDeque;

/// Shorter silences are no gaps.
pub(super) const GAP_MIN: Span = Span::from_secs(1);
/// Gaps that are remembered.
const GAPS: usize = 256;
/// Gaps without which nothing is known.
const GAPS_MIN: usize = 8;
/// Kept for so long until more is known.
const GUESS: Span = Span::from_secs(120);
/// Kept for so long at least, and at most.
const LEAST: Span = Span::from_secs(5);
const MOST: Span = Span::from_secs(600);

/// Gaps between arrivals.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    last: VecDeque<Span>,
    /// The same in order.
    sorted: Vec<Span>,
}

impl Gaps {
    pub(super) fn record(&mut self, gap: Span) {
        if gap < GAP_MIN {
            return;
        }
        if self.last.len() == GAPS {
            self.last.pop_front();
        }
        self.last.push_back(gap);
        self.sorted = self.last.iter().copied().collect();
        self.sorted.sort_unstable();
    }

    /// How long to keep a worker after the last call, when a start takes `cold_start`.
    pub(super) fn keep_alive(&self, cold_start: Span) -> Span {
        match self.regular(cold_start) {
            Some(_) => LEAST,
            None if self.sorted.len() < GAPS_MIN => GUESS,
            None => self.at(990).scale(3, 2).max(LEAST).min(MOST),
        }
    }

    /// From when to when after the last call the next is expected, where gaps are alike and long enough to be worth it.
    pub(super) fn regular(&self, cold_start: Span) -> Option<(Span, Span)> {
        if self.sorted.len() < GAPS_MIN {
            return None;
        }
        let (early, late) = (self.at(50), self.at(950));
        let worth = early > (cold_start + LEAST) * 2 && late <= early.scale(3, 2);
        worth.then_some((early, late.scale(11, 10)))
    }

    /// The gap that this part of them, in thousandths, does not exceed.
    fn at(&self, permille: usize) -> Span {
        let rank = (self.sorted.len() * permille).div_ceil(1_000).max(1) - 1;
        self.sorted[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(seconds: &[u64]) -> Gaps {
        let mut gaps = Gaps::default();
        seconds.iter().for_each(|seconds| gaps.record(Span::from_secs(*seconds)));
        gaps
    }

    const COLD: Span = Span::from_secs(4);

    #[test]
    fn a_worker_stays_for_as_long_as_nearly_all_gaps() {
        assert_eq!(gaps(&[]).keep_alive(COLD), GUESS);
        assert_eq!(gaps(&[3, 5, 2, 20, 9, 4, 3, 2, 7]).keep_alive(COLD), Span::from_secs(30));
        assert_eq!(gaps(&[2, 2, 2, 2, 2, 2, 2, 2]).keep_alive(COLD), LEAST);
        assert_eq!(gaps(&[2_000; 9].map(|gap| gap * 3)).keep_alive(COLD), LEAST, "the next call can be foretold");
        assert_eq!(gaps(&[1, 9_000, 40, 2, 3_000, 3, 8, 5_000]).keep_alive(COLD), MOST);
    }

    #[test]
    fn calls_at_equal_times_are_foretold() {
        let regular = gaps(&[60, 61, 59, 60, 62, 60, 60, 59]).regular(COLD);
        assert_eq!(regular, Some((Span::from_secs(59), Span::from_millis(68_200))));
        assert_eq!(gaps(&[60, 9, 59, 160, 62, 60, 60, 59]).regular(COLD), None);
        assert_eq!(gaps(&[6, 6, 6, 6, 6, 6, 6, 6]).regular(COLD), None, "not worth a start");
    }
}
