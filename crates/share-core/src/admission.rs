//! May this kernel be launched now? A function of a few plain values, which a program asks for every launch that is not
//! plainly free to go, and the simulator for every simulated one.
//!
//! 1. A tenant past its allowance waits, whatever its class.
//! 2. A latency tenant waits for nothing else.
//! 3. A closed gate holds everyone else. Best-effort tenants also wait for their own in-flight budget.
//! 4. During a busy period of a more important tenant, the [`Admission`] says what may go beside it. No busy period holds
//!    one launch for longer than [`Patience::yield_ns`]; only the daemon's gate and allowance do.
//! 5. A daemon that fell silent bounds nobody's time: its gate and its allowances are void. What stays is half of the
//!    budget of best-effort tenants, and the busy periods of others.
//!
//! Whoever waits asks again after at most [`Patience::recheck_ns`].

use crate::{Admission, BusyPeriod, Class, Patience, daemon_is_dead, is_syncing};

/// How much best-effort work may be in flight unless the daemon says otherwise.
pub const BUDGET_NS: u64 = 200_000;

/// An allowance that allows everything.
pub const NO_LIMIT: u64 = u64::MAX;

/// A launch, and what its process knows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch {
    /// The time.
    pub now_ns: u64,
    /// How long the kernel is predicted to take.
    pub duration_ns: u64,
    /// When the work launched before is predicted to be done.
    pub busy_until_ns: u64,
    /// GPU time charged so far.
    pub charged_ns: u64,
    /// How long this launch has waited already.
    pub waited_ns: u64,
}

/// What the daemon said to the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The tenant's class.
    pub class: Class,
    /// What it may launch during busy periods of others.
    pub admission: Admission,
    /// Whether its gate is closed.
    pub held: bool,
    /// What its charge may grow to.
    pub allowed_ns: u64,
    /// How much work it may have in flight.
    pub budget_ns: u64,
    /// When the daemon last gave a sign of life.
    pub heartbeat_ns: u64,
    /// From when somebody more important is expected to need the GPU, and until when it is waited for.
    pub reserved_from_ns: u64,
    /// 0: nobody is.
    pub reserved_until_ns: u64,
}

impl Limits {
    /// Whether the GPU is to be free for somebody who is about to need it. A reservation that is longer than any is rubbish.
    pub fn is_reserved(&self, now_ns: u64, patience: &Patience) -> bool {
        let (from, until) = (self.reserved_from_ns, self.reserved_until_ns);
        from <= now_ns && now_ns < until && until - from <= patience.yield_ns
    }
}

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the driver.
    Admit,
    /// It waits until the gate changes or this long, and asks again.
    Wait {
        /// Never more than [`Patience::recheck_ns`].
        at_most_ns: u64,
    },
}

/// Whether a launch may go, given the busy periods of the more important tenants.
pub fn admit_launch(
    launch: &Launch,
    limits: &Limits,
    rivals: impl IntoIterator<Item = BusyPeriod>,
    patience: &Patience,
) -> Decision {
    let wait = |ns: u64| Decision::Wait { at_most_ns: ns.clamp(1, patience.recheck_ns) };
    let dead = daemon_is_dead(limits.heartbeat_ns, launch.now_ns, patience);
    if !dead && limits.allowed_ns != NO_LIMIT && launch.charged_ns >= limits.allowed_ns {
        return wait(patience.recheck_ns);
    }
    if limits.class == Class::Latency {
        return Decision::Admit;
    }
    if !dead && limits.held {
        return wait(patience.recheck_ns);
    }
    if limits.class == Class::BestEffort {
        let budget = if dead { limits.budget_ns / 2 } else { limits.budget_ns };
        let in_flight = launch.busy_until_ns.saturating_sub(launch.now_ns);
        if in_flight > budget {
            return wait(in_flight - budget);
        }
    }
    let concurrent = match limits.admission {
        Admission::Concurrent => true,
        Admission::ShortOnly => launch.duration_ns <= limits.budget_ns,
        Admission::GapFill | Admission::Exclusive => false,
    };
    if launch.waited_ns >= patience.yield_ns || concurrent && limits.class == Class::BestEffort {
        return Decision::Admit;
    }
    let hold = |rival: BusyPeriod| match limits.admission {
        Admission::Exclusive => u64::from(rival.is_on(launch.now_ns, patience)) * patience.recheck_busy_ns,
        _ => hold_ns(launch, &rival, patience),
    };
    let reserved = limits.admission == Admission::Exclusive && !dead && limits.is_reserved(launch.now_ns, patience);
    let longest = if reserved { patience.recheck_busy_ns } else { rivals.into_iter().map(hold).max().unwrap_or(0) };
    if longest == 0 { Decision::Admit } else { wait(longest.min(patience.recheck_busy_ns)) }
}

/// How long a rival's busy period holds a launch. Between two of its kernels there is room for what fits the gap.
fn hold_ns(launch: &Launch, rival: &BusyPeriod, patience: &Patience) -> u64 {
    let now = launch.now_ns;
    if rival.since_ns == 0 || rival.until_ns.saturating_sub(now) > patience.ahead_ns {
        return 0;
    }
    if is_syncing(rival.syncing_since_ns, now, patience) {
        return patience.recheck_busy_ns;
    }
    let gap_ends = rival.until_ns.saturating_add(rival.gap_ns);
    if now >= gap_ends.saturating_add(patience.idle_ns) {
        return 0;
    }
    if now < rival.until_ns {
        // Whether it fits the gap is asked again when the gap is there.
        return rival.until_ns - now;
    }
    if launch.duration_ns > 0 && now.saturating_add(launch.duration_ns) <= gap_ends {
        return 0;
    }
    gap_ends.saturating_add(patience.idle_ns) - now
}

/// Whether a tenant's work is to be preempted now: the daemon, which is alive, wants it off the GPU during busy periods of
/// more important tenants, and there is one, or one is expected, or its gate is closed. How long that lasts is for the lease
/// to say.
pub fn wants_preemption(
    now_ns: u64,
    limits: &Limits,
    rivals: impl IntoIterator<Item = BusyPeriod>,
    patience: &Patience,
) -> bool {
    limits.class == Class::BestEffort
        && limits.admission == Admission::Exclusive
        && !daemon_is_dead(limits.heartbeat_ns, now_ns, patience)
        && (limits.held
            || limits.is_reserved(now_ns, patience)
            || rivals.into_iter().any(|rival| rival.is_on(now_ns, patience)))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use Decision::{Admit, Wait};
    use proptest::prelude::*;

    const NOW: u64 = 1_000_000_000_000;
    const USUAL: &Patience = &Patience::USUAL;
    const LAUNCH: Launch = Launch { now_ns: NOW, duration_ns: 50_000, busy_until_ns: 0, charged_ns: 0, waited_ns: 0 };
    const IDLE: BusyPeriod = BusyPeriod { since_ns: 0, until_ns: 0, gap_ns: 0, syncing_since_ns: 0 };
    const WHOLE_WAIT: Decision = Wait { at_most_ns: USUAL.recheck_ns };
    const BUSY_WAIT: Decision = Wait { at_most_ns: USUAL.recheck_busy_ns };

    fn limits(class: Class) -> Limits {
        Limits {
            class,
            admission: Admission::GapFill,
            held: false,
            allowed_ns: NO_LIMIT,
            budget_ns: 200_000,
            heartbeat_ns: NOW - 1_000_000,
            reserved_from_ns: 0,
            reserved_until_ns: 0,
        }
    }

    fn decide<const N: usize>(launch: &Launch, limits: &Limits, rivals: [BusyPeriod; N]) -> Decision {
        admit_launch(launch, limits, rivals, USUAL)
    }

    #[test]
    fn latency_tenants_wait_for_their_quota_alone() {
        let held = Limits { held: true, ..limits(Class::Latency) };
        let busy = BusyPeriod { since_ns: 1, until_ns: NOW + 1000, gap_ns: 0, syncing_since_ns: 0 };
        assert_eq!(decide(&LAUNCH, &held, [busy]), Admit);
        let spent = Limits { allowed_ns: 0, ..held };
        assert_eq!(decide(&LAUNCH, &spent, [IDLE]), WHOLE_WAIT);
        let dead = Limits { heartbeat_ns: NOW - USUAL.heartbeat_ns - 1, ..spent };
        assert_eq!(decide(&LAUNCH, &dead, [IDLE]), Admit);
    }

    #[test]
    fn the_gate_holds_others_while_the_daemon_lives() {
        for class in [Class::Standard, Class::BestEffort] {
            let held = Limits { held: true, ..limits(class) };
            assert_eq!(decide(&LAUNCH, &held, []), WHOLE_WAIT);
            assert_eq!(decide(&LAUNCH, &Limits { heartbeat_ns: 0, ..held }, []), Admit);
        }
    }

    #[test]
    fn best_effort_work_is_bounded_in_time_and_more_so_without_a_daemon() {
        let queued = Launch { busy_until_ns: NOW + 150_000, ..LAUNCH };
        let live = limits(Class::BestEffort);
        assert_eq!(decide(&queued, &live, []), Admit);
        assert_eq!(decide(&queued, &Limits { heartbeat_ns: 0, ..live }, []), Wait { at_most_ns: 50_000 });
        let full = Launch { busy_until_ns: NOW + 210_000, ..LAUNCH };
        assert_eq!(decide(&full, &live, []), Wait { at_most_ns: 10_000 });
        assert_eq!(decide(&full, &limits(Class::Standard), []), Admit);
    }

    #[test]
    fn what_goes_beside_a_busy_period_is_the_daemons_to_say() {
        let busy = BusyPeriod { since_ns: 1, until_ns: NOW + 1_000_000, gap_ns: 0, syncing_since_ns: 0 };
        let check = |admission, budget_ns, class| {
            decide(&LAUNCH, &Limits { admission, budget_ns, ..limits(class) }, [busy]) == Admit
        };
        assert!(!check(Admission::GapFill, 200_000, Class::BestEffort));
        assert!(check(Admission::Concurrent, 1, Class::BestEffort));
        assert!(check(Admission::ShortOnly, 50_000, Class::BestEffort));
        assert!(!check(Admission::ShortOnly, 49_999, Class::BestEffort));
        assert!(!check(Admission::Exclusive, 200_000, Class::BestEffort));
        let gap = BusyPeriod { until_ns: NOW - 1, gap_ns: 1_000_000, ..busy };
        let exclusive = Limits { admission: Admission::Exclusive, ..limits(Class::BestEffort) };
        assert_eq!(decide(&LAUNCH, &exclusive, [gap]), BUSY_WAIT, "not in gaps either");
        assert_eq!(decide(&LAUNCH, &exclusive, [IDLE]), Admit);
        assert!(wants_preemption(NOW, &exclusive, [gap], USUAL) && !wants_preemption(NOW, &exclusive, [IDLE], USUAL));
        assert!(wants_preemption(NOW, &Limits { held: true, ..exclusive }, [IDLE], USUAL));
        for not in [
            Limits { heartbeat_ns: 0, held: true, ..exclusive },
            Limits { class: Class::Standard, ..exclusive },
            Limits { admission: Admission::GapFill, held: true, ..exclusive },
        ] {
            assert!(!wants_preemption(NOW, &not, [gap], USUAL), "{not:?}");
        }
    }

    #[test]
    fn who_is_expected_finds_the_gpu_free_and_is_not_waited_for_long() {
        let exclusive = Limits { admission: Admission::Exclusive, ..limits(Class::BestEffort) };
        let reserved = |from_ns: u64, until_ns: u64| Limits {
            reserved_from_ns: from_ns,
            reserved_until_ns: until_ns,
            ..exclusive
        };
        let is_off = |limits: &Limits| {
            let off = wants_preemption(NOW, limits, [IDLE], USUAL);
            assert_eq!(off, decide(&LAUNCH, limits, [IDLE]) == BUSY_WAIT, "{limits:?}");
            off
        };
        assert!(is_off(&reserved(NOW - 1, NOW + 1)) && is_off(&reserved(NOW, NOW + 300_000)));
        assert!(!is_off(&reserved(NOW + 1, NOW + 300_000)), "not yet");
        assert!(!is_off(&reserved(NOW - 300_000, NOW)), "no more");
        assert!(!is_off(&reserved(NOW - 1, u64::MAX)), "rubbish");
        assert!(!is_off(&Limits { heartbeat_ns: 0, ..reserved(NOW - 1, NOW + 1) }), "nobody is there who said it");
        let fills = Limits { admission: Admission::GapFill, ..reserved(NOW - 1, NOW + 1) };
        assert!(!is_off(&fills), "who cannot be preempted is not held either");
    }

    #[test]
    fn a_kernel_goes_into_a_gap_that_it_fits() {
        let live = limits(Class::BestEffort);
        let check = |busy: u64, gap_ns: u64| {
            decide(&LAUNCH, &live, [BusyPeriod { since_ns: NOW - 1, until_ns: busy, gap_ns, syncing_since_ns: 0 }])
        };
        assert_eq!(check(NOW + 7_000, 100_000), Wait { at_most_ns: 7_000 });
        assert_eq!(check(NOW - 7_000, 100_000), Admit);
        assert_eq!(check(NOW - 7_000, 50_000), BUSY_WAIT);
        assert_eq!(check(NOW - 60_000, 0), BUSY_WAIT);
        assert_eq!(check(NOW - USUAL.idle_ns, 0), Admit, "it launched nothing for so long that it is idle or dead");
        assert_eq!(check(u64::MAX, u64::MAX), Admit, "rubbish");
        let late = BusyPeriod { since_ns: 1, until_ns: 1, gap_ns: 0, syncing_since_ns: NOW - 50_000_000 };
        assert_eq!(decide(&LAUNCH, &live, [late]), BUSY_WAIT, "it waits for its work");
        let stale = BusyPeriod { syncing_since_ns: NOW - USUAL.sync_ns, ..late };
        assert_eq!(decide(&LAUNCH, &live, [stale]), Admit);
    }

    proptest! {
        #[test]
        fn nobody_waits_long_and_busy_periods_hold_nobody_for_ever(
            words in proptest::collection::vec(any::<u64>(), 14), class in 0u32..3, admission in 0u32..4, held: bool,
        ) {
            let launch = Launch {
                now_ns: words[0], duration_ns: words[1], busy_until_ns: words[2], charged_ns: words[3],
                waited_ns: words[4],
            };
            let limits = Limits {
                class: Class::from_word(class), admission: Admission::from_word(admission), held,
                heartbeat_ns: words[5], allowed_ns: words[6], budget_ns: words[7],
                reserved_from_ns: words[12], reserved_until_ns: words[13],
            };
            let rival = BusyPeriod { since_ns: words[8], until_ns: words[9], gap_ns: words[10], syncing_since_ns: words[11] };
            let decision = decide(&launch, &limits, [rival]);
            if let Wait { at_most_ns } = decision {
                prop_assert!(at_most_ns > 0 && at_most_ns <= USUAL.recheck_ns);
            }
            let dead = daemon_is_dead(limits.heartbeat_ns, launch.now_ns, USUAL);
            if limits.class == Class::Latency {
                prop_assert_eq!(decision == Admit, dead || launch.charged_ns < limits.allowed_ns);
            }
            if !dead && (launch.charged_ns >= limits.allowed_ns && limits.allowed_ns != NO_LIMIT || held && limits.class != Class::Latency) {
                prop_assert!(decision != Admit);
            }
            let patient = Launch { waited_ns: USUAL.yield_ns, busy_until_ns: 0, ..launch };
            let open = Limits { held: false, allowed_ns: NO_LIMIT, ..limits };
            prop_assert_eq!(decide(&patient, &open, [rival]), Admit);
            if decide(&launch, &open, []) == Admit {
                prop_assert_eq!(decide(&launch, &open, [IDLE]), Admit, "nobody waits for who is idle");
            }
        }
    }
}
