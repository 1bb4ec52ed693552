//! When a process that works at regular times begins the next time.

use super::SharingConfig;
use crate::{Span, Time};

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
    pub(super) fn began(&mut self, at: Time, config: &SharingConfig) {
        if let Some(last) = self.last.replace(at) {
            let every = at - last;
            let off = (every - self.every) + (self.every - every);
            let over = config.intervals();
            let mean = |old: Span, new: Span| old.scale(over - 1, over) + new.scale(1, over);
            let is_first = self.times == 0;
            self.every = if is_first { every } else { mean(self.every, every) };
            self.off = if is_first { every } else { mean(self.off, off) };
            self.times += 1;
        }
    }

    /// When it is expected next, and by how much that may be off; `None` where it is not known or comes no more.
    ///
    /// A process is regular when the time for which it is expected is no more than the slack of its interval. It is not
    /// waited for any more after it missed as many times as decide a test.
    pub(super) fn next(&self, now: Time, config: &SharingConfig) -> Option<(Time, Span)> {
        let off = self.off.scale(2, 1);
        let last = self.last.filter(|_| self.times >= config.intervals() && off < config.slack_of(self.every))?;
        let times = (1..=config.decisive()).map(|times| last + self.every.scale(times, 1));
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
        let (mut rhythm, config) = (Rhythm::default(), &SharingConfig::default());
        for time in 0..100 {
            rhythm.began(at(25_000 * time + time % 3 * 100), config);
        }
        let (next, off) = rhythm.next(at(99 * 25_000 + 6_000), config).expect("it is regular");
        let expected = at(100 * 25_000);
        assert!(next - expected < Span::from_micros(300) && expected - next < Span::from_micros(300), "{next:?}");
        assert!(off < Span::from_millis(1), "{off:?}");
        let missed = rhythm.next(at(100 * 25_000 + 6_000), config).expect("the one after").0;
        assert!(missed - next == Span::from_millis(25) || missed - next > Span::from_millis(24));
        assert_eq!(rhythm.next(at(200 * 25_000), config), None, "it comes no more");
        for (index, time) in [3, 5, 17, 18, 40, 41, 60, 90, 91, 99].iter().enumerate() {
            rhythm.began(at(100 * 25_000 + time * 5_000), config);
            assert!(index < 3 || rhythm.next(at(100 * 25_000 + time * 5_000), config).is_none());
        }
    }
}
