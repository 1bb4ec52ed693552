//! Which scheduler a gateway or a node follows, where there are several addresses.
//!
//! One scheduler leads and the others are on standby. Who leads is decided by what they share (`scheduler::lead`), and
//! each time a scheduler begins to lead it has a later [`Term`] than all before it. A member tries the addresses in turn
//! until one of them leads, and takes no orders from a scheduler with an earlier term than one that it has followed.
//!
//! Pure machines: the time is an argument, and nobody is spoken to. `gateway/src/remote.rs` and `node/src/remote.rs`
//! drive them live, the simulated cluster in virtual time.
//!
//! Invariants:
//! 1. Terms that a [`Fence`] admits never fall.
//! 2. A search tries every address once before it rests, and always goes on.
//! 3. No attempt takes longer than [`timing::CONNECT`], and one at an address that is silent does not keep the search
//!    from the next one for longer than [`timing::LEASE`] in the first rounds.

use crate::{Term, timing};
use policy::{Span, Time};

/// Keeps out schedulers that led before the one that a member follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence {
    highest: Term,
}

impl Fence {
    /// Whether orders of this term are followed. From then on, those of earlier terms are not.
    pub fn admits(&mut self, term: Term) -> bool {
        let admitted = term >= self.highest;
        self.highest = self.highest.max(term);
        admitted
    }

    /// The latest term that was admitted.
    pub fn highest(&self) -> Term {
        self.highest
    }
}

/// An attempt to join a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The place of its address in the list.
    pub address: usize,
    /// How long it may take.
    pub limit: Span,
}

/// What follows an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// How long to wait before the next.
    pub wait: Span,
    /// Whether the log should say so as a warning: at first, and when it takes long.
    pub loud: bool,
}

/// The search for the scheduler that leads.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    addresses: usize,
    next: usize,
    /// Attempts since the search began.
    attempts: u32,
    since: Time,
}

impl Search {
    /// A search among so many addresses, at least one, which begins now.
    pub fn new(now: Time, addresses: usize) -> Search {
        Search { addresses: addresses.max(1), next: 0, attempts: 0, since: now }
    }

    /// What to try now. An address that does not answer gets a short time at first, so that another one that leads is
    /// found soon, and then twice as long in every round, so that a slow one is found too. A single address gets all
    /// the time at once.
    pub fn attempt(&self) -> Attempt {
        let round = self.attempts / self.addresses as u32;
        let limit = match self.addresses {
            1 => timing::CONNECT,
            _ => timing::HEARTBEAT.scale(1 << round.min(5), 1).min(timing::CONNECT),
        };
        Attempt { address: self.next, limit }
    }

    /// The attempt failed, or whoever answered does not lead.
    pub fn failed(&mut self, now: Time) -> Rest {
        let loud = self.attempts == 0;
        self.attempts += 1;
        self.next = (self.next + 1) % self.addresses;
        if !self.attempts.is_multiple_of(self.addresses as u32) {
            return Rest { wait: Span::ZERO, loud };
        }
        match now - self.since < timing::LEASE {
            // A standby may be about to lead.
            true => Rest { wait: timing::SEEK, loud },
            false => Rest { wait: timing::REJOIN, loud: true },
        }
    }

    /// A session with a scheduler is over: the search begins anew, with the address after the one that was left.
    pub fn lost(&mut self, now: Time) {
        (self.since, self.attempts) = (now, 0);
        self.next = (self.next + 1) % self.addresses;
    }

    /// Whether to leave a scheduler that has been silent for so long. Where there is no other address, it may wake.
    pub fn gives_up(&self, unheard: Span) -> bool {
        self.addresses > 1 && unheard > timing::LEASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_leader_of_an_earlier_term_is_kept_out() {
        let mut fence = Fence::default();
        assert!(fence.admits(Term(3)) && fence.admits(Term(3)) && fence.admits(Term(7)));
        assert!(!fence.admits(Term(3)));
        assert_eq!(fence.highest(), Term(7));
    }

    #[test]
    fn after_a_loss_every_other_address_is_tried_before_the_one_that_was_left() {
        let mut search = Search::new(at(0), 3);
        assert_eq!(search.attempt().address, 0);
        search.lost(at(1_000));
        let tried: Vec<_> = (0..3)
            .map(|_| {
                let address = search.attempt().address;
                (address, search.failed(at(1_000)).wait)
            })
            .collect();
        assert_eq!(tried, [(1, Span::ZERO), (2, Span::ZERO), (0, timing::SEEK)]);
    }

    #[test]
    fn a_search_is_fast_while_a_standby_may_take_over_and_slow_after() {
        let mut search = Search::new(at(0), 1);
        assert_eq!(search.failed(at(0)), Rest { wait: timing::SEEK, loud: true });
        assert_eq!(search.failed(at(20)), Rest { wait: timing::SEEK, loud: false });
        assert_eq!(search.failed(at(600)), Rest { wait: timing::REJOIN, loud: true });
        search.lost(at(5_000));
        assert_eq!(search.failed(at(5_000)).wait, timing::SEEK);
    }

    #[test]
    fn a_silent_address_delays_the_others_little_and_is_given_more_time_later() {
        let mut search = Search::new(at(0), 2);
        let mut limits = Vec::new();
        for _ in 0..12 {
            limits.push(search.attempt().limit);
            search.failed(at(0));
        }
        assert_eq!(limits[0], timing::HEARTBEAT);
        assert!(limits.is_sorted() && limits[11] == timing::CONNECT);
        assert_eq!(Search::new(at(0), 1).attempt().limit, timing::CONNECT);
        assert!(search.gives_up(timing::LEASE + Span::from_nanos(1)) && !search.gives_up(timing::LEASE));
        assert!(!Search::new(at(0), 1).gives_up(Span::from_secs(60)));
    }
}
