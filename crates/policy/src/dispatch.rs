//! The dispatcher: requests and GPUs in, batches and refusals out.
//!
//! A pure state machine around a [`Policy`]. It keeps the books (see [`Cluster`]) so that whatever the policy
//! does, every request is answered exactly once: it finishes in a batch, or it is refused with a reason. One that
//! waits may be withdrawn instead, and is then not answered at all. The
//! policy only chooses which lane runs on which GPU, when, and in what size.
//!
//! What it does not do: read a clock, wait, fail. Bad input is stopped before it gets here; a broken
//! invariant is a panic.

use crate::{
    Cluster, Flight, GpuId, GpuType, LaneId, LatencyTable, Model, ModelId, Network, Request, RequestId, Span, Time,
};
use std::ops::Range;

/// What the dispatcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request came.
    Arrived(Request),
    /// Nobody waits for the answer to this request any more. One that is in a batch, or was answered, is ignored.
    Withdrawn {
        /// Which one.
        request: RequestId,
        /// What it asked for.
        model: ModelId,
    },
    /// The batch with this serial number is over. Word of a batch the GPU no longer has is ignored.
    BatchDone {
        /// Where it ran.
        gpu: GpuId,
        /// Which one it was.
        batch: u64,
    },
    /// A GPU stopped and dropped what it had been given. What was over before is told by `BatchDone`, first.
    Preempted(GpuId),
    /// A GPU is there to be used.
    GpuJoined {
        /// Its name.
        gpu: GpuId,
        /// Its type.
        kind: GpuType,
    },
    /// A GPU finishes what it was given and then goes.
    GpuLeaving(GpuId),
    /// A GPU is gone, with whatever ran on it.
    GpuLost(GpuId),
}

/// What the dispatcher wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run these requests together, after whatever the GPU was given before.
    Run {
        /// Where.
        gpu: GpuId,
        /// What they ask for.
        model: ModelId,
        /// Serial number, to be named when it is over.
        batch: u64,
        /// Which entries of [`Actions::requests`] are in it.
        requests: Range<usize>,
        /// When it is expected to be over.
        finish: Time,
    },
    /// Answer this request with a refusal.
    Reject {
        /// Which one.
        request: RequestId,
        /// What it asked for.
        model: ModelId,
        /// Why.
        reason: Reason,
    },
    /// Stop what this GPU runs and say so with [`Event::Preempted`]; its requests then wait again.
    Preempt {
        /// Where.
        gpu: GpuId,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It could not have met its deadline any more, even alone.
    TooLate,
    /// It held back a batch of others that could still be on time.
    Sacrificed,
    /// The GPU it was on died, and there was no time left to start again.
    GpuLost,
}

impl Reason {
    /// All of them, in the order of reports.
    pub const ALL: [Reason; 3] = [Reason::TooLate, Reason::Sacrificed, Reason::GpuLost];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::TooLate => "too_late",
            Reason::Sacrificed => "sacrificed",
            Reason::GpuLost => "gpu_lost",
        }
    }
}

/// Actions in order. Kept by the driver and cleared after use, so that a request costs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    /// What to do.
    pub list: Vec<Action>,
    /// Requests of the batches, named by ranges in `list`.
    pub requests: Vec<RequestId>,
}

impl Actions {
    /// Forgets all of them and keeps the room.
    pub fn clear(&mut self) {
        self.list.clear();
        self.requests.clear();
    }
}

/// A way of choosing what runs where and when. One file each, in `policies`.
pub trait Policy: Send {
    /// The lane a request waits in. Its model's own, unless the policy routes requests.
    fn route(&mut self, _context: &mut Context, request: &Request) -> LaneId {
        LaneId(request.model.0)
    }

    /// A lane changed: someone came, came back, was withdrawn, or lost the last chance and was refused.
    fn on_queue(&mut self, context: &mut Context, lane: LaneId);

    /// A GPU became available.
    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId);

    /// GPUs joined, left or died.
    fn on_cluster(&mut self, _context: &mut Context) {}

    /// The time given by `next_timer` came.
    fn on_timer(&mut self, _context: &mut Context) {}

    /// When `on_timer` is next due; [`Time::NEVER`] when it is not.
    fn next_timer(&self) -> Time {
        Time::NEVER
    }

    /// How long before a GPU is free it may be given its next batch.
    fn lead(&self, network: &Network) -> Span {
        network.control
    }

    /// Whether requests wait until their deadline has passed, rather than until they can no longer meet it.
    /// Only policies that know nothing of deadlines say yes; their batches may be late.
    fn ignores_deadlines(&self) -> bool {
        false
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn route(&mut self, context: &mut Context, request: &Request) -> LaneId {
        (**self).route(context, request)
    }

    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        (**self).on_queue(context, lane);
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        (**self).on_gpu(context, gpu);
    }

    fn on_cluster(&mut self, context: &mut Context) {
        (**self).on_cluster(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        (**self).on_timer(context);
    }

    fn next_timer(&self) -> Time {
        (**self).next_timer()
    }

    fn lead(&self, network: &Network) -> Span {
        (**self).lead(network)
    }

    fn ignores_deadlines(&self) -> bool {
        (**self).ignores_deadlines()
    }
}

/// What a policy sees and what it can do.
#[derive(Debug)]
pub struct Context<'a> {
    /// The moment of the event.
    pub now: Time,
    /// The books. Policies read them; changes go through the methods here.
    pub cluster: &'a mut Cluster,
    actions: &'a mut Actions,
    patient: bool,
}

impl Context<'_> {
    /// Sends the first `size` requests of a lane to an available GPU as one batch.
    pub fn run(&mut self, gpu: GpuId, lane: LaneId, size: usize) {
        let cluster = &mut *self.cluster;
        assert!(cluster.is_available(gpu), "{gpu:?} is not available");
        assert!(
            size > 0 && size <= cluster.queue(lane).len(),
            "a batch of {size} from a queue of {}",
            cluster.queue(lane).len()
        );
        let outlook = cluster.outlook(self.now, lane, gpu);
        let (start, finish) = (outlook.start(size), outlook.finish(size));
        let (batch, model) = (cluster.batches, cluster.model_of(lane));
        cluster.batches += 1;
        let first = self.actions.requests.len();
        let queue = &mut cluster.lanes[lane.index()].queue;
        let state = &mut cluster.gpus[gpu.index()];
        for _ in 0..size {
            let request = queue.pop().expect("the queue holds the batch");
            self.actions.requests.push(request.id);
            state.requests.push_back(request);
        }
        state.flights.push_back(Flight { batch, lane, model, size, start, finish });
        state.free_at = finish;
        let requests = first..self.actions.requests.len();
        self.actions.list.push(Action::Run { gpu, model, batch, requests, finish });
        cluster.sort_gpu(self.now, gpu);
        cluster.watch_head(lane, self.patient);
    }

    /// Refuses the first `count` requests of a lane.
    pub fn reject(&mut self, lane: LaneId, count: usize, reason: Reason) {
        for _ in 0..count {
            let request = self.cluster.lanes[lane.index()].queue.pop().expect("the queue holds those refused");
            self.refuse(request, reason);
        }
        if count > 0 {
            self.cluster.watch_head(lane, self.patient);
        }
    }

    fn refuse(&mut self, request: Request, reason: Reason) {
        self.cluster.refused[request.model.index()] += 1;
        self.actions.list.push(Action::Reject { request: request.id, model: request.model, reason });
    }

    /// Refuses heads so that those behind them can run as a larger batch.
    pub fn sacrifice(&mut self, lane: LaneId, count: usize) {
        for _ in 0..count {
            let head = self.cluster.queue(lane).head().expect("the queue holds those refused");
            let hopeless = !self.cluster.has_a_chance(self.now, head);
            self.reject(lane, 1, if hopeless { Reason::TooLate } else { Reason::Sacrificed });
        }
    }

    /// Tells a GPU to stop what it runs. Once it did, its requests go back to their lanes while there is time,
    /// and the GPU is available.
    pub fn preempt(&mut self, gpu: GpuId) {
        self.actions.list.push(Action::Preempt { gpu });
        self.cluster.gpus[gpu.index()].stopping = true;
        self.cluster.sort_gpu(self.now, gpu);
    }

    /// Moves all that waits in one lane to another of the same model.
    pub fn merge(&mut self, from: LaneId, to: LaneId) {
        assert!(
            from != to && self.cluster.model_of(from) == self.cluster.model_of(to),
            "lanes of one model are merged"
        );
        while let Some(request) = self.cluster.lanes[from.index()].queue.pop() {
            self.cluster.lanes[to.index()].queue.insert(request);
        }
        self.cluster.watch_head(from, self.patient);
        self.cluster.watch_head(to, self.patient);
    }

    /// Refuses heads that cannot be on time even alone, on whichever GPU would have them done first.
    pub fn reject_hopeless(&mut self, lane: LaneId) {
        let queue = self.cluster.queue(lane);
        if queue.is_empty() {
            return;
        }
        let finish = self.cluster.earliest_finish(self.now, lane);
        let count = (0..queue.len()).take_while(|index| queue.deadline(*index) < finish).count();
        self.reject(lane, count, Reason::TooLate);
    }

    /// Takes all batches off a GPU. Requests with time left wait again in the lane they came from.
    fn take_back(&mut self, gpu: GpuId, reason: Reason) -> Vec<LaneId> {
        let state = &mut self.cluster.gpus[gpu.index()];
        let flights = std::mem::take(&mut state.flights);
        let mut requests = std::mem::take(&mut state.requests);
        for flight in &flights {
            for request in requests.drain(..flight.size) {
                if self.cluster.has_a_chance(self.now, &request) {
                    self.cluster.lanes[flight.lane.index()].queue.insert(request);
                } else {
                    self.refuse(request, reason);
                }
            }
            self.cluster.watch_head(flight.lane, self.patient);
        }
        let mut lanes: Vec<_> = flights.iter().map(|flight| flight.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}

/// The books and a policy.
pub struct Dispatcher<P: Policy = Box<dyn Policy>> {
    cluster: Cluster,
    policy: P,
    patient: bool,
}

impl Dispatcher {
    /// A dispatcher for these models on GPUs of these types, with nobody waiting.
    pub fn new(models: Vec<Model>, gpus: &[GpuType], network: Network, policy: Box<dyn Policy>) -> Dispatcher {
        Dispatcher::of(models, gpus, network, policy)
    }
}

impl<P: Policy> Dispatcher<P> {
    /// The same for a policy whose type is known.
    pub(crate) fn of(models: Vec<Model>, gpus: &[GpuType], network: Network, policy: P) -> Dispatcher<P> {
        let cluster = Cluster::new(models, gpus, network, policy.lead(&network));
        let patient = policy.ignores_deadlines();
        Dispatcher { cluster, policy, patient }
    }

    /// What the scheduler knows.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The books and the policy, to be made like those of another dispatcher before it is told anything.
    pub(crate) fn parts(&mut self) -> (&mut Cluster, &mut P) {
        (&mut self.cluster, &mut self.policy)
    }

    /// Whether the policy never starts a batch that it knows to be late.
    pub fn keeps_deadlines(&self) -> bool {
        !self.patient
    }

    /// Serves one more model from now on. Lanes are models here: a policy that opened others cannot take in more.
    pub fn add_model(&mut self, model: Model) -> ModelId {
        self.cluster.add_model(model)
    }

    /// Learns how long batches of a model take on a type of GPU. An empty table: they cannot be run there any more.
    pub fn set_table(&mut self, now: Time, model: ModelId, kind: GpuType, table: LatencyTable, out: &mut Actions) {
        self.cluster.set_table(model, kind, table);
        let lane = LaneId(model.0);
        if !self.cluster.queue(lane).is_empty() {
            self.cluster.watch_head(lane, self.patient);
            let mut context = Context { now, cluster: &mut self.cluster, actions: out, patient: self.patient };
            self.policy.on_queue(&mut context, lane);
        }
    }

    /// Takes in an event; what follows from it is appended to `out`.
    pub fn on_event(&mut self, now: Time, event: Event, out: &mut Actions) {
        let mut context = Context { now, cluster: &mut self.cluster, actions: out, patient: self.patient };
        match event {
            Event::Arrived(request) => {
                context.cluster.rates[request.model.index()].record(now);
                context.cluster.offered[request.model.index()] += 1;
                let lane = self.policy.route(&mut context, &request);
                let queue = &mut context.cluster.lanes[lane.index()].queue;
                queue.insert(request);
                if queue.head().is_some_and(|head| head.id == request.id) {
                    context.cluster.watch_head(lane, self.patient);
                }
                self.policy.on_queue(&mut context, lane);
            }
            Event::Withdrawn { request, model } => {
                let lanes = (0..context.cluster.lanes.len()).map(LaneId::new);
                for lane in lanes.filter(|lane| context.cluster.model_of(*lane) == model).collect::<Vec<_>>() {
                    let Some(place) = context.cluster.lanes[lane.index()].queue.remove(request) else { continue };
                    context.cluster.withdrawn[model.index()] += 1;
                    if place == 0 {
                        context.cluster.watch_head(lane, self.patient);
                    }
                    self.policy.on_queue(&mut context, lane);
                    return;
                }
            }
            Event::BatchDone { gpu, batch } => {
                let state = &mut context.cluster.gpus[gpu.index()];
                if state.flights.front().is_none_or(|flight| flight.batch != batch) {
                    return;
                }
                let flight = state.flights.pop_front().expect("there is a first batch");
                state.requests.drain(..flight.size);
                let mut free_at = now;
                for flight in &mut state.flights {
                    let takes = flight.finish - flight.start;
                    flight.start = flight.start.max(free_at);
                    flight.finish = flight.start + takes;
                    free_at = flight.finish;
                }
                state.free_at = free_at;
                if context.cluster.sort_gpu(now, gpu) {
                    self.policy.on_gpu(&mut context, gpu);
                }
            }
            Event::Preempted(gpu) => {
                if !std::mem::take(&mut context.cluster.gpus[gpu.index()].stopping) {
                    return;
                }
                let lanes = context.take_back(gpu, Reason::TooLate);
                context.cluster.gpus[gpu.index()].free_at = now;
                if context.cluster.sort_gpu(now, gpu) {
                    self.policy.on_gpu(&mut context, gpu);
                }
                for lane in lanes {
                    self.policy.on_queue(&mut context, lane);
                }
            }
            Event::GpuJoined { gpu, kind } => {
                context.cluster.join(now, gpu, kind);
                context.cluster.count_live();
                self.policy.on_cluster(&mut context);
                self.policy.on_gpu(&mut context, gpu);
                // Who waited with no GPU in sight is looked at again.
                for lane in (0..context.cluster.lanes.len()).map(LaneId::new) {
                    if !context.cluster.queue(lane).is_empty() {
                        self.policy.on_queue(&mut context, lane);
                    }
                }
            }
            Event::GpuLeaving(gpu) => {
                let state = &mut context.cluster.gpus[gpu.index()];
                state.leaving = true;
                context.cluster.sort_gpu(now, gpu);
                context.cluster.count_live();
                self.policy.on_cluster(&mut context);
            }
            Event::GpuLost(gpu) => {
                let lanes = context.take_back(gpu, Reason::GpuLost);
                let state = &mut context.cluster.gpus[gpu.index()];
                (state.alive, state.stopping) = (false, false);
                context.cluster.sort_gpu(now, gpu);
                context.cluster.count_live();
                self.policy.on_cluster(&mut context);
                for lane in lanes {
                    self.policy.on_queue(&mut context, lane);
                }
            }
        }
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn on_timer(&mut self, now: Time, out: &mut Actions) {
        let mut context = Context { now, cluster: &mut self.cluster, actions: out, patient: self.patient };
        if self.policy.next_timer() <= now {
            self.policy.on_timer(&mut context);
        }
        while let Some((at, lane)) = context.cluster.expiry.first()
            && at <= now
        {
            let lane = LaneId::new(lane);
            context.reject(lane, 1, Reason::TooLate);
            self.policy.on_queue(&mut context, lane);
        }
        while context.cluster.next_available() <= now {
            let (_, gpu) = context.cluster.busy.first().expect("a busy GPU is due");
            let gpu = GpuId::new(gpu);
            if context.cluster.sort_gpu(now, gpu) {
                self.policy.on_gpu(&mut context, gpu);
            }
        }
    }

    /// When `on_timer` is next due.
    #[inline]
    pub fn next_timer(&self) -> Option<Time> {
        let due = self.policy.next_timer().min(self.cluster.expiry.earliest()).min(self.cluster.next_available());
        (due != Time::NEVER).then_some(due)
    }
}
