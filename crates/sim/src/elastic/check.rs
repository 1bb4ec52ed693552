//! What must hold in every run, checked during every run.
//!
//! 1. Every request is answered once, refused once, or still there at the end.
//! 2. No GPU is given out more than once: what its tenants have of it, over time, is at most all of it.
//! 3. Every worker and every part of a job is placed once, and only while it is there.
//! 4. Time never goes back.
//!
//! A broken rule is a panic, because a result from such a run is worth nothing.

use super::policies::Grant;
use policy::Time;
use policy::placement::State;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    clock: Time,
    arrived: u64,
    answered: u64,
    refused: u64,
}

impl Ledger {
    pub(super) fn tick(&mut self, now: Time) {
        assert!(now >= self.clock, "time went back from {} to {} ns", self.clock.nanos(), now.nanos());
        self.clock = now;
    }

    pub(super) fn arrived(&mut self) {
        self.arrived += 1;
    }

    pub(super) fn answered(&mut self, count: usize) {
        self.answered += count as u64;
    }

    pub(super) fn refused(&mut self) {
        self.refused += 1;
    }

    pub(super) fn divided(&self, gpu: usize, grants: &[Grant]) {
        let given: f64 = grants.iter().map(|grant| grant.share * grant.part).sum();
        let sensible = |grant: &Grant| (0.0..=1_000.0).contains(&grant.share) && (0.0..=1.0).contains(&grant.part);
        assert!(given <= 1_000.001 && grants.iter().all(sensible), "GPU {gpu} was given out twice: {grants:?}");
    }

    pub(super) fn placed(&self, state: &State, workers: usize, jobs: usize) {
        assert_eq!(state.instances().len(), workers + jobs, "a worker is placed twice, or not at all");
    }

    pub(super) fn finish(&self, waiting: usize, running: usize) {
        let known = self.answered + self.refused + waiting as u64 + running as u64;
        assert_eq!(self.arrived, known, "a request was lost or answered twice");
    }
}
