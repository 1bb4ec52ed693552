//! What must hold in every run, checked during every run.
//!
//! 1. Every request is answered exactly once, and none is still open at the end.
//! 2. A GPU runs one batch at a time.
//! 3. No batch starts that was known to be late, unless the policy ignores deadlines.
//! 4. Time never goes back.
//!
//! The books here are the simulator's own; the dispatcher's are not consulted. A broken rule is a panic that
//! names the rule, the request and the time, because a result from such a run is worth nothing.

use policy::{ModelId, Request, RequestId, Time};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Answered,
}

/// What the simulator remembers of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) model: ModelId,
    state: State,
    pub(crate) arrival: Time,
    pub(crate) deadline: Time,
}

/// Requests that are open, by number. The oldest answered ones are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    base: u64,
    open: u64,
    clock: Time,
}

impl Ledger {
    /// The number of the next request.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.base + self.entries.len() as u64)
    }

    pub(crate) fn tick(&mut self, now: Time) {
        assert!(now >= self.clock, "time went back from {} to {} ns", self.clock.nanos(), now.nanos());
        self.clock = now;
    }

    pub(crate) fn arrived(&mut self, request: &Request) {
        let Request { model, arrival, deadline, .. } = *request;
        self.entries.push_back(Entry { model, state: State::Waiting, arrival, deadline });
        self.open += 1;
    }

    pub(crate) fn get(&self, id: RequestId) -> &Entry {
        &self.entries[(id.0 - self.base) as usize]
    }

    fn change(&mut self, id: RequestId, from: State, to: State) -> Entry {
        assert!(id.0 >= self.base, "request {} was answered already", id.0);
        let entry = &mut self.entries[(id.0 - self.base) as usize];
        let now = self.clock.nanos();
        assert!(entry.state == from, "request {} is {:?} at {now} ns, expected {from:?}", id.0, entry.state);
        entry.state = to;
        *entry
    }

    pub(crate) fn started(&mut self, id: RequestId) {
        self.change(id, State::Waiting, State::Running);
    }

    pub(crate) fn returned(&mut self, id: RequestId) {
        self.change(id, State::Running, State::Waiting);
    }

    pub(crate) fn refused(&mut self, id: RequestId) -> Entry {
        let entry = self.change(id, State::Waiting, State::Answered);
        self.settle();
        entry
    }

    pub(crate) fn finished(&mut self, id: RequestId) -> Entry {
        let entry = self.change(id, State::Running, State::Answered);
        self.settle();
        entry
    }

    fn settle(&mut self) {
        self.open -= 1;
        while self.entries.front().is_some_and(|entry| entry.state == State::Answered) {
            self.entries.pop_front();
            self.base += 1;
        }
    }

    /// How many requests are not answered.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger_with_one() -> (Ledger, RequestId) {
        let mut ledger = Ledger::default();
        let id = ledger.next_id();
        ledger.arrived(&Request { id, model: ModelId(0), arrival: Time::ZERO, deadline: Time::NEVER });
        (ledger, id)
    }

    #[test]
    #[should_panic(expected = "was answered already")]
    fn a_second_answer_is_caught() {
        let (mut ledger, id) = ledger_with_one();
        ledger.refused(id);
        ledger.refused(id);
    }

    #[test]
    #[should_panic(expected = "is Running at 0 ns, expected Waiting")]
    fn refusing_a_running_request_is_caught() {
        let (mut ledger, id) = ledger_with_one();
        ledger.started(id);
        ledger.refused(id);
    }

    #[test]
    #[should_panic(expected = "time went back")]
    fn time_going_back_is_caught() {
        let mut ledger = Ledger::default();
        ledger.tick(Time::from_nanos(5));
        ledger.tick(Time::from_nanos(4));
    }
}
