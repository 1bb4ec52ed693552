//! What a policy sees and can do, and the trait that each implements.

use super::books::{Books, Running};
use super::event::{Action, Reason};
use super::sequence::{Sequence, Stage};
use crate::{GpuId, ModelId, RequestId, Span, Time};

/// A way of choosing steps. One file each, in `policies`.
pub trait Policy: Send {
    /// The worker for a sequence that is nowhere; one that it fits on. Unless a policy knows better, the one with the fewest
    /// sequences.
    fn route(&mut self, context: &mut Context, id: RequestId) -> GpuId {
        context.least_loaded(id)
    }

    /// A request was given to a worker.
    fn on_arrival(&mut self, _context: &mut Context, _id: RequestId, _worker: GpuId) {}

    /// A worker is idle: begins a step on it ([`Context::step`]), or says when to look again; [`Time::NEVER`] is for a worker
    /// without work.
    fn plan(&mut self, context: &mut Context, worker: GpuId) -> Time;
}

/// What a policy sees and what it can do.
#[derive(Debug)]
pub struct Context<'a> {
    /// The moment of the event.
    pub now: Time,
    /// The books. Policies read them; changes go through the methods here.
    pub books: &'a mut Books,
    pub(super) actions: &'a mut Vec<Action>,
}

impl Context<'_> {
    /// A step that was decided now starts then, at the earliest.
    pub fn start(&self) -> Time {
        self.now + self.books.lead
    }

    /// Begins a step on an idle worker.
    pub fn step(
        &mut self,
        worker: GpuId,
        model: ModelId,
        prefill: Vec<(RequestId, u32)>,
        decode: Vec<RequestId>,
        not_before: Time,
    ) {
        assert!(self.books.is_idle(worker), "{worker:?} is busy or gone");
        assert!(self.books.workers[worker.index()].models.contains(&model), "{worker:?} has no {model:?}");
        assert!(!prefill.is_empty() || !decode.is_empty(), "a step of nothing");
        let load = self.books.load(&prefill, &decode);
        for (id, tokens) in &prefill {
            assert!(self.books.sequence(*id).request.model == model, "{id:?} is of another model");
            self.books.join(*id, worker, *tokens, Stage::Prefill);
        }
        for id in &decode {
            assert!(self.books.sequence(*id).request.model == model, "{id:?} is of another model");
            self.books.join(*id, worker, 1, Stage::Decode);
        }
        let expected = self.books.learned(model, worker).predict(load);
        let step = self.books.steps;
        self.books.steps += 1;
        let not_before = not_before.max(self.now);
        let finish = not_before.max(self.start()) + expected;
        let members = prefill.iter().map(|(id, _)| *id).chain(decode.iter().copied()).collect();
        let there = &mut self.books.workers[worker.index()];
        there.running = Some(Running { step, model, load, finish, members });
        there.wake = Time::NEVER;
        self.actions.push(Action::Step { worker, step, model, prefill, decode, not_before, expected });
    }

    /// Refuses a sequence that no client has seen anything of.
    pub fn reject(&mut self, id: RequestId, reason: Reason, come_back: Option<Span>) {
        let sequence = self.books.remove(id);
        assert!(sequence.is_unseen() || reason != Reason::TooLate, "{id:?} was refused after its first token");
        self.actions.push(Action::Reject { request: id, reason, come_back });
    }

    /// Drops what a worker's cache holds of a sequence, which waits for the same worker again.
    pub fn evict(&mut self, id: RequestId) {
        let sequence = self.books.sequence(id);
        assert!(!sequence.in_step && sequence.stage != Stage::Waiting, "{id:?} cannot be evicted");
        let worker = sequence.worker.expect("it holds cache");
        self.books.detach(id);
        self.books.queue(id, worker);
        self.actions.push(Action::Evict { request: id });
    }

    /// Lets a sequence that waits do so for another worker.
    pub fn move_to(&mut self, id: RequestId, worker: GpuId) {
        assert!(self.books.sequence(id).stage == Stage::Waiting, "{id:?} holds cache and cannot move");
        self.books.detach(id);
        self.books.queue(id, worker);
    }

    /// Of the workers that a sequence fits on, the one with the fewest sequences; the first of those.
    pub fn least_loaded(&self, id: RequestId) -> GpuId {
        let model = self.books.sequence(id).request.model;
        let fitting = self.books.with_model(model).filter(|worker| self.books.fits(id, *worker));
        let load = |worker: &GpuId| {
            let worker = &self.books.workers[worker.index()];
            worker.active.len() + worker.waiting.len()
        };
        fitting.min_by_key(load).expect("only sequences that fit somewhere are routed")
    }

    /// Evicts the latest arrivals on a worker until its cache has so many bytes free. What is `kept` stays, and so does the
    /// earliest arrival: it ends, whatever happens to the others. Whether there is room now.
    pub fn make_room(&mut self, worker: GpuId, bytes: u64, kept: &[RequestId]) -> bool {
        let order = |sequence: &Sequence| (sequence.request.arrival, sequence.request.id);
        while self.books.free(worker) < bytes {
            let active = &self.books.workers[worker.index()].active;
            let first = active.iter().map(|id| order(self.books.sequence(*id))).min();
            let victims = active.iter().map(|id| self.books.sequence(*id));
            let victims = victims.filter(|sequence| !sequence.in_step && !kept.contains(&sequence.request.id));
            match victims.map(order).max() {
                Some(last) if Some(last) != first => self.evict(last.1),
                _ => return false,
            }
        }
        true
    }
}
