//! Who is let in when more is asked for than can be done: the highest priorities first.
//!
//! Deadlines decide who can be served; under overload that is some of everybody. Priorities say who should be. Each
//! model has a bar: requests of a priority below it are turned away before they are queued. While requests that were
//! let in are refused later, the bar rises as far as the numbers say it must; when all is well it comes down a step
//! at a time (after the admission control of WeChat's DAGOR, Zhou and others, 2018, with a bar per model).
//!
//! Priority 0 is never turned away here, and where all have one priority nobody is: the dispatcher refuses enough.

use crate::{Span, Time};

/// Priorities from 0, the highest, to 9.
pub const PRIORITIES: usize = 10;
/// How long requests are counted before the bar is looked at.
const WINDOW: Span = Span::from_millis(100);
/// Refusals among those let in, in thousandths, above which the bar rises and below which it comes down.
const BAD: (u64, u64) = (10, 2);

/// The bar of one model.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Requests that came in this window, by priority.
    came: [u64; PRIORITIES],
    /// Of those let in, how many were refused later.
    refused: u64,
    admitted: u64,
    /// So many priorities, from the lowest on, are turned away.
    closed: usize,
    until: Time,
}

impl Admission {
    /// Whether a request of this priority is let in.
    pub fn admits(&mut self, now: Time, priority: u8) -> bool {
        if now >= self.until {
            self.turn(now);
        }
        let priority = usize::from(priority).min(PRIORITIES - 1);
        self.came[priority] += 1;
        let admitted = priority < PRIORITIES - self.closed;
        self.admitted += u64::from(admitted);
        admitted
    }

    /// Takes note that a request that was let in was refused.
    pub fn refused(&mut self) {
        self.refused += 1;
    }

    fn turn(&mut self, now: Time) {
        let Admission { came, refused, admitted, closed, .. } = std::mem::take(self);
        *self = Admission { closed, until: now + WINDOW, ..Admission::default() };
        if refused * 1_000 > admitted * BAD.0 {
            // Close as many of the lowest priorities as make up for the refusals, and never the highest that came.
            let highest = came.iter().position(|count| *count > 0).unwrap_or(0);
            let mut spared = 0;
            while self.closed < PRIORITIES - 1 - highest && spared < refused {
                spared += came[PRIORITIES - 1 - self.closed];
                self.closed += 1;
            }
        } else if refused * 1_000 <= admitted * BAD.1 {
            // The next priority that anybody asks with.
            while self.closed > 0 {
                self.closed -= 1;
                if came[PRIORITIES - 1 - self.closed] > 0 {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that does `capacity` requests a window and refuses the rest of those let in, `windows` times; how
    /// many of each priority were served in the last half.
    fn served(offered: [u64; PRIORITIES], capacity: u64, windows: usize) -> [u64; PRIORITIES] {
        let mut admission = Admission::default();
        let mut served = [0; PRIORITIES];
        for window in 0..windows {
            let mut room = capacity;
            let most = offered.iter().max().copied().unwrap_or(0);
            for round in 0..most {
                for priority in (0..PRIORITIES).filter(|priority| round < offered[*priority]) {
                    let now = Time::ZERO + WINDOW * window + WINDOW.scale(round, most + 1);
                    if !admission.admits(now, priority as u8) {
                        continue;
                    }
                    if room == 0 {
                        admission.refused();
                    } else {
                        room -= 1;
                        served[priority] += u64::from(window * 2 >= windows);
                    }
                }
            }
        }
        served
    }

    #[test]
    fn under_overload_the_highest_priorities_are_served() {
        let mut offered = [0; PRIORITIES];
        (offered[0], offered[5], offered[9]) = (50, 100, 300);
        let served = served(offered, 100, 100);
        let all_of_the_highest = 50 * 50;
        assert!(served[0] * 100 >= all_of_the_highest * 90, "{served:?}");
        assert!(served[9] < served[5], "{served:?}");
    }

    #[test]
    fn with_room_for_all_nobody_is_turned_away() {
        let mut offered = [0; PRIORITIES];
        (offered[0], offered[9]) = (40, 50);
        let served = served(offered, 100, 100);
        assert_eq!((served[0], served[9]), (40 * 50, 50 * 50));
    }

    #[test]
    fn where_all_are_equal_nobody_is_turned_away_here() {
        let mut offered = [0; PRIORITIES];
        offered[7] = 300;
        let served = served(offered, 100, 20);
        assert_eq!(served[7], 100 * 10);
    }
}
