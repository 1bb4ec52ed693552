//! When a best-effort process's channels are disabled, and that they are enabled again.
//!
//! Preemption is a lease. A thread of the preempted process polls this machine and carries out its steps. While there is a
//! reason, the lease is renewed; when it ends, the channels are enabled, whoever of the others is alive. No message, page or
//! process has to do anything for a program to come back.
//!
//! Invariants, for as long as the process's own thread polls:
//! 1. [`Lease::length_ns`] after the last poll with a reason, the next poll asks for the channels to be enabled.
//! 2. Once enabling was asked for, every poll asks again until it was said to be done.
//! 3. Nothing is disabled for longer than [`Lease::most_ns`] in one go, whatever the reasons, and then not for
//!    [`Lease::rest_ns`]: no program looks as if it hung for ever.
//!
//! Reasons themselves end by [`Patience`](crate::Patience): a claim of a process or daemon that is gone is believed for a
//! stated time.
//!
//! Not covered: a thread that does not poll belongs to a process that is stopped, and launches nothing either.

/// How long channels are disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// From one renewal, in nanoseconds. Also how long they stay disabled after the last reason: the next busy period may
    /// be about to begin, and to go and come back costs both sides.
    pub length_ns: u64,
    /// In one go.
    pub most_ns: u64,
    /// And then not for this long.
    pub rest_ns: u64,
}

/// What programs use.
pub const LEASE: Lease = Lease { length_ns: 200_000, most_ns: 10_000_000_000, rest_ns: 20_000_000 };

/// What the process's thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// Disable the channels, and say how that went with [`Preemption::disabled`].
    Disable,
    /// Enable the channels, and say how that went with [`Preemption::enabled`].
    Enable,
}

/// The channels of one process on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Preemption {
    state: State,
    /// Nothing is disabled before then.
    rest_until_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Enabled,
    Disabled {
        since_ns: u64,
        until_ns: u64,
    },
    /// To be enabled; some may be.
    Ending,
}

impl Preemption {
    /// What to do now. `reason`: somebody more important needs the GPU, and the daemon, which is alive, wants this process
    /// off it meanwhile.
    pub fn poll(&mut self, now_ns: u64, reason: bool, lease: &Lease) -> Step {
        match &mut self.state {
            State::Enabled if reason && now_ns >= self.rest_until_ns => {
                self.state = State::Disabled { since_ns: now_ns, until_ns: now_ns.saturating_add(lease.length_ns) };
                return Step::Disable;
            }
            State::Enabled => return Step::Stay,
            State::Disabled { since_ns, until_ns } => {
                if now_ns.saturating_sub(*since_ns) >= lease.most_ns {
                    self.rest_until_ns = now_ns.saturating_add(lease.rest_ns);
                } else {
                    if reason {
                        *until_ns = now_ns.saturating_add(lease.length_ns);
                    }
                    // A lease that ends later than it could was given by a clock that went back since.
                    if now_ns < *until_ns && *until_ns - now_ns <= lease.length_ns {
                        return Step::Stay;
                    }
                }
            }
            State::Ending => {}
        }
        self.state = State::Ending;
        Step::Enable
    }

    /// The channels were disabled, or not all of them: then those that were are enabled first.
    pub fn disabled(&mut self, all: bool) {
        if !all {
            self.state = State::Ending;
        }
    }

    /// The channels were enabled, or not all of them: then that is asked for again.
    pub fn enabled(&mut self, all: bool) {
        if all && self.state == State::Ending {
            self.state = State::Enabled;
        }
    }

    /// Ends it now, whatever the reasons: the GPU is about to be used in another way.
    pub fn end(&mut self) {
        if self.state != State::Enabled {
            self.state = State::Ending;
        }
    }

    /// Until when the channels are disabled unless the lease is renewed; `None` where they are not.
    pub fn until_ns(&self) -> Option<u64> {
        match self.state {
            State::Disabled { until_ns, .. } => Some(until_ns),
            State::Enabled | State::Ending => None,
        }
    }

    /// Whether all channels are enabled.
    pub fn is_enabled(&self) -> bool {
        self.state == State::Enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 10_000_000_000_000;

    /// Polls with a driver that does what it is told.
    fn poll(preemption: &mut Preemption, now_ns: u64, reason: bool) -> bool {
        match preemption.poll(now_ns, reason, &LEASE) {
            Step::Stay => {}
            Step::Disable => preemption.disabled(true),
            Step::Enable => preemption.enabled(true),
        }
        !preemption.is_enabled()
    }

    #[test]
    fn it_lasts_from_the_first_reason_until_a_lease_after_the_last() {
        let mut preemption = Preemption::default();
        assert!(!poll(&mut preemption, NOW, false));
        assert!(poll(&mut preemption, NOW + 10, true));
        assert!(poll(&mut preemption, NOW + 500_000, true));
        assert!(poll(&mut preemption, NOW + 500_000 + LEASE.length_ns - 1, false));
        assert!(!poll(&mut preemption, NOW + 500_000 + LEASE.length_ns, false));
    }

    #[test]
    fn what_could_not_be_enabled_is_tried_again() {
        let mut preemption = Preemption::default();
        assert_eq!(preemption.poll(NOW, true, &LEASE), Step::Disable);
        preemption.disabled(false);
        for _ in 0..3 {
            assert_eq!(preemption.poll(NOW, true, &LEASE), Step::Enable);
            preemption.enabled(false);
            assert!(!preemption.is_enabled());
        }
        assert_eq!(preemption.poll(NOW, true, &LEASE), Step::Enable);
        preemption.enabled(true);
        assert!(preemption.is_enabled());
    }

    #[test]
    fn a_clock_that_goes_back_keeps_nobody_off() {
        let mut preemption = Preemption::default();
        assert!(poll(&mut preemption, NOW, true));
        assert!(!poll(&mut preemption, NOW - 3_600_000_000_000, false));
    }

    proptest! {
        #[test]
        fn nobody_is_off_for_ever(steps in proptest::collection::vec((any::<bool>(), 1u64..400_000_000), 1..200)) {
            let mut preemption = Preemption::default();
            let (mut now, mut off_since, mut reason_at) = (NOW, None, 0);
            for (reason, step) in steps {
                now += step;
                if reason {
                    reason_at = now;
                }
                if poll(&mut preemption, now, reason) {
                    let since = *off_since.get_or_insert(now);
                    prop_assert!(now - since < LEASE.most_ns && now - reason_at < LEASE.length_ns);
                } else {
                    off_since = None;
                }
            }
        }
    }
}
