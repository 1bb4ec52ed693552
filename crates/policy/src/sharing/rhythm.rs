//! When a process that works at regular times begins the next time.

use crate::{Span, Time};

/// Averages are over about so many times.
const OVER: u64 = 8;
/// It is regular where times are off by less than this part of the interval on average.
const REGULAR: u64 = 16;
/// Where it did not come so often, it is not waited for any more.
const MISSED: u64 = 3;

/// What is known of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rhythm {
    last: Option<Time>,
    /// From one time to the next, and by how much that was off, on average.
    every: Span,
    off: Span,
    times: u64,
}

impl Rhythm {
    /// It began to work.
    pub(super) fn began(&mut self, at: Time) {
        if let Some(last) = self.last.replace(at) {
            let every = at - last;
            let off = (every - self.every) + (self.every - every);
            let mean = |old: Span, new: Span| old.scale(OVER - 1, OVER) + new.scale(1, OVER);
            let is_first = self.times == 0;
            self.every = if is_first { every } else { mean(self.every, every) };
            self.off = if is_first { every } else { mean(self.off, off) };
            self.times += 1;
        }
    }

    /// When it is expected next, and by how much that may be off; `None` where it is not known or comes no more.
    pub(super) fn next(&self, now: Time) -> Option<(Time, Span)> {
        let last = self.last.filter(|_| self.times >= OVER && self.off < self.every.scale(1, REGULAR))?;
        let off = self.off.scale(2, 1);
        let times = (1..=MISSED).map(|times| last + self.every.scale(times, 1));
        times.into_iter().find(|at| now < *at + off).map(|at| (at, off))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn what_comes_regularly_is_expected_and_what_does_not_is_not() {
        let mut rhythm = Rhythm::default();
        for time in 0..100 {
            rhythm.began(at(25_000 * time + time % 3 * 100));
        }
        let (next, off) = rhythm.next(at(99 * 25_000 + 6_000)).expect("it is regular");
        let expected = at(100 * 25_000);
        assert!(next - expected < Span::from_micros(300) && expected - next < Span::from_micros(300), "{next:?}");
        assert!(off < Span::from_millis(1), "{off:?}");
        let missed = rhythm.next(at(100 * 25_000 + 6_000)).expect("the one after").0;
        assert!(missed - next == Span::from_millis(25) || missed - next > Span::from_millis(24));
        assert_eq!(rhythm.next(at(200 * 25_000)), None, "it comes no more");
        for (index, time) in [3, 5, 17, 18, 40, 41, 60, 90, 91, 99].iter().enumerate() {
            rhythm.began(at(100 * 25_000 + time * 5_000));
            assert!(index < 3 || rhythm.next(at(100 * 25_000 + time * 5_000)).is_none());
        }
    }
}
