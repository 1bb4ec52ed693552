//! How much a worker may have to do within the time to a first token, as seen lately.
//!
//! Time is cut into windows as long as the TTFT; each has the time that prompts which arrived in it take. Sequences that
//! decode just in time have tokens due in every window, and those take room from a burst. How much may be due is found from the
//! windows that were seen: the most with which only [`RISK`] of the arriving work would overflow that would not overflow
//! otherwise. A window counts only if the one before left room: in the middle of a long burst nothing is deferred anyway.

use crate::{Span, Time};

/// The part of arriving work that may find no room because steps are deferred: a fifth of the one in a hundred that goodput
/// allows.
const RISK: f64 = 0.002;
/// Windows that are remembered: two minutes at a TTFT of 500 ms.
const WINDOWS: usize = 256;
/// The part of a window that can be used: the step that runs when a burst begins has to end first.
const USABLE: f64 = 0.85;

#[derive(Debug)]
pub(super) struct Bursts {
    window: Span,
    ends: Time,
    current: f64,
    seen: Vec<f64>,
    next: usize,
    allowance: f64,
}

impl Default for Bursts {
    fn default() -> Bursts {
        let window = Span::from_millis(500);
        Bursts { window, ends: Time::ZERO, current: 0.0, seen: Vec::new(), next: 0, allowance: f64::INFINITY }
    }
}

impl Bursts {
    /// A prompt that takes so many nanoseconds arrived.
    pub(super) fn record(&mut self, now: Time, ttft: Span, work: f64) {
        if self.ends == Time::ZERO {
            self.window = ttft.max(Span::from_nanos(1));
            self.ends = now + self.window;
        }
        self.window = self.window.min(ttft.max(Span::from_nanos(1)));
        if now >= self.ends {
            // A pause longer than all that is remembered leaves nothing.
            let passed = 1 + (now - self.ends).nanos() / self.window.nanos();
            for _ in 0..passed.min(WINDOWS as u64) {
                let work = std::mem::take(&mut self.current);
                match self.seen.get_mut(self.next) {
                    Some(place) => *place = work,
                    None => self.seen.push(work),
                }
                self.next = (self.next + 1) % WINDOWS;
            }
            self.ends += self.window.scale(passed, 1);
            self.allowance = self.found();
        }
        self.current += work;
    }

    /// The time to a first token.
    pub(super) fn window(&self) -> Span {
        self.window
    }

    /// Nanoseconds that tokens due within a window may take.
    pub(super) fn allowance(&self) -> f64 {
        self.allowance.min(self.usable())
    }

    fn usable(&self) -> f64 {
        self.window.nanos() as f64 * USABLE
    }

    fn found(&self) -> f64 {
        let usable = self.usable();
        let all: f64 = self.seen.iter().sum();
        let count = self.seen.len();
        let before = |place: usize| self.seen[(place + count - 1) % count];
        let onsets: Vec<f64> =
            (0..count).filter(|place| before(*place) < usable / 2.0).map(|place| self.seen[place]).collect();
        let lost = |due: f64| -> f64 {
            onsets.iter().map(|work| (work + due - usable).max(0.0) - (work - usable).max(0.0)).sum()
        };
        let (mut good, mut bad) = (0.0, usable);
        if lost(bad) <= RISK * all {
            return usable;
        }
        for _ in 0..12 {
            let middle = (good + bad) / 2.0;
            if lost(middle) <= RISK * all { good = middle } else { bad = middle }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be due when every tenth window has so much work and the others have 20 ms.
    fn check(burst_ms: f64) -> f64 {
        let mut bursts = Bursts::default();
        for window in 0..300u64 {
            let work = if window % 10 == 0 { burst_ms } else { 20.0 };
            bursts.record(Time::ZERO + Span::from_millis(1 + 500 * window), Span::from_millis(500), work * 1e6);
        }
        (bursts.allowance() / 1e6).round()
    }

    #[test]
    fn the_larger_the_bursts_the_less_may_be_due() {
        let found = [20.0, 200.0, 300.0, 400.0].map(check);
        assert_eq!(found[0], 405.0);
        assert!(found.is_sorted_by(|left, right| left > right) && found[3] > 20.0, "{found:?}");
    }
}
