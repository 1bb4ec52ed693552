//! What must hold in every run, checked during every run in books that are not the machine's.
//!
//! 1. Every request ends once: with its text, with a refusal before or a loss, or because its client left.
//! 2. A worker that is there runs one step at a time, none before it may start.
//! 3. No cache holds more than it can.
//! 4. A sequence gets a token only when all before it is in the cache of the worker that gives it.
//! 5. Time never goes back.
//!
//! A broken rule is a panic, because a result from such a run is worth nothing.

use policy::{RequestId, Time};
use std::collections::BTreeMap;

/// What is known of a request that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) number: usize,
    pub(super) prompt: u32,
    pub(super) generated: u32,
    pub(super) cached: u32,
    pub(super) worker: Option<usize>,
    token_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct WorkerEntry {
    alive: bool,
    busy: bool,
    cache: u64,
    used: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    clock: Time,
    open: BTreeMap<RequestId, Entry>,
    workers: Vec<WorkerEntry>,
    /// The most that was in use, as a part of each cache.
    pub(super) peak: f64,
}

impl Ledger {
    pub(super) fn new(caches: impl Iterator<Item = u64>) -> Ledger {
        let worker = |cache| WorkerEntry { alive: true, busy: false, cache, used: 0 };
        Ledger { clock: Time::ZERO, open: BTreeMap::new(), workers: caches.map(worker).collect(), peak: 0.0 }
    }

    pub(super) fn tick(&mut self, now: Time) {
        assert!(now >= self.clock, "time went back from {} to {} ns", self.clock.nanos(), now.nanos());
        self.clock = now;
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Entry> {
        self.open.get(&id)
    }

    pub(super) fn arrived(&mut self, id: RequestId, number: usize, prompt: u32, token_bytes: u64) {
        let entry = Entry { number, prompt, generated: 0, cached: 0, worker: None, token_bytes };
        assert!(self.open.insert(id, entry).is_none(), "{id:?} came twice");
    }

    pub(super) fn started(&mut self, worker: usize, not_before: Time, start: Time) {
        let entry = &mut self.workers[worker];
        assert!(entry.alive && !entry.busy, "a step for worker {worker}, which is busy or gone");
        assert!(start >= not_before, "a step started before it may");
        entry.busy = true;
    }

    pub(super) fn processes(&mut self, id: RequestId, worker: usize, tokens: u32) {
        let entry = self.open.get_mut(&id).expect("only requests that have not ended take part in steps");
        assert!(entry.worker.is_none_or(|other| other == worker), "{id:?} has its cache elsewhere");
        entry.worker = Some(worker);
        entry.cached += tokens;
        assert!(tokens > 0 && entry.cached <= entry.prompt + entry.generated, "{id:?} has nothing more to process");
        let there = &mut self.workers[worker];
        there.used += u64::from(tokens) * entry.token_bytes;
        assert!(there.used <= there.cache, "the cache of worker {worker} is too full");
        self.peak = self.peak.max(there.used as f64 / there.cache.max(1) as f64);
    }

    /// Whether the step gave it a token; `None` when it has ended since.
    pub(super) fn stepped(&mut self, id: RequestId) -> Option<bool> {
        let entry = self.open.get_mut(&id)?;
        let token = entry.cached == entry.prompt + entry.generated;
        entry.generated += u32::from(token);
        Some(token)
    }

    pub(super) fn finished(&mut self, worker: usize) {
        self.workers[worker].busy = false;
    }

    pub(super) fn evicted(&mut self, id: RequestId) {
        let entry = self.open.get_mut(&id).expect("only requests that have not ended are evicted");
        let worker = entry.worker.take().expect("only what holds cache is evicted");
        self.workers[worker].used -= u64::from(entry.cached) * entry.token_bytes;
        entry.cached = 0;
    }

    pub(super) fn ended(&mut self, id: RequestId) -> Entry {
        let entry = self.open.remove(&id).expect("a request ends once");
        if let Some(worker) = entry.worker {
            self.workers[worker].used -= u64::from(entry.cached) * entry.token_bytes;
        }
        entry
    }

    pub(super) fn died(&mut self, worker: usize) {
        let there = &mut self.workers[worker];
        (there.alive, there.busy, there.used) = (false, false, 0);
        for entry in self.open.values_mut().filter(|entry| entry.worker == Some(worker)) {
            (entry.worker, entry.cached) = (None, 0);
        }
    }

    pub(super) fn returned(&mut self, worker: usize) {
        self.workers[worker].alive = true;
    }
}
