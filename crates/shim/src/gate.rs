//! Who waits: whether a launch may go to the driver now. Plain values in, [`Decision`] out.
//!
//! | what fails | what a launch does |
//! |---|---|
//! | no daemon was ever found | goes; nothing is limited, which is said once |
//! | the daemon speaks another version | goes; said once |
//! | the daemon is dead (its heartbeat is older than 100 ms) | latency and standard: goes. Best-effort: goes, with half the depth; bursts of others still hold it. No quota. Memory limits hold on, from the page |
//! | a new daemon is there | its predecessor's heartbeat stops: from 10 ms on, launches look every 10 ms whether it hung up, connect without waiting, and obey the new one from then on; those of who is alone, from the next burst on |
//! | the control page is rubbish | as without a daemon |
//! | a more important tenant's page is rubbish, or the tenant is killed or stopped in a burst | its burst counts until 2 ms after its predicted end, or 200 ms after it began to wait for the GPU, and never holds one launch for longer than 20 ms; a daemon clears its page before that |
//! | the daemon holds the gate and dies | the gate is open 100 ms later |
//! | nobody wakes a sleeper | it looks again after 1 ms |
//! | the estimate of a kernel is wrong | too much or too little is let through until a sync or a sample corrects it |
//! | our own code panics | goes |
//!
//! Isolation wins over availability nowhere but in memory: an allocation over the limit is refused, also without daemon.

#![deny(unsafe_code)]

use share_core::{BusyPeriod, Patience, daemon_is_dead, is_syncing};
use shm::{Class, Control, Filling, NO_LIMIT};

/// Nobody sleeps longer than this without looking again.
pub const LOOK_AGAIN_NS: u64 = 1_000_000;
/// Bursts of others hold one launch for at most this long; only the daemon's gate and quota hold it for longer.
pub const YIELD_MAX_NS: u64 = 20_000_000;
/// Nobody is woken when a burst of another tenant ends, so it is looked for more often.
const BURST_LOOK_NS: u64 = 200_000;
/// A daemon whose heartbeat is older is worth a look at its connection.
const HEARTBEAT_LATE_NS: u64 = 10_000_000;
/// For how long others' claims are believed.
const PATIENCE: &Patience = &Patience::USUAL;

/// What is known about the launch and its process.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The time.
    pub now_ns: u64,
    /// How long the kernel is thought to take.
    pub duration_ns: u64,
    /// When the work that was launched before is thought to be done.
    pub busy_until_ns: u64,
    /// GPU time charged so far.
    pub charged_ns: u64,
    /// How long this launch has waited already.
    pub waited_ns: u64,
}

/// What a launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the driver.
    Go,
    /// It sleeps until the gate changes or this long, and asks again.
    Wait {
        /// At most [`LOOK_AGAIN_NS`].
        at_most_ns: u64,
    },
}

/// Whether the daemon may be gone: there may be another to go to. What it said still holds.
#[inline]
pub fn daemon_is_late(heartbeat_ns: u64, now_ns: u64) -> bool {
    daemon_is_dead(heartbeat_ns, now_ns, &Patience { heartbeat_ns: HEARTBEAT_LATE_NS, ..Patience::USUAL })
}

/// Whether a launch may go.
pub fn decide(launch: &Launch, control: &Control, rivals: impl IntoIterator<Item = BusyPeriod>) -> Decision {
    let dead = daemon_is_dead(control.heartbeat_ns, launch.now_ns, PATIENCE);
    if !dead && control.allowed_ns != NO_LIMIT && launch.charged_ns >= control.allowed_ns {
        return wait(LOOK_AGAIN_NS);
    }
    if control.class == Class::Latency {
        return Decision::Go;
    }
    if !dead && control.held {
        return wait(LOOK_AGAIN_NS);
    }
    if control.class == Class::BestEffort {
        let depth = if dead { control.depth_ns / 2 } else { control.depth_ns };
        let outstanding = launch.busy_until_ns.saturating_sub(launch.now_ns);
        if outstanding > depth {
            return wait(outstanding - depth);
        }
    }
    let fills = match control.filling {
        Filling::Anything => true,
        Filling::Short => launch.duration_ns <= control.depth_ns,
        Filling::Gaps | Filling::Nothing => false,
    };
    if launch.waited_ns >= YIELD_MAX_NS || fills && control.class == Class::BestEffort {
        return Decision::Go;
    }
    let hold = |rival: BusyPeriod| match control.filling {
        Filling::Nothing => u64::from(rival.is_on(launch.now_ns, PATIENCE)) * BURST_LOOK_NS,
        _ => hold(launch, &rival),
    };
    let longest = rivals.into_iter().map(hold).max().unwrap_or(0);
    if longest == 0 { Decision::Go } else { wait(longest.min(BURST_LOOK_NS)) }
}

/// How long a rival's burst holds a launch. Between its kernels there is room for what fits the predicted gap.
fn hold(launch: &Launch, rival: &BusyPeriod) -> u64 {
    let now = launch.now_ns;
    if rival.since_ns == 0 || rival.until_ns.saturating_sub(now) > PATIENCE.ahead_ns {
        return 0;
    }
    if is_syncing(rival.syncing_since_ns, now, PATIENCE) {
        return BURST_LOOK_NS;
    }
    let gap_ends = rival.until_ns.saturating_add(rival.gap_ns);
    if now >= gap_ends.saturating_add(PATIENCE.idle_ns) {
        return 0;
    }
    if now < rival.until_ns {
        // What is in the gap is asked again when the gap is there.
        return rival.until_ns - now;
    }
    if launch.duration_ns > 0 && now.saturating_add(launch.duration_ns) <= gap_ends {
        return 0;
    }
    gap_ends.saturating_add(PATIENCE.idle_ns) - now
}

fn wait(nanoseconds: u64) -> Decision {
    Decision::Wait { at_most_ns: nanoseconds.clamp(1, LOOK_AGAIN_NS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Decision::{Go, Wait};
    use proptest::prelude::*;

    const NOW: u64 = 1_000_000_000_000;
    const LAUNCH: Launch = Launch { now_ns: NOW, duration_ns: 50_000, busy_until_ns: 0, charged_ns: 0, waited_ns: 0 };
    const IDLE: BusyPeriod = BusyPeriod { since_ns: 0, until_ns: 0, gap_ns: 0, syncing_since_ns: 0 };

    fn control(class: Class) -> Control {
        Control { class, heartbeat_ns: NOW - 1_000_000, ..Control::UNLIMITED }
    }

    #[test]
    fn latency_tenants_wait_for_their_quota_alone() {
        let held = Control { held: true, above: !0, ..control(Class::Latency) };
        let burst = BusyPeriod { since_ns: 1, until_ns: NOW + 1000, gap_ns: 0, syncing_since_ns: 0 };
        assert_eq!(decide(&LAUNCH, &held, [burst]), Go);
        let spent = Control { allowed_ns: 0, ..held };
        assert_eq!(decide(&LAUNCH, &spent, [IDLE]), Wait { at_most_ns: LOOK_AGAIN_NS });
        let dead = Control { heartbeat_ns: NOW - PATIENCE.heartbeat_ns - 1, ..spent };
        assert_eq!(decide(&LAUNCH, &dead, [IDLE]), Go);
    }

    #[test]
    fn a_daemon_is_looked_for_before_its_word_is_void() {
        let seen = |age: u64| (daemon_is_late(NOW - age, NOW), daemon_is_dead(NOW - age, NOW, PATIENCE));
        assert_eq!(seen(5_000_000), (false, false));
        assert_eq!(seen(15_000_000), (true, false));
        assert_eq!(seen(PATIENCE.heartbeat_ns + 1), (true, true));
        assert!(daemon_is_late(NOW + 2 * PATIENCE.ahead_ns, NOW), "rubbish");
    }

    #[test]
    fn the_gate_holds_others_while_the_daemon_lives() {
        for class in [Class::Standard, Class::BestEffort] {
            let held = Control { held: true, ..control(class) };
            assert_eq!(decide(&LAUNCH, &held, []), Wait { at_most_ns: LOOK_AGAIN_NS });
            assert_eq!(decide(&LAUNCH, &Control { heartbeat_ns: 0, ..held }, []), Go);
        }
    }

    #[test]
    fn best_effort_work_is_bounded_in_time_and_more_so_without_a_daemon() {
        let queued = Launch { busy_until_ns: NOW + 150_000, ..LAUNCH };
        let live = control(Class::BestEffort);
        assert_eq!(decide(&queued, &live, []), Go);
        assert_eq!(decide(&queued, &Control { heartbeat_ns: 0, ..live }, []), Wait { at_most_ns: 50_000 });
        let full = Launch { busy_until_ns: NOW + 210_000, ..LAUNCH };
        assert_eq!(decide(&full, &live, []), Wait { at_most_ns: 10_000 });
        assert_eq!(decide(&full, &control(Class::Standard), []), Go);
    }

    #[test]
    fn what_goes_beside_a_burst_is_the_daemons_to_say() {
        let burst = BusyPeriod { since_ns: 1, until_ns: NOW + 1_000_000, gap_ns: 0, syncing_since_ns: 0 };
        let check =
            |filling, depth_ns, class| decide(&LAUNCH, &Control { filling, depth_ns, ..control(class) }, [burst]) == Go;
        assert!(!check(Filling::Gaps, 200_000, Class::BestEffort));
        assert!(check(Filling::Anything, 1, Class::BestEffort));
        assert!(check(Filling::Short, 50_000, Class::BestEffort));
        assert!(!check(Filling::Short, 49_999, Class::BestEffort));
        assert!(!check(Filling::Nothing, 200_000, Class::BestEffort));
        let gap = BusyPeriod { until_ns: NOW - 1, gap_ns: 1_000_000, ..burst };
        let nothing = Control { filling: Filling::Nothing, ..control(Class::BestEffort) };
        assert_eq!(decide(&LAUNCH, &nothing, [gap]), Wait { at_most_ns: BURST_LOOK_NS }, "not in gaps either");
        assert_eq!(decide(&LAUNCH, &nothing, [IDLE]), Go);
    }

    #[test]
    fn a_kernel_goes_into_a_gap_that_it_fits() {
        let live = control(Class::BestEffort);
        let check = |busy: u64, gap_ns: u64| {
            decide(&LAUNCH, &live, [BusyPeriod { since_ns: NOW - 1, until_ns: busy, gap_ns, syncing_since_ns: 0 }])
        };
        assert_eq!(check(NOW + 7_000, 100_000), Wait { at_most_ns: 7_000 });
        assert_eq!(check(NOW - 7_000, 100_000), Go);
        assert_eq!(check(NOW - 7_000, 50_000), Wait { at_most_ns: BURST_LOOK_NS });
        assert_eq!(check(NOW - 60_000, 0), Wait { at_most_ns: BURST_LOOK_NS });
        assert_eq!(check(NOW - PATIENCE.idle_ns, 0), Go, "it launched nothing for so long that it is idle or dead");
        assert_eq!(check(u64::MAX, u64::MAX), Go, "rubbish");
        let late = BusyPeriod { since_ns: 1, until_ns: 1, gap_ns: 0, syncing_since_ns: NOW - 50_000_000 };
        assert_eq!(decide(&LAUNCH, &live, [late]), Wait { at_most_ns: BURST_LOOK_NS }, "it waits for its work");
        let stale = BusyPeriod { syncing_since_ns: NOW - PATIENCE.sync_ns, ..late };
        assert_eq!(decide(&LAUNCH, &live, [stale]), Go);
    }

    proptest! {
        #[test]
        fn nobody_sleeps_long_and_bursts_hold_nobody_for_ever(
            words in proptest::collection::vec(any::<u64>(), 12), class in 0u32..3, held: bool,
        ) {
            let launch = Launch {
                now_ns: words[0], duration_ns: words[1], busy_until_ns: words[2], charged_ns: words[3],
                waited_ns: words[4],
            };
            let control = Control {
                class: Class::from_word(class), held, heartbeat_ns: words[5], allowed_ns: words[6], depth_ns: words[7],
                ..Control::UNLIMITED
            };
            let rival = BusyPeriod { since_ns: words[8], until_ns: words[9], gap_ns: words[10], syncing_since_ns: words[11] };
            if let Wait { at_most_ns } = decide(&launch, &control, [rival]) {
                prop_assert!(at_most_ns > 0 && at_most_ns <= LOOK_AGAIN_NS);
            }
            let patient = Launch { waited_ns: YIELD_MAX_NS, busy_until_ns: 0, ..launch };
            let open = Control { held: false, allowed_ns: NO_LIMIT, ..control };
            prop_assert_eq!(decide(&patient, &open, [rival]), Go);
        }
    }
}
