//! A node as a process: its roster and its assemblies are those of live nodes, its workers compute nothing.

use crate::Bug;
use crate::network::{End, Line};
use crate::parts::Member;
use config::DataType;
use node::assembly::{Added, Assembly, Batch};
use node::roster::Roster;
use policy::{Span, Time};
use rpc::cluster::proto;
use rpc::{Answer, Failure, FromNode, Incarnation, ModelInfo, NodeHello, Outputs, Tensor, Term, ToNode, WorkerId};
use std::collections::{BTreeMap, VecDeque};

/// How long a batch of this size takes.
pub(crate) fn takes(size: usize) -> Span {
    Span::from_millis(4) + Span::from_millis(1) * size
}

/// A request at a node.
#[derive(Debug)]
struct Guest {
    line: Line,
    batch: u64,
    request: u64,
}

/// What a node wants done.
pub(crate) enum NodeWant {
    News(FromNode),
    Answer(Line, u64, u64, Answer),
    /// To be told of this at a time.
    Timer(Time, NodeTimer),
}

/// What a node waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeTimer {
    /// A worker has loaded its model, in this life of it.
    Loaded(WorkerId, u64),
    /// A worker's batch is over.
    Over(WorkerId, u64),
    /// Parts of batches have been waited for long enough.
    Parts(WorkerId),
}

struct Worker {
    life: u64,
    model: String,
    ready: bool,
    stopping: bool,
    assembly: Assembly<Guest>,
    queue: VecDeque<Batch<Guest>>,
    running: Option<(Batch<Guest>, Time)>,
}

pub(crate) struct NodePart {
    pub(crate) end: End,
    pub(crate) incarnation: Incarnation,
    pub(crate) member: Member,
    pub(crate) roster: Roster,
    workers: BTreeMap<WorkerId, Worker>,
    /// Batches take so many times as long until then.
    pub(crate) slow: (u32, Time),
    pub(crate) wants: Vec<NodeWant>,
    bug: Option<Bug>,
    /// How long a worker of this node takes to start.
    start: Span,
}

pub(crate) fn info() -> ModelInfo {
    serde_json::from_str(r#"{"inputs": [], "outputs": [], "max_batch": 8}"#).expect("it is a model")
}

impl NodePart {
    pub(crate) fn new(end: End, member: Member, start: Span, bug: Option<Bug>) -> NodePart {
        NodePart {
            end,
            incarnation: Incarnation(end.life),
            member,
            roster: Roster::default(),
            workers: BTreeMap::new(),
            slow: (1, Time::ZERO),
            wants: Vec::new(),
            bug,
            start,
        }
    }

    pub(crate) fn hello(&self, index: usize) -> NodeHello {
        NodeHello {
            name: format!("node-{index}"),
            incarnation: self.incarnation,
            virtual_gpus: 0,
            address: index.to_string().into(),
            workers: self.roster.running(),
            leaving: self.roster.is_leaving(),
            capacity: None,
        }
    }

    /// Workers that are ready, with their models.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (WorkerId, &str)> + '_ {
        self.workers.iter().filter(|(_, worker)| worker.ready).map(|(id, worker)| (*id, worker.model.as_str()))
    }

    /// All workers there are.
    pub(crate) fn all(&self) -> Vec<WorkerId> {
        self.workers.keys().copied().collect()
    }

    /// Whether a request is here, in this batch.
    pub(crate) fn holds(&self, worker: WorkerId, request: u64) -> bool {
        self.workers.get(&worker).is_some_and(|worker| {
            let batches = worker.running.iter().map(|(batch, _)| batch).chain(&worker.queue);
            let queued = batches.flat_map(|batch| &batch.payloads).any(|guest| guest.request == request);
            queued || !worker.assembly.is_empty()
        })
    }

    fn say(&mut self, news: FromNode) {
        if self.bug != Some(Bug::StaleRoster) || self.member.joined.is_some() {
            self.roster.on_news(&news);
        }
        self.wants.push(NodeWant::News(news));
    }

    pub(crate) fn leave(&mut self) {
        self.say(FromNode::Leaving);
    }

    pub(crate) fn instruct(&mut self, now: Time, instruction: ToNode) {
        if let Some(instead) = self.roster.on_instruction(&instruction) {
            return self.wants.push(NodeWant::News(instead));
        }
        match instruction {
            ToNode::Start { worker, spec } => {
                let patience = if self.bug == Some(Bug::EndlessAssembly) { Span::MAX } else { rpc::timing::PARTS };
                let state = Worker {
                    life: 0,
                    model: spec.name.clone(),
                    ready: false,
                    stopping: false,
                    assembly: Assembly::new(patience),
                    queue: VecDeque::new(),
                    running: None,
                };
                self.workers.insert(worker, state);
                self.wants.push(NodeWant::Timer(now + self.start, NodeTimer::Loaded(worker, 0)));
            }
            ToNode::Stop { worker } => {
                if let Some(state) = self.workers.get_mut(&worker) {
                    state.stopping = true;
                }
                self.finish(worker);
            }
            ToNode::Virtual { .. } | ToNode::Stretch { .. } | ToNode::Heartbeat => {}
        }
    }

    /// A worker that is to stop does when it has nothing left.
    fn finish(&mut self, worker: WorkerId) {
        let Some(state) = self.workers.get(&worker) else { return };
        let idle = state.running.is_none() && state.queue.is_empty() && state.assembly.is_empty();
        if state.stopping && (idle || !state.ready) {
            self.workers.remove(&worker);
            self.say(FromNode::Stopped { worker });
        }
    }

    pub(crate) fn on_timer(&mut self, now: Time, timer: NodeTimer) {
        match timer {
            NodeTimer::Loaded(worker, life) => {
                let Some(state) = self.workers.get_mut(&worker).filter(|state| state.life == life) else { return };
                state.ready = true;
                let measured = vec![(1, takes(1)), (8, takes(8))];
                self.say(FromNode::Ready { worker, info: info(), measured });
            }
            NodeTimer::Over(worker, life) => {
                let due = |state: &&mut Worker| {
                    state.life == life && state.running.as_ref().is_some_and(|(_, at)| *at <= now)
                };
                let Some(state) = self.workers.get_mut(&worker).filter(due) else { return };
                let (batch, _) = state.running.take().expect("it was just seen");
                let model: std::sync::Arc<str> = state.model.as_str().into();
                let size = batch.payloads.len();
                for (index, Guest { line, request, .. }) in batch.payloads.into_iter().enumerate() {
                    let tensor = Tensor {
                        name: model.clone(),
                        datatype: DataType::Fp32,
                        shape: vec![],
                        data: Default::default(),
                    };
                    let outputs = Outputs {
                        tensors: vec![tensor],
                        compute: takes(size).into(),
                        batch_size: size,
                        leads: index == 0,
                    };
                    self.wants.push(NodeWant::Answer(line, batch.number, request, Ok(outputs)));
                }
                self.say(FromNode::Done { worker, batch: batch.number, size, took: Some(takes(size)) });
                self.begin(now, worker);
                self.finish(worker);
            }
            NodeTimer::Parts(worker) => {
                let Some(state) = self.workers.get_mut(&worker) else { return };
                for batch in state.assembly.expire(now) {
                    self.enqueue(now, worker, batch);
                }
                self.finish(worker);
            }
        }
    }

    fn enqueue(&mut self, now: Time, worker: WorkerId, batch: Batch<Guest>) {
        if batch.payloads.is_empty() {
            return self.say(FromNode::Done { worker, batch: batch.number, size: 0, took: None });
        }
        if let Some(state) = self.workers.get_mut(&worker) {
            state.queue.push_back(batch);
        }
        self.begin(now, worker);
    }

    fn begin(&mut self, now: Time, worker: WorkerId) {
        let factor = if now < self.slow.1 { u64::from(self.slow.0) } else { 1 };
        let Some(state) = self.workers.get_mut(&worker).filter(|state| state.running.is_none()) else { return };
        let Some(batch) = state.queue.pop_front() else { return };
        let over = now + takes(batch.payloads.len()).scale(factor, 1);
        let life = state.life;
        state.running = Some((batch, over));
        self.wants.push(NodeWant::Timer(over, NodeTimer::Over(worker, life)));
    }

    fn fail(&mut self, guests: Vec<Guest>, failure: &Failure) {
        for Guest { line, batch, request } in guests {
            self.wants.push(NodeWant::Answer(line, batch, request, Err(failure.clone())));
        }
    }

    /// A gateway brings a part of a batch; whether it is taken.
    pub(crate) fn part(&mut self, now: Time, line: Line, part: proto::Part) -> bool {
        let admitted = self.bug == Some(Bug::NoFence) || self.member.fence.admits(Term(part.term));
        if !admitted {
            let request = |payload: &proto::Payload| Guest { line, batch: part.batch, request: payload.request };
            let guests = part.payloads.iter().map(request).collect();
            self.fail(guests, &Failure::NotRun("its scheduler no longer leads".into()));
            return false;
        }
        self.take(now, line, part);
        true
    }

    fn take(&mut self, now: Time, line: Line, part: proto::Part) {
        let (id, number, absent) = (WorkerId(part.worker), part.batch, part.absent as usize);
        let guests: Vec<Guest> =
            part.payloads.iter().map(|payload| Guest { line, batch: number, request: payload.request }).collect();
        let Some(worker) = self.workers.get_mut(&id) else {
            let unknown = match self.bug {
                Some(Bug::WrongNode) => Failure::WorkerDied,
                _ => Failure::NotRun("there is no such worker here".into()),
            };
            return self.fail(guests, &unknown);
        };
        if !worker.ready {
            return self.fail(guests, &Failure::NotRun("its worker is not ready".into()));
        }
        match worker.assembly.add(now, number, part.size as usize, guests, absent) {
            Added::Complete(batch) => self.enqueue(now, id, batch),
            Added::Incomplete => {
                let due = worker.assembly.next_deadline().filter(|at| *at != Time::NEVER);
                self.wants.extend(due.map(|at| NodeWant::Timer(at, NodeTimer::Parts(id))));
            }
            Added::Over(guests, failure) => self.fail(guests, &failure),
        }
    }

    /// One of the workers that are ready dies, and is started again.
    pub(crate) fn kill_worker(&mut self, now: Time, pick: u32) {
        let ready: Vec<WorkerId> = self.ready().map(|(id, _)| id).collect();
        let Some(id) = ready.get(pick as usize % ready.len().max(1)).copied() else { return };
        let worker = self.workers.get_mut(&id).expect("it was just seen");
        worker.ready = false;
        worker.life += 1;
        let life = worker.life;
        let running = worker.running.take().map(|(batch, _)| batch);
        let batches: Vec<Batch<Guest>> = running.into_iter().chain(worker.queue.drain(..)).collect();
        let waiting = worker.assembly.abandon();
        self.say(FromNode::Lost { worker: id, reason: "killed".into(), again_in: Span::from_millis(100) });
        for batch in batches {
            self.fail(batch.payloads, &Failure::WorkerDied);
        }
        self.fail(waiting, &Failure::WorkerDied);
        self.wants.push(NodeWant::Timer(now + self.start, NodeTimer::Loaded(id, life)));
        self.finish(id);
    }
}
