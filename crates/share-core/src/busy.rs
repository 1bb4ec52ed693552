//! Busy periods: whether another process needs the GPU now, as far as its page can be believed.
//!
//! A page is a claim of a process that may be stopped or dead by now. Each claim is believed for a stated time after it
//! was made, and no longer: [`Patience`] has them all.

/// For how long claims are believed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After the predicted end of a busy period: its process is stopped, dead, or busy elsewhere.
    pub idle_ns: u64,
    /// After a process began to wait for the GPU: longer kernels are rare, and a dead process never ends its wait.
    pub sync_ns: u64,
    /// After the daemon's last sign of life: what it said holds no more.
    pub heartbeat_ns: u64,
    /// A busy period that claims to end later than this from now is rubbish.
    pub ahead_ns: u64,
    /// After the daemon's last sign of life, when it is worth a look whether there is another daemon. What it said holds.
    pub late_ns: u64,
    /// Busy periods of others hold one launch for at most this long.
    pub yield_ns: u64,
    /// Nobody who waits sleeps longer than this without asking again: a waker may have died.
    pub recheck_ns: u64,
    /// The same for whoever waits for a busy period of another process, whose end wakes nobody.
    pub recheck_busy_ns: u64,
}

impl Patience {
    /// What programs use.
    pub const USUAL: Patience = Patience {
        idle_ns: 2_000_000,
        sync_ns: 200_000_000,
        heartbeat_ns: 100_000_000,
        ahead_ns: 1_000_000_000,
        late_ns: 10_000_000,
        yield_ns: 20_000_000,
        recheck_ns: 1_000_000,
        recheck_busy_ns: 200_000,
    };

    /// The longest that a claim of a process or daemon that is gone is believed.
    pub const fn longest_ns(&self) -> u64 {
        let longest = if self.sync_ns > self.heartbeat_ns { self.sync_ns } else { self.heartbeat_ns };
        if self.idle_ns > longest { self.idle_ns } else { longest }
    }
}

/// What a process says of its work on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BusyPeriod {
    /// When it began; 0 while idle.
    pub since_ns: u64,
    /// When the work that was launched will be done.
    pub until_ns: u64,
    /// How long nothing is expected to be launched after that.
    pub gap_ns: u64,
    /// Since when the process has been waiting for the GPU; 0 while it is not.
    pub syncing_since_ns: u64,
}

impl BusyPeriod {
    /// Whether the process needs the GPU: from its first launch until it has waited for its work.
    pub fn is_on(&self, now_ns: u64, patience: &Patience) -> bool {
        let idle_at = self.until_ns.saturating_add(self.gap_ns).saturating_add(patience.idle_ns);
        self.since_ns != 0
            && self.until_ns.saturating_sub(now_ns) <= patience.ahead_ns
            && (now_ns < idle_at || is_syncing(self.syncing_since_ns, now_ns, patience))
    }
}

/// Whether a process that says so is waiting for the GPU, which then has work of it.
#[inline]
pub fn is_syncing(since_ns: u64, now_ns: u64, patience: &Patience) -> bool {
    since_ns != 0 && since_ns <= now_ns && now_ns - since_ns < patience.sync_ns
}

/// Whether the daemon that wrote a page is gone: nothing that it said holds any more. A heartbeat from far in the future is
/// none.
#[inline]
pub fn daemon_is_dead(heartbeat_ns: u64, now_ns: u64, patience: &Patience) -> bool {
    now_ns.saturating_sub(heartbeat_ns) > patience.heartbeat_ns
        || heartbeat_ns.saturating_sub(now_ns) > patience.ahead_ns
}

/// Whether the daemon may be gone: there may be another to go to. What it said still holds.
#[inline]
pub fn daemon_is_late(heartbeat_ns: u64, now_ns: u64, patience: &Patience) -> bool {
    now_ns.saturating_sub(heartbeat_ns) > patience.late_ns || daemon_is_dead(heartbeat_ns, now_ns, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_000_000_000_000;
    const USUAL: &Patience = &Patience::USUAL;

    #[test]
    fn a_busy_period_whose_process_is_gone_ends() {
        let busy = BusyPeriod { since_ns: NOW, until_ns: NOW + 800_000, gap_ns: 0, syncing_since_ns: 0 };
        let after = busy.until_ns + USUAL.idle_ns;
        assert!(busy.is_on(after - 1, USUAL) && !busy.is_on(after, USUAL));
        let waits = BusyPeriod { syncing_since_ns: NOW, ..busy };
        assert!(waits.is_on(NOW + USUAL.sync_ns - 1, USUAL) && !waits.is_on(NOW + USUAL.sync_ns, USUAL));
        assert!(!BusyPeriod { since_ns: 0, ..waits }.is_on(NOW, USUAL));
    }

    #[test]
    fn a_daemon_is_looked_for_before_its_word_is_void() {
        let seen = |age: u64| (daemon_is_late(NOW - age, NOW, USUAL), daemon_is_dead(NOW - age, NOW, USUAL));
        assert_eq!(seen(5_000_000), (false, false));
        assert_eq!(seen(15_000_000), (true, false));
        assert_eq!(seen(USUAL.heartbeat_ns + 1), (true, true));
        assert!(daemon_is_late(NOW + 2 * USUAL.ahead_ns, NOW, USUAL), "rubbish");
    }

    proptest! {
        /// Whatever is written there: unless it is written again, it holds for no longer than it may.
        #[test]
        fn no_claim_is_believed_for_ever(words in proptest::collection::vec(any::<u64>(), 5)) {
            let busy = BusyPeriod { since_ns: words[0], until_ns: words[1], gap_ns: words[2] % USUAL.ahead_ns, syncing_since_ns: words[3] };
            let later = words[4].max(busy.until_ns.max(busy.syncing_since_ns).saturating_add(2 * USUAL.ahead_ns));
            prop_assert!(later == u64::MAX || !busy.is_on(later, USUAL));
            prop_assert!(later == u64::MAX || daemon_is_dead(busy.until_ns, later, USUAL));
        }
    }
}
