//! Whether a best-effort process's work may be on the GPU at this moment. Plain values in, yes or no out.
//!
//! The gate holds launches, but what was launched runs on, and beside a kernel of 50 ms the GPU changes hands again and
//! again within somebody's burst. Where the daemon says that nothing may run there, what runs is off until
//! [`LINGER_NS`] after the burst: the next may be about to begin, and to go off and come back costs both sides.
//!
//! | what fails | what becomes of the work |
//! |---|---|
//! | the daemon is dead | it is on |
//! | the control page is rubbish | it is on |
//! | a more important tenant is killed or stopped in a burst | it is on when that burst is over by the rules of [`gate`](crate::gate) |
//! | somebody's bursts never end | it is on for [`REST_NS`] after every [`OFF_MAX_NS`], so that no program looks as if it hung for ever |

#![deny(unsafe_code)]

use crate::gate::{self, Rival};
use shm::{Class, Control, Filling, Mode};

/// How long after a burst it stays off; `policy::sharing::LINGER` is the simulator's.
pub const LINGER_NS: u64 = 200_000;
/// It is off for no longer than this in one go.
pub const OFF_MAX_NS: u64 = 10_000_000_000;
/// And then on for this long.
pub const REST_NS: u64 = 20_000_000;

/// What is remembered from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Off until then, unless somebody is in a burst.
    off_until_ns: u64,
    /// Since when it has been off; 0 while it is on.
    off_since_ns: u64,
    /// On until then, whoever is in a burst.
    rest_until_ns: u64,
}

impl Turn {
    /// Whether the work is to be off. `control` is none where there is no daemon.
    pub fn is_off(&mut self, now_ns: u64, control: Option<&Control>, mut rivals: impl Iterator<Item = Rival>) -> bool {
        let off = control.is_some_and(|control| {
            let told = control.class == Class::BestEffort
                && control.mode == Mode::Time
                && control.filling == Filling::Nothing
                && !gate::daemon_is_dead(control.heartbeat_ns, now_ns);
            if told && (control.held || rivals.any(|rival| gate::in_burst(&rival, now_ns))) {
                self.off_until_ns = now_ns + LINGER_NS;
            }
            told && now_ns < self.off_until_ns && now_ns >= self.rest_until_ns
        });
        if !off {
            self.off_since_ns = 0;
            return false;
        }
        if self.off_since_ns == 0 {
            self.off_since_ns = now_ns;
        }
        if now_ns - self.off_since_ns.min(now_ns) < OFF_MAX_NS {
            return true;
        }
        (self.off_since_ns, self.rest_until_ns) = (0, now_ns + REST_NS);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gate::in_burst;
    use proptest::prelude::*;
    use shm::BURST_IDLE_NS;

    const NOW: u64 = 1_000_000_000_000;
    const IDLE: Rival = Rival { burst_since_ns: 0, busy_until_ns: 0, gap_ns: 0, syncing_since_ns: 0 };
    const BURST: Rival = Rival { burst_since_ns: NOW, busy_until_ns: NOW + 800_000, gap_ns: 0, syncing_since_ns: 0 };

    fn told() -> Control {
        Control { class: Class::BestEffort, filling: Filling::Nothing, heartbeat_ns: NOW, ..Control::UNLIMITED }
    }

    fn off(turn: &mut Turn, now_ns: u64, control: Control, rival: Rival) -> bool {
        turn.is_off(now_ns, Some(&Control { heartbeat_ns: now_ns, ..control }), std::iter::once(rival))
    }

    #[test]
    fn it_is_off_from_the_beginning_of_a_burst_to_a_little_after_its_end() {
        let mut turn = Turn::default();
        assert!(!off(&mut turn, NOW, told(), IDLE));
        assert!(off(&mut turn, NOW + 10, told(), BURST));
        assert!(off(&mut turn, NOW + 500_000, told(), BURST));
        assert!(off(&mut turn, NOW + 500_000 + LINGER_NS - 1, told(), IDLE));
        assert!(!off(&mut turn, NOW + 500_000 + LINGER_NS, told(), IDLE));
        assert!(off(&mut turn, NOW + 900_000, Control { held: true, ..told() }, IDLE), "held is held");
    }

    #[test]
    fn others_are_never_off_nor_anybody_without_a_daemon() {
        let check = |control: Control| Turn::default().is_off(NOW, Some(&control), std::iter::once(BURST));
        assert!(check(told()));
        assert!(!check(Control { class: Class::Standard, ..told() }));
        assert!(!check(Control { mode: Mode::Space, ..told() }));
        assert!(!check(Control { filling: Filling::Gaps, ..told() }));
        assert!(!check(Control { heartbeat_ns: NOW - shm::HEARTBEAT_MAX_NS - 1, held: true, ..told() }));
        assert!(!Turn::default().is_off(NOW, None, std::iter::once(BURST)));
    }

    #[test]
    fn a_burst_whose_process_is_gone_ends() {
        let after = BURST.busy_until_ns + BURST_IDLE_NS;
        assert!(in_burst(&BURST, after - 1) && !in_burst(&BURST, after));
        let waits = Rival { syncing_since_ns: NOW, ..BURST };
        assert!(in_burst(&waits, NOW + shm::SYNC_MAX_NS - 1) && !in_burst(&waits, NOW + shm::SYNC_MAX_NS));
    }

    proptest! {
        #[test]
        fn nobody_is_off_for_ever(words in proptest::collection::vec(any::<u64>(), 4), held: bool, step in 1_000_000u64..100_000_000) {
            let rival = Rival { burst_since_ns: words[0], busy_until_ns: words[1], gap_ns: words[2], syncing_since_ns: words[3] };
            let mut turn = Turn::default();
            let (mut now, mut on, mut off_in_a_row) = (NOW, 0u64, 0u64);
            while now < NOW + 3 * OFF_MAX_NS {
                if off(&mut turn, now, Control { held, ..told() }, rival) {
                    off_in_a_row += step;
                } else {
                    (on, off_in_a_row) = (on + step, 0);
                }
                prop_assert!(off_in_a_row <= OFF_MAX_NS + 2 * step);
                now += step;
            }
            prop_assert!(on > 0);
        }
    }
}
