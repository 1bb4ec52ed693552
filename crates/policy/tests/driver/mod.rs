//! A driver with books of its own: what it was told to do, and what it then saw done.

use policy::{
    Action, Actions, Dispatcher, Event, GpuId, GpuType, Model, ModelId, Network, Reason, Request, RequestId, Span,
    Time, policies,
};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) network: Network,
    pub(crate) models: Vec<Model>,
    /// The type of each GPU there may be, by id.
    pub(crate) kinds: Vec<u32>,
    /// How many of them are there from the start.
    pub(crate) present: usize,
    /// How long batches take, in hundredths of the plan, in turn.
    pub(crate) paces: Vec<u64>,
    /// What happens, and how long after the step before.
    pub(crate) steps: Vec<(Span, Step)>,
    /// Whether a timer that is due comes before a step at the same instant.
    pub(crate) timers_first: bool,
}

/// Models and GPUs are named by any number, counted round those that come into question.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request with a deadline of its own, in hundredths of the model's objective.
    Arrive {
        model: usize,
        hundredths: u64,
    },
    /// One of the requests that came is withdrawn, whatever became of it.
    Withdraw(usize),
    /// One of the GPUs that are gone comes.
    Join(usize),
    /// One of the GPUs that are there finishes and goes.
    Leave(usize),
    /// One of the GPUs that are there, or on their way out, dies.
    Lose(usize),
    LoseAll,
    /// Word of a batch that the GPU does not have.
    UnknownDone {
        gpu: usize,
        batch: u64,
    },
    /// Word of a preemption that nobody asked for.
    UnaskedPreempted(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Waiting,
    Running(usize),
    Finished,
    Refused,
    Withdrawn,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Presence {
    Here,
    Leaving,
    Gone,
}

struct Batch {
    serial: u64,
    requests: Vec<RequestId>,
    start: Time,
    finish: Time,
}

struct Gpu {
    presence: Presence,
    stopping: bool,
    /// Counts its deaths, so that word for one who died does not reach one who lives.
    life: usize,
    /// The plan, as the dispatcher must have it too.
    batches: VecDeque<Batch>,
    free_at: Time,
    /// When it will really be free.
    really_free_at: Time,
}

enum Due {
    Done { gpu: usize, serial: u64 },
    Stopped { gpu: usize, life: usize },
}

/// When, what, and the requests of the batches.
pub(crate) type Decision = (Time, Vec<Action>, Vec<RequestId>);

pub(crate) struct Driver<'a> {
    case: &'a Case,
    policy: &'a str,
    dispatcher: Dispatcher,
    out: Actions,
    log: Vec<Decision>,
    now: Time,
    requests: Vec<(Request, Place)>,
    gpus: Vec<Gpu>,
    due: BTreeMap<(Time, usize), Due>,
    scheduled: usize,
    batches: usize,
    refused: Vec<u64>,
    withdrawn: Vec<u64>,
    /// The GPU whose death is being told.
    dying: Option<usize>,
    events: usize,
    /// Timers after which nothing was done.
    idle_timers: usize,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(case: &'a Case, policy: &'a str) -> Driver<'a> {
        let policy_itself = policies::by_name(policy).expect("the name is in the list of names");
        let kinds: Vec<_> = case.kinds[..case.present].iter().map(|kind| GpuType(*kind)).collect();
        let gpu = |id: usize| Gpu {
            presence: if id < case.present { Presence::Here } else { Presence::Gone },
            stopping: false,
            life: 0,
            batches: VecDeque::new(),
            free_at: Time::ZERO,
            really_free_at: Time::ZERO,
        };
        Driver {
            case,
            policy,
            dispatcher: Dispatcher::new(case.models.clone(), &kinds, case.network, policy_itself),
            out: Actions::default(),
            log: Vec::new(),
            now: Time::ZERO,
            requests: Vec::new(),
            gpus: (0..case.kinds.len()).map(gpu).collect(),
            due: BTreeMap::new(),
            scheduled: 0,
            batches: 0,
            refused: vec![0; case.models.len()],
            withdrawn: vec![0; case.models.len()],
            dying: None,
            events: 0,
            idle_timers: 0,
        }
    }

    /// All that the dispatcher did, once every request was answered.
    pub(crate) fn run(mut self) -> Vec<Decision> {
        let mut at = Time::ZERO;
        for (gap, step) in &self.case.steps {
            at += *gap;
            self.advance(at);
            self.now = at;
            self.step(step);
            self.compare();
        }
        let open = |driver: &Driver| {
            driver.requests.iter().any(|(_, place)| matches!(place, Place::Waiting | Place::Running(_)))
        };
        while open(&self) {
            let next = self.next_due();
            assert!(next != Time::NEVER, "{}: requests wait and nothing will ever happen", self.policy);
            self.advance(next + Span::from_nanos(1));
            self.compare();
        }
        self.log
    }

    fn timer(&self) -> Time {
        self.dispatcher.next_timer().map_or(Time::NEVER, |at| at.max(self.now))
    }

    fn next_due(&self) -> Time {
        self.due.keys().next().map_or(Time::NEVER, |(at, _)| *at).min(self.timer())
    }

    /// Lets happen what is due before `until`, and at `until` what comes before a step.
    fn advance(&mut self, until: Time) {
        let (mut since, mut rounds) = (self.now, 0);
        loop {
            (since, rounds) = if self.now == since { (since, rounds + 1) } else { (self.now, 0) };
            assert!(rounds < 10_000, "{}: time stands still at {since:?}", self.policy);
            let end = self.due.keys().next().map_or(Time::NEVER, |(at, _)| *at);
            let timer = self.timer();
            self.timers_that_come_early_do_nothing(until.min(end));
            if end <= timer && end <= until {
                let ((at, _), what) = self.due.pop_first().expect("something is due");
                self.now = at;
                self.happen(what);
            } else if timer < until || (timer == until && self.case.timers_first) {
                self.now = timer;
                self.dispatcher.on_timer(timer, &mut self.out);
                self.idle_timers += usize::from(self.out.list.is_empty());
                let reasonable = 20 * self.events + 100;
                assert!(self.idle_timers < reasonable, "{}: timers rush in at {timer:?}", self.policy);
                self.act();
                let again = self.dispatcher.next_timer();
                assert!(
                    again.is_none_or(|at| at > self.now),
                    "{}: a timer at {:?} fires for ever",
                    self.policy,
                    self.now
                );
            } else {
                return;
            }
        }
    }

    fn timers_that_come_early_do_nothing(&mut self, until: Time) {
        let before = self.dispatcher.next_timer();
        let soon = self.now + Span::from_secs(3600);
        assert!(before.is_none_or(|at| at < soon), "{}: a timer that stands for never", self.policy);
        let last_moment = Time::from_nanos(self.timer().nanos().saturating_sub(1)).min(until);
        for early in [self.now, last_moment] {
            if before.is_none_or(|at| early < at) && early >= self.now {
                self.dispatcher.on_timer(early, &mut self.out);
                assert!(self.out.list.is_empty(), "{}: an early timer did something", self.policy);
                assert_eq!(self.dispatcher.next_timer(), before, "{}: an early timer moved the next", self.policy);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        self.events += 1;
        self.dispatcher.on_event(self.now, event, &mut self.out);
        self.act();
    }

    /// Tells what should change nothing.
    fn tell_in_vain(&mut self, event: Event) {
        let before = self.dispatcher.next_timer();
        self.dispatcher.on_event(self.now, event, &mut self.out);
        assert!(self.out.list.is_empty(), "{}: acted on {event:?}", self.policy);
        assert_eq!(self.dispatcher.next_timer(), before, "{}: {event:?} moved the timer", self.policy);
    }

    fn schedule(&mut self, at: Time, what: Due) {
        self.due.insert((at, self.scheduled), what);
        self.scheduled += 1;
    }

    fn pick(&self, index: usize, wanted: impl Fn(&Gpu) -> bool) -> Option<usize> {
        let able: Vec<_> = (0..self.gpus.len()).filter(|gpu| wanted(&self.gpus[*gpu])).collect();
        (!able.is_empty()).then(|| able[index % able.len()])
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Arrive { model, hundredths } => {
                let model = model % self.case.models.len();
                let objective = self.case.models[model].objective.scale(*hundredths, 100);
                let request = Request {
                    id: RequestId(self.requests.len() as u64),
                    model: ModelId::new(model),
                    arrival: self.now,
                    deadline: self.now + (objective - self.case.network.response),
                };
                self.requests.push((request, Place::Waiting));
                self.tell(Event::Arrived(request));
            }
            Step::Withdraw(index) => {
                let Some((request, place)) = self.requests.get(index % self.requests.len().max(1)).copied() else {
                    return;
                };
                let event = Event::Withdrawn { request: request.id, model: request.model };
                if place != Place::Waiting {
                    return self.tell_in_vain(event);
                }
                self.requests[request.id.0 as usize].1 = Place::Withdrawn;
                self.withdrawn[request.model.index()] += 1;
                self.tell(event);
            }
            Step::Join(index) => {
                if let Some(gpu) = self.pick(*index, |gpu| gpu.presence == Presence::Gone) {
                    let state = &mut self.gpus[gpu];
                    (state.presence, state.free_at, state.really_free_at) = (Presence::Here, self.now, self.now);
                    self.tell(Event::GpuJoined { gpu: GpuId::new(gpu), kind: GpuType(self.case.kinds[gpu]) });
                }
            }
            Step::Leave(index) => {
                if let Some(gpu) = self.pick(*index, |gpu| gpu.presence == Presence::Here) {
                    self.gpus[gpu].presence = Presence::Leaving;
                    self.leave_if_done(gpu);
                    self.tell(Event::GpuLeaving(GpuId::new(gpu)));
                }
            }
            Step::Lose(index) => {
                if let Some(gpu) = self.pick(*index, |gpu| gpu.presence != Presence::Gone) {
                    self.lose(gpu);
                }
            }
            Step::LoseAll => {
                for gpu in 0..self.gpus.len() {
                    if self.gpus[gpu].presence != Presence::Gone {
                        self.lose(gpu);
                    }
                }
            }
            Step::UnknownDone { gpu, batch } => {
                let known = |gpu: &usize| *gpu < self.dispatcher.cluster().gpus.len();
                let gpu = Some(gpu % self.gpus.len()).filter(known);
                let front = |gpu: usize| self.gpus[gpu].batches.front().map(|batch| batch.serial);
                if let Some(gpu) = gpu.filter(|gpu| front(*gpu) != Some(*batch)) {
                    self.tell_in_vain(Event::BatchDone { gpu: GpuId::new(gpu), batch: *batch });
                }
            }
            Step::UnaskedPreempted(index) => {
                if let Some(gpu) = self.pick(*index, |gpu| gpu.presence == Presence::Here && !gpu.stopping) {
                    self.tell_in_vain(Event::Preempted(GpuId::new(gpu)));
                }
            }
        }
    }

    fn lose(&mut self, gpu: usize) {
        let aboard = |(request, place): &(Request, Place)| (*place == Place::Running(gpu)).then_some(*request);
        let aboard: Vec<_> = self.requests.iter().filter_map(aboard).collect();
        self.take_back(gpu);
        let state = &mut self.gpus[gpu];
        (state.presence, state.stopping, state.life) = (Presence::Gone, false, state.life + 1);
        self.dying = Some(gpu);
        self.tell(Event::GpuLost(GpuId::new(gpu)));
        self.dying = None;
        for request in aboard.iter().filter(|request| !self.has_a_chance(request)) {
            let place = self.requests[request.id.0 as usize].1;
            assert_eq!(
                place,
                Place::Refused,
                "{}: {:?} went down with GPU {gpu} and cannot be saved",
                self.policy,
                request.id
            );
        }
    }

    fn take_back(&mut self, gpu: usize) {
        for batch in self.gpus[gpu].batches.drain(..) {
            for id in batch.requests {
                self.requests[id.0 as usize].1 = Place::Waiting;
            }
        }
        self.gpus[gpu].free_at = self.now;
        self.gpus[gpu].really_free_at = self.now;
    }

    fn leave_if_done(&mut self, gpu: usize) {
        let state = &mut self.gpus[gpu];
        if state.presence == Presence::Leaving && state.batches.is_empty() {
            // A preemption that was under way is no longer of interest.
            (state.presence, state.stopping, state.life) = (Presence::Gone, false, state.life + 1);
        }
    }

    fn happen(&mut self, what: Due) {
        match what {
            Due::Done { gpu, serial } => {
                let event = Event::BatchDone { gpu: GpuId::new(gpu), batch: serial };
                if self.gpus[gpu].batches.front().is_none_or(|batch| batch.serial != serial) {
                    // It was lost or stopped before it was over.
                    return self.tell_in_vain(event);
                }
                let batch = self.gpus[gpu].batches.pop_front().expect("just seen");
                for id in batch.requests {
                    let place = &mut self.requests[id.0 as usize].1;
                    assert_eq!(*place, Place::Running(gpu));
                    *place = Place::Finished;
                }
                // What was to follow starts now if it should have started before.
                let mut free_at = self.now;
                for batch in &mut self.gpus[gpu].batches {
                    let takes = batch.finish - batch.start;
                    batch.start = batch.start.max(free_at);
                    batch.finish = batch.start + takes;
                    free_at = batch.finish;
                }
                self.gpus[gpu].free_at = free_at;
                self.leave_if_done(gpu);
                self.tell(event);
            }
            Due::Stopped { gpu, life } => {
                if self.gpus[gpu].life != life {
                    return;
                }
                self.take_back(gpu);
                self.gpus[gpu].stopping = false;
                self.leave_if_done(gpu);
                self.tell(Event::Preempted(GpuId::new(gpu)));
            }
        }
    }

    fn act(&mut self) {
        if self.out.list.is_empty() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        for action in &out.list {
            match action {
                Action::Run { gpu, model, batch, requests, finish } => {
                    self.start(gpu.index(), *model, *batch, &out.requests[requests.clone()], *finish);
                }
                Action::Reject { request, reason, .. } => self.refuse(*request, *reason),
                Action::Preempt { gpu } => {
                    let state = &mut self.gpus[gpu.index()];
                    assert!(state.presence == Presence::Here && !state.stopping, "{}: preempts {gpu:?}", self.policy);
                    assert!(!state.batches.is_empty(), "{}: preempts {gpu:?}, which is idle", self.policy);
                    state.stopping = true;
                    let life = state.life;
                    let at = self.now + self.case.network.control * 2;
                    self.schedule(at, Due::Stopped { gpu: gpu.index(), life });
                }
            }
        }
        self.log.push((self.now, out.list, out.requests));
    }

    fn start(&mut self, gpu: usize, model: ModelId, serial: u64, ids: &[RequestId], finish: Time) {
        let (policy, network, size) = (self.policy, &self.case.network, ids.len());
        let state = &mut self.gpus[gpu];
        assert!(state.presence == Presence::Here && !state.stopping, "{policy}: a batch for {gpu}, which takes none");
        let table = &self.case.models[model.index()].tables[self.case.kinds[gpu] as usize];
        assert!((1..=table.max_batch()).contains(&size), "{policy}: a batch of {size}");
        let there = self.now + network.control + network.data_per_request * size;
        let takes = table.latency(size);
        let start = there.max(state.free_at);
        assert_eq!(
            finish,
            start + takes,
            "{policy}: a batch of {size} from {there:?} on a GPU free at {:?}",
            state.free_at
        );
        state.free_at = finish;
        state.batches.push_back(Batch { serial, requests: ids.to_vec(), start, finish });
        for id in ids {
            let (request, place) = &mut self.requests[id.0 as usize];
            assert_eq!((request.model, *place), (model, Place::Waiting), "{policy}: runs {id:?}");
            *place = Place::Running(gpu);
            if self.dispatcher.keeps_deadlines() {
                assert!(
                    finish <= request.deadline,
                    "{policy}: {id:?} is due at {:?}, planned for {finish:?}",
                    request.deadline
                );
            }
        }
        let pace = self.case.paces[self.batches % self.case.paces.len()];
        self.batches += 1;
        state.really_free_at = there.max(state.really_free_at) + takes.scale(pace, 100);
        let at = state.really_free_at;
        self.schedule(at, Due::Done { gpu, serial });
    }

    fn refuse(&mut self, id: RequestId, reason: Reason) {
        let (request, place) = self.requests[id.0 as usize];
        assert_eq!(place, Place::Waiting, "{}: refuses {id:?}", self.policy);
        self.requests[id.0 as usize].1 = Place::Refused;
        self.refused[request.model.index()] += 1;
        let context = || {
            format!("{}: {id:?} refused as {reason:?} at {:?}, due at {:?}", self.policy, self.now, request.deadline)
        };
        if !self.dispatcher.keeps_deadlines() && reason == Reason::TooLate {
            assert!(request.deadline < self.now || !self.has_a_chance(&request), "{}", context());
        }
        match reason {
            // Hopeless anywhere; or hopeless on every GPU there is, as far as their plans go.
            Reason::TooLate => assert!(!self.has_a_chance(&request) || self.no_gpu_in_time(&request), "{}", context()),
            Reason::GpuLost => assert!(self.dying.is_some() && !self.has_a_chance(&request), "{}", context()),
            Reason::Sacrificed => assert!(self.has_a_chance(&request) || self.policy == "eager", "{}", context()),
        }
    }

    /// Whether a request could be on time alone on the fastest type, were such a GPU free now.
    fn has_a_chance(&self, request: &Request) -> bool {
        (0..2).any(|kind| self.finish_alone(request, kind, self.now) <= request.deadline)
    }

    /// Whether there are GPUs and none of them could have it done in time, even alone.
    fn no_gpu_in_time(&self, request: &Request) -> bool {
        let mut here = self.gpus.iter().enumerate().filter(|(_, gpu)| gpu.presence == Presence::Here).peekable();
        here.peek().is_some()
            && here.all(|(id, gpu)| self.finish_alone(request, self.case.kinds[id], gpu.free_at) > request.deadline)
    }

    fn finish_alone(&self, request: &Request, kind: u32, gpu_free: Time) -> Time {
        let table = &self.case.models[request.model.index()].tables[kind as usize];
        let network = &self.case.network;
        let there = self.now + network.control + network.data_per_request;
        if table.max_batch() == 0 { Time::NEVER } else { there.max(gpu_free) + table.latency(1) }
    }

    /// The dispatcher's books against those here.
    fn compare(&self) {
        let cluster = self.dispatcher.cluster();
        assert_eq!(cluster.refused, self.refused, "{}: refusals", self.policy);
        assert_eq!(cluster.withdrawn, self.withdrawn, "{}: withdrawals", self.policy);
        let waiting = self.requests.iter().filter(|(_, place)| *place == Place::Waiting).count();
        let queued: usize = cluster.lanes.iter().map(|lane| lane.queue.len()).sum();
        assert_eq!(queued, waiting, "{}: requests waiting", self.policy);
        for lane in &cluster.lanes {
            let deadlines = (0..lane.queue.len()).map(|place| lane.queue.deadline(place));
            assert!(deadlines.is_sorted(), "{}: a queue out of order", self.policy);
        }
        for (id, gpu) in self.gpus.iter().enumerate().take(cluster.gpus.len()) {
            let theirs = &cluster.gpus[id];
            assert_eq!(theirs.alive, gpu.presence != Presence::Gone, "{}: whether GPU {id} is there", self.policy);
            let plan = gpu.batches.iter().map(|batch| (batch.serial, batch.requests.len(), batch.start, batch.finish));
            let flights = theirs.flights.iter().map(|flight| (flight.batch, flight.size, flight.start, flight.finish));
            assert!(flights.eq(plan), "{}: the plan of GPU {id}", self.policy);
        }
    }
}
