//! The throttle level of a GPU: how much best-effort work may disturb. One more after it was shown to be step_up, half after
//! it was shown not to be, and a level that was not step_up is left alone for a time that doubles whenever it is not again.

use super::config::{HELD, SharingConfig};
use crate::{Span, Time};

/// The level and what became of the others.
#[derive(Clone, Debug)]
pub(super) struct ThrottleLevel {
    level: usize,
    /// By level: not before then, and for how long the next time.
    retry: Vec<(Time, Span)>,
}

impl ThrottleLevel {
    /// In the middle: what is wrong with it shows either way.
    pub(super) fn new(config: &SharingConfig) -> ThrottleLevel {
        ThrottleLevel { level: config.levels / 2, retry: vec![(Time::ZERO, config.retry_first); config.levels] }
    }

    pub(super) fn get(&self) -> usize {
        self.level
    }

    /// The level was step_up. Whether another is tried.
    pub(super) fn step_up(&mut self, now: Time, config: &SharingConfig) -> bool {
        self.retry[self.level].1 = config.retry_first;
        let next = self.level + 1;
        let is_open = self.retry.get(next).is_some_and(|(not_before, _)| *not_before <= now);
        if is_open {
            self.level = next;
        }
        is_open
    }

    /// The level was not step_up. Whether there is a lower one.
    pub(super) fn back_off(&mut self, now: Time, config: &SharingConfig) -> bool {
        if self.level == HELD {
            return false;
        }
        let (not_before, wait) = &mut self.retry[self.level];
        *not_before = now + *wait;
        *wait = wait.scale(2, 1).min(config.retry_most);
        self.level /= 2;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn up_by_one_down_by_half_and_what_was_bad_later_and_later() {
        let config = SharingConfig::default();
        let mut level = ThrottleLevel::new(&config);
        assert_eq!(level.get(), 4);
        assert!(level.back_off(at(0), &config) && level.get() == 2);
        assert!(level.step_up(at(0), &config) && level.get() == 3);
        assert!(!level.step_up(at(4), &config), "four was bad five seconds ago");
        assert!(level.step_up(at(5), &config) && level.get() == 4);
        assert!(level.back_off(at(5), &config) && level.get() == 2);
        assert!(level.step_up(at(5), &config) && level.get() == 3);
        assert!(!level.step_up(at(14), &config) && level.step_up(at(15), &config), "ten seconds the second time");
        for _ in 0..10 {
            level.back_off(at(20), &config);
        }
        assert_eq!(level.get(), HELD);
        assert!(!level.back_off(at(20), &config));
    }
}
