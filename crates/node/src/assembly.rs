//! Batches, put together from the parts that gateways send.
//!
//! A pure machine: no worker, process or clock is known here, the time is an argument. `worker_queue.rs` and `emulated.rs` drive
//! it live, the simulated cluster in virtual time.
//!
//! Invariants:
//! 1. Whatever is put in comes out once: in its batch, or given back because that has begun or was given up.
//! 2. A batch waits for its last part no longer than `patience` after its first; then it runs with what came.

use policy::{Span, Time};
use rpc::Failure;
use std::collections::{BTreeMap, VecDeque};

/// How many batches that are over are remembered, so that their late parts are not waited for again.
const OVER_MAX: usize = 1024;

/// A batch with all that came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<P> {
    /// Its number.
    pub number: u64,
    /// Its requests.
    pub payloads: Vec<P>,
}

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<P> {
    /// It completed its batch.
    Complete(Batch<P>),
    /// Its batch waits for more.
    Incomplete,
    /// Its batch is over: what it brought is given back, and why.
    Over(Vec<P>, Failure),
}

/// Parts of batches that are not complete.
#[derive(Debug)]
pub struct Assembly<P> {
    patience: Span,
    waiting: BTreeMap<u64, Waiting<P>>,
    over: VecDeque<(u64, Failure)>,
}

#[derive(Debug)]
struct Waiting<P> {
    since: Time,
    size: usize,
    came: usize,
    payloads: Vec<P>,
}

impl<P> Assembly<P> {
    /// Nothing yet.
    pub fn new(patience: Span) -> Assembly<P> {
        Assembly { patience, waiting: BTreeMap::new(), over: VecDeque::new() }
    }

    /// Takes a part of a batch of `size` requests, `absent` of which will not come.
    pub fn add(&mut self, now: Time, number: u64, size: usize, payloads: Vec<P>, absent: usize) -> Added<P> {
        if payloads.len() + absent >= size {
            return Added::Complete(Batch { number, payloads });
        }
        if let Some((_, failure)) = self.over.iter().find(|(other, _)| *other == number) {
            return Added::Over(payloads, failure.clone());
        }
        let waiting = self.waiting.entry(number).or_insert_with(|| Waiting {
            since: now,
            size,
            came: 0,
            payloads: Vec::with_capacity(size.min(1024)),
        });
        waiting.came += payloads.len() + absent;
        waiting.payloads.extend(payloads);
        if waiting.came < waiting.size {
            return Added::Incomplete;
        }
        let payloads = self.waiting.remove(&number).map(|waiting| waiting.payloads).unwrap_or_default();
        Added::Complete(Batch { number, payloads })
    }

    /// Whether no batch waits for parts.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When [`Assembly::expire`] is next due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.since + self.patience).min()
    }

    /// Batches that have waited long enough.
    pub fn expire(&mut self, now: Time) -> Vec<Batch<P>> {
        let patience = self.patience;
        let overdue = self.waiting.extract_if(.., |_, waiting| waiting.since + patience <= now);
        let batches: Vec<_> = overdue.map(|(number, waiting)| Batch { number, payloads: waiting.payloads }).collect();
        for batch in &batches {
            self.remember(batch.number, Failure::NotRun("its batch has begun without it".into()));
        }
        batches
    }

    /// Gives up every batch that waits, because its worker died.
    pub fn abandon(&mut self) -> Vec<P> {
        let waiting = std::mem::take(&mut self.waiting);
        for number in waiting.keys() {
            self.remember(*number, Failure::WorkerDied);
        }
        waiting.into_values().flat_map(|waiting| waiting.payloads).collect()
    }

    fn remember(&mut self, number: u64, failure: Failure) {
        if self.over.len() == OVER_MAX {
            self.over.pop_front();
        }
        self.over.push_back((number, failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Span = Span::from_secs(1);

    fn numbers(added: Added<u32>) -> (u64, Vec<u32>) {
        let Added::Complete(batch) = added else { panic!("{added:?}") };
        (batch.number, batch.payloads)
    }

    #[test]
    fn a_batch_is_complete_with_its_last_part_or_with_word_that_there_is_none() {
        let (mut assembly, now) = (Assembly::new(PATIENCE), Time::ZERO);
        assert_eq!(numbers(assembly.add(now, 1, 2, vec![10, 11], 0)), (1, vec![10, 11]));
        assert_eq!(assembly.add(now, 2, 3, vec![12], 0), Added::Incomplete);
        assert_eq!(assembly.add(now, 3, 2, vec![13], 0), Added::Incomplete);
        assert_eq!(assembly.add(now, 2, 3, vec![], 1), Added::Incomplete);
        assert_eq!(numbers(assembly.add(now, 2, 3, vec![14], 0)), (2, vec![12, 14]));
        assert_eq!(numbers(assembly.add(now, 3, 2, vec![], 1)), (3, vec![13]));
        assert_eq!(numbers(assembly.add(now, 4, 2, vec![], 2)), (4, vec![]));
        assert!(assembly.is_empty());
    }

    #[test]
    fn a_batch_runs_with_what_came_in_time() {
        let (mut assembly, now) = (Assembly::new(PATIENCE), Time::ZERO);
        assembly.add(now, 1, 2, vec![10], 0);
        assert_eq!(assembly.next_deadline(), Some(now + PATIENCE));
        assert_eq!(assembly.expire(now), []);
        assert_eq!(assembly.expire(now + PATIENCE), [Batch { number: 1, payloads: vec![10] }]);
        let late = assembly.add(now + PATIENCE, 1, 2, vec![11], 0);
        assert!(matches!(&late, Added::Over(payloads, Failure::NotRun(_)) if *payloads == [11]), "{late:?}");
        assert_eq!((assembly.is_empty(), assembly.next_deadline()), (true, None));
    }

    #[test]
    fn what_waits_when_a_worker_dies_is_given_back() {
        let (mut assembly, now) = (Assembly::new(PATIENCE), Time::ZERO);
        assembly.add(now, 1, 2, vec![10], 0);
        assert_eq!(assembly.abandon(), [10]);
        assert_eq!(assembly.add(now, 1, 2, vec![11], 0), Added::Over(vec![11], Failure::WorkerDied));
    }
}
