//! Requests that were accepted and are not answered: who has each, and what becomes of it when something breaks.
//!
//! ```text
//!   accept ─► Announced ── grant ──► Sent ── answer ─► over
//!                ▲  │ ▲               │ │
//!                │  │ └── worker died ┘ │          whatever happens: `expire` when its time is over
//!                │  └── session over ─┐ │
//!             announce                ▼ ▼
//!                └──────────────── Waiting ◄── hold
//! ```
//!
//! A pure machine: it reads no clock and speaks to nobody. `core.rs` drives it live, the simulated cluster in virtual
//! time.
//!
//! Invariants:
//! 1. A request leaves once, and whoever takes it out answers it.
//! 2. A request that is `Announced` is the scheduler's to grant or refuse, in this session; one that is `Sent` is its
//!    node's to answer or to give back; one that is `Waiting` is the gateway's to announce as soon as it can.
//! 3. Wherever it is, it can be taken out, and nothing that is said of it afterwards does anything.
//! 4. No request whose time is over is there after `expire`, and none expires before `next_expiry`.
//! 5. Word of an announcement that was given up changes nothing: ids name session and attempt. Only an answer counts
//!    whoever brings it: it is the same request.

use policy::Time;
use rpc::{WorkerId, count_of, request_id};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A session with a scheduler. Another scheduler may give out the same numbers; a gateway joins only once for the same
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The so many-th of its gateway.
    pub join: u32,
    /// What the scheduler calls it.
    pub number: u32,
}

impl Session {
    /// Both in one word.
    pub(crate) const fn pack(self) -> u64 {
        (self.join as u64) << 32 | self.number as u64
    }

    pub(crate) const fn unpack(word: u64) -> Session {
        Session { join: (word >> 32) as u32, number: word as u32 }
    }
}

/// Requests in flight, each with what `R` its gateway keeps for it.
#[derive(Debug)]
pub struct Flights<R> {
    flights: HashMap<u64, Flight<R>, BuildHasherDefault<CountHasher>>,
    /// None expires before.
    next_expiry: Time,
}

/// Of counts that the gateway gives out itself, one after the other: nobody can choose them to collide.
#[derive(Default)]
struct CountHasher(u64);

impl Hasher for CountHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("counts are numbers");
    }

    fn write_u64(&mut self, count: u64) {
        // 2^64 divided by the golden ratio: neighbours are far apart in the upper bits, which the table uses as well.
        self.0 = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Debug)]
struct Flight<R> {
    request: R,
    /// What it is called now, or was before it had to wait.
    id: u64,
    /// Where it is called so.
    session: Session,
    place: Place,
    /// When its time is over.
    answer_by: Time,
}

/// Who has a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nobody but the gateway.
    Waiting,
    /// The scheduler.
    Announced,
    /// A worker's node.
    Sent {
        /// The worker.
        worker: WorkerId,
        /// The batch there.
        batch: u64,
    },
}

impl<R> Default for Flights<R> {
    fn default() -> Flights<R> {
        Flights { flights: HashMap::default(), next_expiry: Time::NEVER }
    }
}

impl<R> Flights<R> {
    /// Takes a request in, which is being announced in this session and whose time is over at `answer_by`; its id.
    pub fn accept(&mut self, count: u64, request: R, session: Session, answer_by: Time) -> u64 {
        self.take_in(count, request, session, Place::Announced, answer_by)
    }

    /// Takes a request in that waits for the next session, or for its model to be there. This session was the last.
    pub fn hold(&mut self, count: u64, request: R, session: Session, answer_by: Time) {
        self.take_in(count, request, session, Place::Waiting, answer_by);
    }

    fn take_in(&mut self, count: u64, request: R, session: Session, place: Place, answer_by: Time) -> u64 {
        let id = request_id(session.number, count, 0);
        self.flights.insert(count_of(id), Flight { request, id, session, place, answer_by });
        self.next_expiry = self.next_expiry.min(answer_by);
        id
    }

    /// When to call [`Flights::expire`] next, at the latest.
    pub fn next_expiry(&self) -> Time {
        self.next_expiry
    }

    /// Takes out all requests whose time is over, oldest first. Calling it early does nothing.
    ///
    /// Looks at every request, once in the time that requests are given: by then those that were the next to expire are
    /// answered, and all others have as long to go.
    pub fn expire(&mut self, now: Time) -> Vec<R> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let mut over: Vec<_> = self.flights.extract_if(|_, flight| flight.answer_by <= now).collect();
        over.sort_unstable_by_key(|(count, _)| *count);
        self.next_expiry = self.flights.values().map(|flight| flight.answer_by).min().unwrap_or(Time::NEVER);
        over.into_iter().map(|(_, flight)| flight.request).collect()
    }

    /// The scheduler gives leave to run it. What is to be sent; nothing where nobody waits for it under this id.
    pub fn grant(&mut self, id: u64, worker: WorkerId, batch: u64) -> Option<&R> {
        let flight = self.flights.get_mut(&count_of(id)).filter(|flight| flight.id == id)?;
        flight.place = Place::Sent { worker, batch };
        Some(&flight.request)
    }

    /// A node answers it, with outputs or because the model failed.
    pub fn answer(&mut self, id: u64) -> Option<R> {
        self.take(count_of(id))
    }

    /// The scheduler refuses it.
    pub fn refuse(&mut self, id: u64) -> Option<R> {
        self.flights.get(&count_of(id)).filter(|flight| flight.id == id)?;
        self.take(count_of(id))
    }

    /// The worker that it was sent to died. The scheduler of the present session knows, and has it again; one that came
    /// since does not, and whether it is to be told is the answer.
    pub fn worker_died(&mut self, id: u64, worker: WorkerId, batch: u64, session: Option<Session>) -> bool {
        let Some(flight) = self.sent(id, worker, batch) else { return false };
        let known = session == Some(flight.session);
        flight.place = if known { Place::Announced } else { Place::Waiting };
        !known
    }

    /// It came back without having reached a worker; whether it is to be announced again.
    pub fn not_run(&mut self, id: u64, worker: WorkerId, batch: u64) -> bool {
        let Some(flight) = self.sent(id, worker, batch) else { return false };
        flight.place = Place::Waiting;
        true
    }

    fn sent(&mut self, id: u64, worker: WorkerId, batch: u64) -> Option<&mut Flight<R>> {
        let there = Place::Sent { worker, batch };
        self.flights.get_mut(&count_of(id)).filter(|flight| flight.id == id && flight.place == there)
    }

    /// The scheduler is gone: what it had waits for the next one. What nodes have they answer all the same.
    pub fn session_over(&mut self) {
        for flight in self.flights.values_mut().filter(|flight| flight.place == Place::Announced) {
            flight.place = Place::Waiting;
        }
    }

    /// Requests that are to be announced, by their counts, in the order in which they came.
    pub fn waiting(&self) -> Vec<u64> {
        let waiting = self.flights.iter().filter(|(_, flight)| flight.place == Place::Waiting);
        let mut counts: Vec<u64> = waiting.map(|(count, _)| *count).collect();
        counts.sort_unstable();
        counts
    }

    /// Takes out a request whose client is gone; the id under which the scheduler still has it, if it does.
    pub fn withdraw(&mut self, count: u64) -> Option<(R, Option<u64>)> {
        let flight = self.flights.remove(&count)?;
        Some((flight.request, (flight.place == Place::Announced).then_some(flight.id)))
    }

    /// What is kept for a request that waits.
    pub fn get(&mut self, count: u64) -> Option<&mut R> {
        self.flights.get_mut(&count).map(|flight| &mut flight.request)
    }

    /// A request that waits is being announced in this session; its new id.
    pub fn announce(&mut self, count: u64, session: Session) -> Option<u64> {
        let flight = self.flights.get_mut(&count).filter(|flight| flight.place == Place::Waiting)?;
        flight.id = request_id(session.number, count, (flight.id as u8).wrapping_add(1));
        flight.session = session;
        flight.place = Place::Announced;
        Some(flight.id)
    }

    /// An announcement could not be made.
    pub fn wait_again(&mut self, id: u64) {
        let announced = |flight: &&mut Flight<R>| flight.id == id && flight.place == Place::Announced;
        if let Some(flight) = self.flights.get_mut(&count_of(id)).filter(announced) {
            flight.place = Place::Waiting;
        }
    }

    fn take(&mut self, count: u64) -> Option<R> {
        self.flights.remove(&count).map(|flight| flight.request)
    }

    /// Takes all requests out.
    pub fn take_all(&mut self) -> Vec<R> {
        self.flights.drain().map(|(_, flight)| flight.request).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Who has a request, and under which id.
    pub fn place(&self, count: u64) -> Option<(u64, Place)> {
        self.flights.get(&count).map(|flight| (flight.id, flight.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(7);
    const FIRST: Session = Session { join: 1, number: 1 };
    /// Of another scheduler, which numbers as the first did.
    const NEXT: Session = Session { join: 2, number: 1 };

    fn one() -> (Flights<&'static str>, u64) {
        let mut flights = Flights::default();
        let id = flights.accept(5, "request", FIRST, Time::from_nanos(100));
        (flights, id)
    }

    #[test]
    fn it_is_answered_once() {
        let (mut flights, id) = one();
        assert_eq!(flights.grant(id, WORKER, 0), Some(&"request"));
        assert_eq!(flights.answer(id), Some("request"));
        assert_eq!((flights.answer(id), flights.refuse(id), flights.withdraw(5)), (None, None, None));
    }

    #[test]
    fn a_scheduler_is_told_of_a_client_that_went_if_it_has_the_request() {
        let (mut flights, id) = one();
        assert_eq!(flights.withdraw(5), Some(("request", Some(id))));
        let (mut flights, id) = one();
        flights.grant(id, WORKER, 0);
        assert_eq!(flights.withdraw(5), Some(("request", None)));
        assert_eq!(flights.answer(id), None);
    }

    #[test]
    fn one_that_came_while_there_was_no_scheduler_is_announced_to_the_next() {
        let mut flights = Flights::default();
        flights.hold(5, "request", FIRST, Time::from_nanos(100));
        assert_eq!((flights.waiting(), flights.next_expiry()), (vec![5], Time::from_nanos(100)));
        let id = flights.announce(5, NEXT).unwrap();
        assert_ne!(id, request_id(NEXT.number, 5, 0), "the last session might have called it so");
        assert_eq!(flights.grant(id, WORKER, 0), Some(&"request"));
    }

    #[test]
    fn its_time_is_over_wherever_it_is() {
        let (mut flights, id) = one();
        flights.grant(id, WORKER, 0);
        flights.accept(6, "later", FIRST, Time::from_nanos(300));
        assert_eq!((flights.next_expiry(), flights.expire(Time::from_nanos(99))), (Time::from_nanos(100), vec![]));
        assert_eq!(flights.expire(Time::from_nanos(100)), ["request"]);
        assert_eq!(flights.grant(id, WORKER, 1), None, "nobody waits for it");
        assert_eq!((flights.next_expiry(), flights.len()), (Time::from_nanos(300), 1));
    }

    #[test]
    fn a_worker_that_died_leaves_it_to_the_scheduler_that_knows() {
        let (mut flights, id) = one();
        flights.grant(id, WORKER, 3);
        assert!(!flights.worker_died(id, WORKER, 3, Some(FIRST)));
        assert_eq!(flights.place(5), Some((id, Place::Announced)));
        flights.grant(id, WORKER, 4);
        assert!(!flights.worker_died(id, WORKER, 3, Some(NEXT)), "that was another batch");
        assert!(flights.worker_died(id, WORKER, 4, Some(NEXT)));
        assert_eq!(flights.place(5), Some((id, Place::Waiting)));
    }

    #[test]
    fn word_of_an_older_announcement_changes_nothing() {
        let (mut flights, old) = one();
        flights.session_over();
        let new = flights.announce(5, NEXT).unwrap();
        assert_ne!(old, new);
        assert_eq!(flights.grant(old, WORKER, 0), None);
        assert_eq!(flights.refuse(old), None);
        assert!(!flights.not_run(old, WORKER, 0));
        assert_eq!(flights.grant(new, WORKER, 1), Some(&"request"));
        assert_eq!(flights.answer(old), Some("request"), "an answer is an answer");
    }
}
