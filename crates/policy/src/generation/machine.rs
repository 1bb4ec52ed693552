//! The state machine around a policy.

use super::books::{Books, ModelState, Worker};
use super::context::{Context, Policy};
use super::event::{Action, Event, Reason};
use super::lengths::Lengths;
use super::sequence::{Request, Sequence, Stage};
use super::step_time::{Learned, StepTime};
use crate::{GpuId, ModelId, RequestId, Span, Time};

/// How long sequences wait for a worker that has their model before they are refused, beyond the time to their first token.
const WAITS_FOR_WORKER: Span = Span::from_secs(5);

/// A model that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Tokens of prompt and answer, at most.
    pub context: u32,
    /// Bytes of cache for each token.
    pub token_bytes: u64,
    /// How long steps take at first sight; what it is like is learned.
    pub told: StepTime,
}

/// The books and a policy.
pub struct Generation {
    books: Books,
    policy: Box<dyn Policy>,
}

impl Generation {
    /// Without models and workers. `lead`: from a decision until a worker can start what was decided.
    pub fn new(lead: Span, policy: Box<dyn Policy>) -> Generation {
        Generation { books: Books { lead, ..Books::default() }, policy }
    }

    /// What is known.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// Serves one more model.
    pub fn add_model(&mut self, model: Model) -> ModelId {
        let Model { context, token_bytes, told } = model;
        let kinds = self.books.models.iter().map(|model| model.learned.len()).max().unwrap_or(1);
        let learned = vec![Learned::new(told); kinds];
        self.books.models.push(ModelState { context, token_bytes, told, learned, lengths: Lengths::default() });
        ModelId::new(self.books.models.len() - 1)
    }

    /// Nothing starts on a worker before this time unless there is news: "mine again then".
    pub fn free_until(&self, worker: GpuId) -> Time {
        match self.books.workers.get(worker.index()) {
            Some(there) if there.running.is_none() => there.wake + self.books.lead,
            _ => Time::ZERO,
        }
    }

    /// When `on_timer` is next due.
    pub fn next_timer(&self) -> Option<Time> {
        let idle = self.books.workers.iter().filter(|worker| worker.alive && worker.running.is_none());
        let due = idle.map(|worker| worker.wake).chain(self.books.stranded.values().copied()).min();
        due.filter(|due| *due != Time::NEVER)
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn on_timer(&mut self, now: Time, out: &mut Vec<Action>) {
        let due = self.books.stranded.iter().filter(|(_, until)| **until <= now);
        let due: Vec<RequestId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.context(now, out).reject(id, Reason::NoWorker, None);
        }
        for index in 0..self.books.workers.len() {
            if self.books.workers[index].wake <= now {
                self.plan(now, GpuId::new(index), out);
            }
        }
    }

    /// Takes in an event; what follows from it is appended to `out`.
    pub fn on_event(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Arrived(request) => self.arrived(now, request, out),
            Event::StepDone { worker, step, took, ended } => self.done(now, worker, step, took, &ended, out),
            Event::ClientGone(id) => {
                if let Some(sequence) = self.books.sequences.get(&id) {
                    let worker = sequence.worker;
                    self.books.remove(id);
                    if let Some(worker) = worker {
                        self.plan(now, worker, out);
                    }
                }
            }
            Event::WorkerJoined { worker, kind, cache, models } => {
                self.lose(now, worker, out);
                while self.books.workers.len() <= worker.index() {
                    self.books.workers.push(Worker { wake: Time::NEVER, ..Worker::default() });
                }
                for model in &mut self.books.models {
                    while model.learned.len() <= kind.index() {
                        model.learned.push(Learned::new(model.told));
                    }
                }
                let wake = Time::NEVER;
                self.books.workers[worker.index()] =
                    Worker { alive: true, kind, cache, models, wake, ..Worker::default() };
                let stranded: Vec<RequestId> = self.books.stranded.keys().copied().collect();
                for id in stranded {
                    if self.books.room(self.books.sequence(id).request.model).is_some() {
                        self.place(now, id, false, out);
                    }
                }
            }
            Event::WorkerGone(worker) => self.lose(now, worker, out),
        }
    }

    fn context<'a>(&'a mut self, now: Time, out: &'a mut Vec<Action>) -> Context<'a> {
        Context { now, books: &mut self.books, actions: out }
    }

    fn arrived(&mut self, now: Time, request: Request, out: &mut Vec<Action>) {
        let context = self.books.models[request.model.index()].context;
        let room = self.books.room(request.model).unwrap_or(context);
        let refused = match () {
            () if request.prompt == 0 || request.max_tokens == 0 => Some(Reason::Empty),
            () if request.prompt >= room => Some(Reason::TooLong),
            () => None,
        };
        if let Some(reason) = refused {
            out.push(Action::Reject { request: request.id, reason, come_back: None });
            return;
        }
        let sequence = Sequence {
            request,
            limit: request.max_tokens,
            stage: Stage::Waiting,
            worker: None,
            cached: 0,
            generated: 0,
            first: None,
            in_step: false,
        };
        let before = self.books.sequences.insert(request.id, sequence);
        assert!(before.is_none(), "{:?} came twice", request.id);
        self.place(now, request.id, true, out);
    }

    /// Finds a worker for a sequence that is nowhere, and plans what the worker does if it is idle.
    fn place(&mut self, now: Time, id: RequestId, new: bool, out: &mut Vec<Action>) {
        let sequence = *self.books.sequence(id);
        let Some(room) = self.books.room(sequence.request.model) else {
            let until = now + sequence.request.ttft + WAITS_FOR_WORKER;
            self.books.stranded.entry(id).or_insert(until);
            return;
        };
        if sequence.request.prompt + sequence.generated >= room {
            // Only where the worker with the largest cache was lost: what was promised cannot be kept any more.
            self.context(now, out).reject(id, Reason::TooLong, None);
            return;
        }
        self.books.stranded.remove(&id);
        self.books.sequence_mut(id).limit = sequence.limit.min(room - sequence.request.prompt);
        let mut context = Context { now, books: &mut self.books, actions: out };
        let worker = self.policy.route(&mut context, id);
        self.books.queue(id, worker);
        if new {
            let mut context = Context { now, books: &mut self.books, actions: out };
            self.policy.on_arrival(&mut context, id, worker);
        }
        self.plan(now, worker, out);
    }

    fn done(&mut self, now: Time, worker: GpuId, step: u64, took: Span, ended: &[RequestId], out: &mut Vec<Action>) {
        let Some(there) = self.books.workers.get_mut(worker.index()) else { return };
        if there.running.as_ref().is_none_or(|running| running.step != step) {
            return;
        }
        let running = there.running.take().expect("it was just seen");
        let kind = there.kind.index();
        self.books.models[running.model.index()].learned[kind].learn(running.load, took);
        for id in running.members {
            // Some clients have gone since.
            let Some(sequence) = self.books.sequences.get_mut(&id) else { continue };
            sequence.in_step = false;
            if sequence.remaining() == 0 {
                sequence.generated += 1;
                sequence.first.get_or_insert(now);
                sequence.stage = Stage::Decode;
            }
            let (generated, full) = (sequence.generated, sequence.generated >= sequence.limit);
            if ended.contains(&id) || full {
                self.books.remove(id);
                self.books.models[running.model.index()].lengths.record(generated);
                if !ended.contains(&id) {
                    out.push(Action::End { request: id });
                }
            }
        }
        self.plan(now, worker, out);
    }

    /// A worker is gone: what was on it or waited for it goes elsewhere.
    fn lose(&mut self, now: Time, worker: GpuId, out: &mut Vec<Action>) {
        let Some(there) = self.books.workers.get_mut(worker.index()) else { return };
        if !there.alive {
            return;
        }
        (there.alive, there.running, there.wake) = (false, None, Time::NEVER);
        let mut homeless: Vec<RequestId> = there.active.iter().chain(&there.waiting).copied().collect();
        homeless.sort_unstable();
        homeless.iter().for_each(|id| self.books.detach(*id));
        for id in homeless {
            self.place(now, id, false, out);
        }
    }

    /// Asks the policy what an idle worker does next.
    fn plan(&mut self, now: Time, worker: GpuId, out: &mut Vec<Action>) {
        if !self.books.is_idle(worker) {
            return;
        }
        let mut context = Context { now, books: &mut self.books, actions: out };
        let wake = self.policy.plan(&mut context, worker);
        if self.books.is_idle(worker) {
            assert!(
                wake > now && (wake != Time::NEVER || !self.books.has_work(worker)),
                "{worker:?} has work and nobody will look at it"
            );
            self.books.workers[worker.index()].wake = wake;
        }
    }
}
