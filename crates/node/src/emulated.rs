//! Emulated GPUs: workers without a process, whose batches take the time a profile says and answer with their inputs.
//!
//! One thread serves them all: it sleeps until the next batch is over, and spins for the last moment, so that a batch
//! ends within some microseconds of its time. An emulated GPU runs one batch after the other, of any of its models.
//! Nothing is computed.

use crate::assembly::{Added, Assembly, Batch};
use crate::batch::fail;
use crate::scheduler_link::SchedulerLink;
use crate::span::span;
use anyhow::{Context, Result};
use config::{Line, ModelSpec};
use policy::{Span, Time};
use rpc::{Failure, FromNode, ModelInfo, Outputs, Part, Payload, WorkerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long before its time the thread is awake and spins.
const SPIN: Duration = Duration::from_micros(50);

/// All emulated GPUs of a node.
pub(crate) struct Emulated {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    scheduler: Arc<dyn SchedulerLink>,
    patience: Duration,
    /// Times are counted from here.
    origin: Instant,
}

#[derive(Default)]
struct State {
    gpus: BTreeMap<WorkerId, Gpu>,
    /// When to look at which GPU. Looking in vain does no harm.
    due: BinaryHeap<Reverse<(Instant, WorkerId)>>,
    ended: bool,
}

struct Gpu {
    tables: BTreeMap<u32, Line>,
    /// The models of batches whose parts have not all come.
    models: BTreeMap<u64, u32>,
    /// For a worker that was started with one virtual model: its profile, whatever number the model has, and what its
    /// outputs are called.
    only: Option<(Line, Vec<Arc<str>>)>,
    assembly: Assembly<Payload>,
    waiting: VecDeque<(Batch<Payload>, Span)>,
    running: Option<Running>,
    stopping: bool,
}

struct Running {
    batch: Batch<Payload>,
    since: Instant,
    until: Instant,
}

/// What is to be said when the lock is open again.
enum Finished {
    Batch { worker: WorkerId, batch: Batch<Payload>, since: Instant, names: Vec<Arc<str>> },
    Unknown { worker: WorkerId, batch: Batch<Payload>, model: u32 },
    Stopped(WorkerId),
}

impl Emulated {
    /// No GPUs yet. A batch waits for its parts no longer than `patience`.
    pub(crate) fn start(patience: Duration, scheduler: Arc<dyn SchedulerLink>) -> Result<Emulated> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            scheduler,
            patience,
            origin: Instant::now(),
        });
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("emulated".into()).spawn(move || serving.serve());
        Ok(Emulated { shared, thread: Some(thread.context("start the thread of emulated GPUs")?) })
    }

    /// Starts a GPU, or tells one which models it can run.
    pub(crate) fn set(&self, worker: WorkerId, tables: &[(u32, Line)]) {
        self.add(worker, |gpu| gpu.tables = tables.iter().copied().collect(), empty_info());
    }

    /// Starts a GPU with one model.
    pub(crate) fn add_one_model(&self, worker: WorkerId, spec: &ModelSpec, latency: Line) {
        let names = spec.outputs.iter().map(|output| output.name.as_str().into()).collect();
        let info = ModelInfo {
            inputs: spec.inputs.clone(),
            outputs: spec.outputs.clone(),
            max_batch: spec.max_batch,
            runs_on: None,
        };
        self.add(worker, |gpu| gpu.only = Some((latency, names)), info);
    }

    fn add(&self, worker: WorkerId, change: impl FnOnce(&mut Gpu), info: ModelInfo) {
        let mut state = self.shared.lock();
        let is_new = !state.gpus.contains_key(&worker);
        change(state.gpus.entry(worker).or_insert_with(|| Gpu {
            tables: BTreeMap::new(),
            models: BTreeMap::new(),
            only: None,
            assembly: Assembly::new(span(self.shared.patience)),
            waiting: VecDeque::new(),
            running: None,
            stopping: false,
        }));
        drop(state);
        if is_new {
            self.shared.scheduler.report(FromNode::Ready { worker, info, measured: Vec::new() });
        }
    }

    /// Takes requests; those for a worker that does not exist are answered so.
    pub(crate) fn run(&self, part: Part) {
        let now = Instant::now();
        let (worker, model) = (part.worker, part.model);
        let mut state = self.shared.lock();
        let State { gpus, due, .. } = &mut *state;
        let Some(gpu) = gpus.get_mut(&worker) else {
            drop(state);
            return fail(part.payloads, &Failure::NotRun(format!("there is no worker {} here", worker.number())));
        };
        let earliest = due.peek().map(|Reverse((at, _))| *at);
        let number = part.batch;
        match gpu.assembly.add(self.shared.time_of(now), number, part.size, part.payloads, part.absent) {
            Added::Complete(batch) => {
                gpu.models.remove(&number);
                if let Err((payloads, message)) = gpu.put(model, batch) {
                    drop(state);
                    let size = payloads.len();
                    fail(payloads, &Failure::Model(message));
                    return self.shared.scheduler.report(FromNode::Done { worker, batch: number, size, took: None });
                }
                if gpu.running.is_none() {
                    gpu.begin(now, worker, due);
                }
            }
            Added::Incomplete => {
                gpu.models.insert(number, model);
                let next = gpu.assembly.next_deadline().map(|at| self.shared.instant(at));
                due.extend(next.map(|at| Reverse((at, worker))));
            }
            Added::Over(payloads, failure) => {
                drop(state);
                return fail(payloads, &failure);
            }
        }
        let sooner = due.peek().map(|Reverse((at, _))| *at) != earliest;
        drop(state);
        if sooner {
            self.shared.changed.notify_one();
        }
    }

    /// Lets a GPU finish what it has and ends it.
    pub(crate) fn stop(&self, worker: WorkerId) {
        self.stop_those(|known| *known == worker);
    }

    /// Lets all of them finish what they have and ends them.
    pub(crate) fn stop_all(&self) {
        self.stop_those(|_| true);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.lock().gpus.is_empty()
    }

    fn stop_those(&self, which: impl Fn(&WorkerId) -> bool) {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let State { gpus, due, .. } = &mut *state;
        for (worker, gpu) in gpus.iter_mut().filter(|(worker, _)| which(worker)) {
            gpu.stopping = true;
            due.push(Reverse((now, *worker)));
        }
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let gpus = std::mem::take(&mut self.shared.lock().gpus);
        for (_, mut gpu) in gpus {
            fail(gpu.assembly.abandon(), &Failure::WorkerDied);
            let waiting = gpu.waiting.into_iter().map(|(batch, _)| batch);
            for batch in gpu.running.map(|running| running.batch).into_iter().chain(waiting) {
                fail(batch.payloads, &Failure::WorkerDied);
            }
        }
    }
}

impl Gpu {
    /// Lets a batch wait for its turn. One whose model is not here is given back, with a reason.
    fn put(&mut self, model: u32, batch: Batch<Payload>) -> Result<(), (Vec<Payload>, String)> {
        let takes = match self.line(model) {
            _ if batch.payloads.is_empty() => Span::ZERO,
            Some(line) => line.alpha * batch.payloads.len() + line.beta,
            None => return Err((batch.payloads, format!("model {model} is not on this emulated GPU"))),
        };
        self.waiting.push_back((batch, takes));
        Ok(())
    }

    fn line(&self, model: u32) -> Option<Line> {
        self.tables.get(&model).copied().or(self.only.as_ref().map(|(line, _)| *line))
    }

    /// Starts the next batch, if there is one.
    fn begin(&mut self, since: Instant, worker: WorkerId, due: &mut BinaryHeap<Reverse<(Instant, WorkerId)>>) {
        let Some((batch, takes)) = self.waiting.pop_front() else { return };
        let until = since + Duration::from_nanos(takes.nanos());
        due.push(Reverse((until, worker)));
        self.running = Some(Running { batch, since, until });
    }
}

impl Shared {
    fn time_of(&self, at: Instant) -> Time {
        Time::from_nanos(span(at.saturating_duration_since(self.origin)).nanos())
    }

    fn instant(&self, at: Time) -> Instant {
        self.origin + Duration::from_nanos(at.nanos())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        // Sleeps end when they should, not up to fifty microseconds later. Without it they are only less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut finished = Vec::new();
        loop {
            let mut state = self.lock();
            if state.ended {
                return;
            }
            let now = Instant::now();
            while let Some(Reverse((at, worker))) = state.due.peek().copied().filter(|Reverse((at, _))| *at <= now) {
                state.due.pop();
                let time = self.time_of(now);
                state.look(at, now, time, worker, &mut finished);
            }
            let next = state.due.peek().map(|Reverse((at, _))| *at);
            if !finished.is_empty() {
                drop(state);
                finished.drain(..).for_each(|finished| self.say(finished));
                continue;
            }
            match next.map(|next| next.saturating_duration_since(now)) {
                None => drop(self.changed.wait(state)),
                Some(left) if left > SPIN => drop(self.changed.wait_timeout(state, left - SPIN)),
                Some(left) => {
                    drop(state);
                    while now.elapsed() < left {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    }

    fn say(&self, finished: Finished) {
        match finished {
            Finished::Batch { worker, batch, since, names } => {
                let Batch { number, payloads } = batch;
                let (size, took) = (payloads.len(), span(since.elapsed()));
                for (index, payload) in payloads.into_iter().enumerate() {
                    let mut tensors = payload.inputs.to_vec();
                    for (tensor, name) in tensors.iter_mut().zip(&names) {
                        tensor.name = name.clone();
                    }
                    let outputs = Outputs { tensors, compute: took.into(), batch_size: size, leads: index == 0 };
                    payload.answer.reply(Ok(outputs));
                }
                self.scheduler.report(FromNode::Done { worker, batch: number, size, took: Some(took) });
            }
            Finished::Unknown { worker, batch, model } => {
                let (number, size) = (batch.number, batch.payloads.len());
                fail(batch.payloads, &Failure::Model(format!("model {model} is not on this emulated GPU")));
                self.scheduler.report(FromNode::Done { worker, batch: number, size, took: None });
            }
            Finished::Stopped(worker) => self.scheduler.report(FromNode::Stopped { worker }),
        }
    }
}

impl State {
    /// Sees what has changed on a GPU by now. `at` is when it should have been looked at: batches follow each other
    /// from then, so that being late once does not make all that follow late.
    fn look(&mut self, at: Instant, now: Instant, time: Time, worker: WorkerId, finished: &mut Vec<Finished>) {
        let Some(gpu) = self.gpus.get_mut(&worker) else { return };
        // What has waited long enough for its parts begins without them.
        for batch in gpu.assembly.expire(time) {
            let model = gpu.models.remove(&batch.number).unwrap_or_default();
            let (number, since) = (batch.number, now);
            if let Err((payloads, _)) = gpu.put(model, batch) {
                finished.push(Finished::Unknown { worker, batch: Batch { number, payloads }, model });
                continue;
            }
            if gpu.running.is_none() {
                gpu.begin(since, worker, &mut self.due);
            }
        }
        if let Some(running) = gpu.running.take_if(|running| running.until <= now) {
            let names = gpu.only.as_ref().map(|(_, names)| names.clone()).unwrap_or_default();
            let Running { batch, since, until } = running;
            finished.push(Finished::Batch { worker, batch, since, names });
            gpu.begin(until.max(at), worker, &mut self.due);
        }
        if gpu.stopping && gpu.running.is_none() && gpu.assembly.is_empty() {
            self.gpus.remove(&worker);
            finished.push(Finished::Stopped(worker));
        }
    }
}

fn empty_info() -> ModelInfo {
    ModelInfo { inputs: Vec::new(), outputs: Vec::new(), max_batch: policy::MAX_BATCH, runs_on: None }
}
