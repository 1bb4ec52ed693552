//! Requests in flight: from a decoded request to its answer, whichever protocol it came by.
//!
//! What becomes of a request when something breaks is in `flights.rs`; here are the clock, the locks and the messages.
//! A request is in `held` until it is answered, its time is over, or its client is gone.

use crate::check;
use crate::error::ServeError;
use crate::flights::{Flights, Place, Session};
use crate::links::Links;
use crate::settings::Settings;
use crate::shared_memory::Regions;
use crate::shelf::{Shelf, bridge};
use crate::statistics::{Refused, Served, Statistics};
use crate::traces::{Parent, Told, Traces};
use arc_swap::ArcSwap;
use config::{Kind, ModelSpec, TensorSpec};
use policy::{Span, Time};
use rpc::{
    Answer, Arrival, Catalog, Entry, Failure, Grant, NotFound, Order, OrderError, Outputs, Overview, Part, Payload,
    Refusal, ReplyTo, State, Tensor, ToGateway, WorkerId, count_of, request_id, timing,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};

/// Requests are spread over so many locks.
const SHARDS: usize = 16;

/// What whoever needs the scheduler is told when there is none.
pub(crate) const NO_SCHEDULER: &str = "the scheduler cannot be reached";

/// The front door, shared by all servers of a process.
pub struct Gateway {
    links: Box<dyn Links>,
    clock: Clock,
    catalog: ArcSwap<Shelf>,
    overview: ArcSwap<Look>,
    /// By model name and version, kept when a model goes so that its counters never fall.
    statistics: RwLock<BTreeMap<(String, u32), Arc<Statistics>>>,
    held: [Mutex<Flights<Held>>; SHARDS],
    next: AtomicU64,
    /// When requests are next looked at whose time may be over, in nanoseconds since the start, and word that one came
    /// which may not wait so long.
    looks_at: AtomicU64,
    sooner: Arc<Notify>,
    /// Whether somebody looks.
    watched: Once,
    /// The session with the scheduler; `NO_SESSION` where there is none.
    session: AtomicU64,
    /// How often a session began.
    joins: AtomicU32,
    /// When the scheduler was last heard of, in nanoseconds since the start; `LOCAL` where it is in this process.
    heard: AtomicU64,
    /// When this gateway started.
    pub started: Instant,
    /// Shared memory that clients registered.
    pub regions: Regions,
    /// What clients asked to be traced and logged.
    pub settings: Settings,
    /// Where spans are told; nowhere where this is not set.
    pub traces: OnceLock<Traces>,
    /// Whether one model that is not ready makes the server not ready.
    pub(crate) strict_readiness: AtomicBool,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

/// A request that was handed to a worker, and waits for what becomes of it.
struct Granted {
    gateway: Arc<Gateway>,
    request: u64,
    worker: WorkerId,
    batch: u64,
}

impl ReplyTo for Granted {
    fn reply(self: Box<Self>, answer: Answer) {
        self.gateway.answer(self.request, self.worker, self.batch, answer);
    }
}

/// How workers and queues were at a moment.
struct Look {
    at: Instant,
    overview: Arc<Overview>,
}

/// No scheduler.
const NO_SESSION: u64 = u64::MAX;
/// A scheduler that need not be heard of.
const LOCAL: u64 = u64::MAX;

struct Held {
    inputs: Arc<[Tensor]>,
    tell: oneshot::Sender<Outcome>,
    spec: Arc<ModelSpec>,
    /// What its scheduler calls its model.
    model: u32,
    at: Instant,
    within: Span,
    priority: u8,
}

/// A request that is taken out when nobody waits for its answer any more.
struct Ticket<'a> {
    gateway: &'a Gateway,
    count: u64,
}

impl Ticket<'_> {
    /// Its outcome is there, so that it is not in flight any more.
    fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.gateway.withdraw(self.count);
    }
}

/// What becomes of a request that was entered.
#[derive(Debug)]
pub enum Outcome {
    /// A worker answered.
    Done(Answer),
    /// Weft chose not to serve it.
    Refused(Refusal),
}

/// What is entered: a request whose tensors were checked.
pub struct Call {
    /// Its tensors.
    pub inputs: Arc<[Tensor]>,
    /// When its first byte was read.
    pub at: Instant,
    /// How long it may take.
    pub within: Span,
    /// From 0, whom overload hits last, to 9.
    pub priority: u8,
}

/// A request that was entered.
pub struct Entered {
    /// Which one it is.
    pub count: u64,
    /// When its time is over, whoever has it.
    pub answer_by: Time,
    /// What becomes of it.
    pub told: oneshot::Receiver<Outcome>,
}

/// What time it is.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's.
    Machine(Instant),
    /// Nanoseconds that somebody else counts.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The time of a moment that is now, or was a while ago.
    fn time_of(&self, at: Instant) -> Time {
        match self {
            Clock::Machine(origin) => Time::from_nanos(at.saturating_duration_since(*origin).as_nanos() as u64),
            Clock::Virtual(nanos) => Time::from_nanos(nanos.load(Relaxed)),
        }
    }
}

/// A request as a client made it.
#[derive(Clone, Debug)]
pub struct Inference {
    /// The model.
    pub model: String,
    /// Its version; the highest that is ready where none is named.
    pub version: Option<String>,
    /// Its tensors, in any order.
    pub inputs: Vec<Tensor>,
    /// The outputs it wants, by name; all of them where none is named.
    pub outputs: Vec<String>,
    /// How long it may take, where the client said so; else the model's objective.
    pub timeout: Option<Span>,
    /// From 0, whom overload hits last, to 9.
    pub priority: u8,
    /// When its first byte was read.
    pub arrived: Instant,
    /// The client's span that it belongs to.
    pub parent: Option<Parent>,
}

/// What a model answered.
#[derive(Clone, Debug)]
pub struct Response {
    /// The model.
    pub model: Arc<config::ModelSpec>,
    /// The outputs asked for, in the order asked for.
    pub outputs: Vec<Tensor>,
}

impl Gateway {
    /// A gateway whose scheduler is in this process, and has given its session this number.
    pub fn new(session: u32, links: impl Links + 'static) -> Arc<Gateway> {
        let gateway = Gateway::alone(links, Clock::Machine(Instant::now()));
        gateway.session.store(Session { join: 0, number: session }.pack(), Relaxed);
        gateway.heard.store(LOCAL, Relaxed);
        Arc::new(gateway)
    }

    /// A gateway that has yet to find its scheduler.
    pub fn alone(links: impl Links + 'static, clock: Clock) -> Gateway {
        Gateway {
            links: Box::new(links),
            clock,
            catalog: ArcSwap::default(),
            overview: ArcSwap::from_pointee(Look { at: Instant::now(), overview: Arc::default() }),
            statistics: RwLock::default(),
            held: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(0),
            looks_at: AtomicU64::new(u64::MAX),
            sooner: Arc::default(),
            watched: Once::new(),
            session: AtomicU64::new(NO_SESSION),
            joins: AtomicU32::new(0),
            heard: AtomicU64::new(0),
            started: Instant::now(),
            regions: Regions::default(),
            settings: Settings::default(),
            traces: OnceLock::new(),
            strict_readiness: AtomicBool::new(true),
        }
    }

    /// A session with a scheduler begins. Requests that wait are announced when it has said which models there are.
    pub fn joined(&self, number: u32) -> Session {
        self.heard();
        let session = Session { join: self.joins.fetch_add(1, Relaxed) + 1, number };
        self.session.store(session.pack(), Relaxed);
        session
    }

    /// The scheduler said something.
    pub fn heard(&self) {
        self.heard.store(self.clock.now().nanos(), Relaxed);
    }

    /// The session is over. What the scheduler had waits for the next one, as long as its time allows.
    pub fn session_over(&self) {
        self.session.store(NO_SESSION, Relaxed);
        for shard in &self.held {
            shard.lock().expect("no panic holds this lock").session_over();
        }
    }

    /// The session with a scheduler, if there is one.
    fn session(&self) -> Option<Session> {
        Some(self.session.load(Relaxed)).filter(|session| *session != NO_SESSION).map(Session::unpack)
    }

    /// The last session in which a scheduler said which models there are, if one has been heard of within a lease. It may
    /// be over, and another scheduler about to take its place.
    fn last_session(&self, shelf: &Shelf) -> Option<Session> {
        let heard = self.heard.load(Relaxed);
        let fresh = heard == LOCAL || self.clock.now() <= Time::from_nanos(heard) + timing::LEASE;
        shelf.session.filter(|_| fresh)
    }

    /// Whether the scheduler is there.
    pub fn has_scheduler(&self) -> bool {
        let session = self.last_session(&self.catalog.load());
        session.is_some() && self.session() == session
    }

    /// Whether requests are taken in: the scheduler is there, or was a moment ago.
    pub fn expects_scheduler(&self) -> bool {
        self.last_session(&self.catalog.load()).is_some()
    }

    /// Whether some models are shown as ready because they were, and their requests wait until the scheduler, which has just
    /// begun, has heard of their workers.
    pub fn expects_workers(&self) -> bool {
        !self.catalog.load().expected.is_empty()
    }

    /// Announces all requests that wait and whose models are ready.
    fn announce_waiting(&self) {
        for shard in &self.held {
            let waiting = shard.lock().expect("no panic holds this lock").waiting();
            for count in waiting {
                self.announce(count);
            }
        }
    }

    /// Announces a request that waits, if there is a scheduler and its model is ready there. Else it waits on.
    fn announce(&self, count: u64) {
        let shelf = self.catalog.load();
        let Some(session) = shelf.session.filter(|session| self.session() == Some(*session)) else { return };
        let arrival = {
            let mut shard = self.shard(count);
            let Some(held) = shard.get(count) else { return };
            let (at, within, priority, spec) = (held.at, held.within, held.priority, held.spec.clone());
            let ready = |entry: &&Entry| {
                let there = entry.state == State::Ready && !shelf.expected.contains(&entry.model);
                there && entry.spec.version == spec.version
            };
            let found = shelf.catalog.versions(&spec.name).iter().find(ready).map(|entry| entry.model);
            let Some(model) = found else { return };
            held.model = model;
            let Some(request) = shard.announce(count, session) else { return };
            Arrival { request, model, at, within, priority }
        };
        if !self.links.announce(session, arrival) {
            // The session is over, and what came after it may have been announced before this one waits again.
            self.shard(count).wait_again(arrival.request);
            if self.session().is_some_and(|now| now != session) {
                self.announce(count);
            }
        }
    }

    /// Which models there are.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load().catalog.clone()
    }

    /// Replaces the list of models.
    pub fn publish(&self, mut catalog: Catalog) {
        let expected = match catalog.settling {
            true => bridge(&self.catalog.load().catalog, &mut catalog),
            false => BTreeSet::new(),
        };
        let statistics = |entry: &Entry| self.statistics(&entry.spec.name, entry.spec.version);
        let statistics = catalog.entries.iter().map(statistics).collect();
        let (catalog, session) = (Arc::new(catalog), self.session());
        self.catalog.store(Arc::new(Shelf { catalog, session, statistics, expected }));
        self.announce_waiting();
    }

    /// How workers and queues are.
    pub fn overview(&self) -> Arc<Overview> {
        self.overview.load().overview.clone()
    }

    /// How workers and queues are, and when that was heard: what is worked out from two looks needs the time between
    /// them.
    pub fn last_look(&self) -> (Instant, Arc<Overview>) {
        let look = self.overview.load();
        (look.at, look.overview.clone())
    }

    /// Replaces what is known of workers and queues.
    pub fn look(&self, overview: Overview) {
        self.overview.store(Arc::new(Look { at: Instant::now(), overview: Arc::new(overview) }));
    }

    /// The counters of a model version.
    pub fn statistics(&self, name: &str, version: u32) -> Arc<Statistics> {
        let key = (name.to_string(), version);
        if let Some(found) = self.statistics.read().expect("no panic holds this lock").get(&key) {
            return found.clone();
        }
        self.statistics.write().expect("no panic holds this lock").entry(key).or_default().clone()
    }

    /// The counters of all model versions there ever were.
    pub fn all_statistics(&self) -> Vec<((String, u32), Arc<Statistics>)> {
        let all = self.statistics.read().expect("no panic holds this lock");
        all.iter().map(|(key, statistics)| (key.clone(), statistics.clone())).collect()
    }

    /// Requests that were accepted and are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.held.iter().map(|shard| shard.lock().expect("no panic holds this lock").len()).sum()
    }

    /// Gives the scheduler an order and waits until it is carried out.
    pub async fn order(&self, order: Order) -> Result<(), OrderError> {
        let gone = |_| Err(OrderError::Invalid(NO_SCHEDULER.into()));
        self.links.order(order).await.unwrap_or_else(gone)
    }

    /// Runs a request to its end.
    pub async fn infer(self: &Arc<Gateway>, inference: Inference) -> Result<Response, ServeError> {
        let shelf = self.catalog.load_full();
        let entry = shelf.catalog.find(&inference.model, inference.version.as_deref())?;
        let Some(statistics) = shelf.statistics_of(entry) else {
            unreachable!("every entry on the shelf has counters");
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        statistics.last_ms.store(now.as_millis() as u64, Relaxed);
        let pending = Pending::new(statistics);
        let (arrived, parent) = (inference.arrived, inference.parent);
        let outcome = self.run(&shelf, entry, inference).await;
        drop(pending);
        let total = Span::from_nanos(arrived.elapsed().as_nanos() as u64);
        match &outcome {
            Ok((_, outputs, rows, within)) => statistics.served(Served {
                total,
                compute: outputs.compute,
                good: total <= *within,
                rows: *rows,
                batch_size: outputs.batch_size,
                leads: outputs.leads,
            }),
            Err(ServeError::Refused(refusal)) => statistics.refused(kind_of(refusal), total),
            Err(ServeError::Invalid(_) | ServeError::NotFound(_)) => statistics.invalid(),
            Err(ServeError::Failed(_)) => statistics.failed(total),
        }
        if let Some(traces) = self.traces.get() {
            let outcome = outcome.as_ref().map(|(_, outputs, ..)| (outputs.compute.total(), outputs.batch_size));
            traces.tell(&Told { parent, model: &entry.spec.name, version: entry.spec.version, total, outcome });
        }
        outcome.map(|(response, ..)| response)
    }

    async fn run(
        self: &Arc<Gateway>,
        shelf: &Shelf,
        entry: &Entry,
        inference: Inference,
    ) -> Result<(Response, Outputs, usize, Span), ServeError> {
        let spec = &entry.spec;
        let info = match (&entry.info, &entry.state) {
            (_, State::Unavailable(reason)) if reason == rpc::catalog::UNLOADED => {
                return Err(NotFound::Unloaded(spec.name.clone()).into());
            }
            (_, State::Unavailable(reason)) => {
                return Err(Refusal::Unavailable(format!("model `{}` is not available: {reason}", spec.name)).into());
            }
            (Some(info), _) => info.clone(),
            (None, _) => {
                return Err(Refusal::Unavailable(format!("model `{}` is still being loaded", spec.name)).into());
            }
        };
        if let Some(unknown) =
            inference.outputs.iter().find(|name| info.outputs.iter().all(|output| output.name != **name))
        {
            return Err(ServeError::Invalid(format!("model `{}` has no output `{unknown}`", spec.name)));
        }
        let (inputs, rows) = check::inputs(&spec.name, &info, inference.inputs)?;
        let within = inference.timeout.unwrap_or(spec.slo);
        let call = Call { inputs: inputs.into(), at: inference.arrived, within, priority: inference.priority };
        self.watched.call_once(|| drop(tokio::spawn(watch(Arc::downgrade(self)))));
        let Entered { count, told, .. } = self.enter(shelf, entry, call)?;
        let ticket = Ticket { gateway: self, count };
        let told = told.await;
        ticket.answered();
        match told {
            Ok(Outcome::Done(Ok(mut outputs))) => {
                let mut tensors = std::mem::take(&mut outputs.tensors);
                if let Kind::Virtual { .. } = spec.kind {
                    rename(&mut tensors, &info.outputs);
                }
                let tensors = pick(tensors, &inference.outputs);
                Ok((Response { model: spec.clone(), outputs: tensors }, outputs, rows, within))
            }
            Ok(Outcome::Done(Err(failure))) => Err(ServeError::Failed(format!("model `{}`: {failure}", spec.name))),
            Ok(Outcome::Refused(Refusal::Late { reason, retry_after, .. })) => {
                Err(Refusal::Late { within, reason, retry_after }.into())
            }
            Ok(Outcome::Refused(Refusal::TooSlow { takes, retry_after, .. })) => {
                Err(Refusal::TooSlow { within, takes, retry_after }.into())
            }
            Ok(Outcome::Refused(refusal)) => Err(refusal.into()),
            Err(_) => Err(Refusal::Unavailable("the server is shutting down".into()).into()),
        }
    }

    /// Enters a request for a model by its name, as a client's that needs no checks.
    pub fn enter_by_name(self: &Arc<Gateway>, model: &str, call: Call) -> Result<Entered, ServeError> {
        let shelf = self.catalog.load_full();
        let entry = shelf.catalog.find(model, None)?;
        if entry.state != State::Ready {
            return Err(Refusal::Unavailable(format!("model `{model}` is not ready")).into());
        }
        self.enter(&shelf, entry, call)
    }

    /// Takes a request in and announces it.
    fn enter(&self, shelf: &Shelf, entry: &Entry, call: Call) -> Result<Entered, ServeError> {
        let no_scheduler = || ServeError::Refused(Refusal::Unavailable(NO_SCHEDULER.into()));
        let session = self.last_session(shelf).ok_or_else(no_scheduler)?;
        let Call { inputs, at, within, priority } = call;
        let count = count_of(request_id(session.number, self.next.fetch_add(1, Relaxed), 0));
        let answer_by = self.clock.time_of(at) + within + timing::ANSWER_MARGIN;
        let (tell, told) = oneshot::channel();
        let held = Held { inputs, tell, spec: entry.spec.clone(), model: entry.model, at, within, priority };
        let announces = self.session() == Some(session) && !shelf.expected.contains(&entry.model);
        let request = match announces {
            true => Some(self.shard(count).accept(count, held, session, answer_by)),
            false => {
                self.shard(count).hold(count, held, session, answer_by);
                None
            }
        };
        if answer_by.nanos() < self.looks_at.load(Relaxed) {
            self.sooner.notify_one();
        }
        let arrival = request.map(|request| Arrival { request, model: entry.model, at, within, priority });
        if !arrival.is_some_and(|arrival| self.links.announce(session, arrival)) {
            // It waits for the next session, unless that began while this was going on.
            arrival.inspect(|arrival| self.shard(count).wait_again(arrival.request));
            self.announce(count);
        }
        Ok(Entered { count, answer_by, told })
    }

    /// The client of a request is gone: it is not run, if nothing has begun that would be harder to stop.
    pub fn withdraw(&self, count: u64) {
        let withdrawn = self.shard(count).withdraw(count);
        let Some((held, known)) = withdrawn else { return };
        self.statistics(&held.spec.name, held.spec.version).withdrawn.fetch_add(1, Relaxed);
        if let Some(id) = known {
            self.links.withdraw(id, held.model);
        }
    }

    /// Refuses requests whose time is over, whoever has them. Says when to do so next, at the latest.
    pub fn expire(&self) -> Time {
        let mut next = Time::NEVER;
        for shard in &self.held {
            let mut shard = shard.lock().expect("no panic holds this lock");
            let over = shard.expire(self.clock.now());
            next = next.min(shard.next_expiry());
            drop(shard);
            for Held { tell, within, .. } in over {
                // Nobody listens when the client is gone.
                let _ = tell.send(Outcome::Refused(Refusal::Expired { within, margin: timing::ANSWER_MARGIN }));
            }
        }
        next
    }

    /// Who has a request, and what it is called there.
    pub fn place(&self, count: u64) -> Option<(u64, Place)> {
        self.shard(count).place(count)
    }

    /// Does what the scheduler says.
    pub fn tell(self: &Arc<Gateway>, message: ToGateway) {
        match message {
            ToGateway::Run(grant) => self.carry(grant),
            ToGateway::Refuse { request, refusal } => {
                let held = self.shard(count_of(request)).refuse(request);
                if let Some(held) = held {
                    // Nobody listens when the client is gone.
                    let _ = held.tell.send(Outcome::Refused(refusal));
                }
            }
            ToGateway::Heartbeat => {}
        }
    }

    fn carry(self: &Arc<Gateway>, grant: Grant) {
        let Grant { term, worker, node, address, batch, model, size, requests } = grant;
        let own = requests.len();
        let payload = |request: u64| {
            let inputs = self.shard(count_of(request)).grant(request, worker, batch)?.inputs.clone();
            let answer = Box::new(Granted { gateway: self.clone(), request, worker, batch });
            Some(Payload { request, inputs, answer })
        };
        let payloads: Vec<_> = requests.into_iter().filter_map(payload).collect();
        let absent = own - payloads.len();
        if absent == size {
            return self.links.undelivered(worker, batch, true);
        }
        // Also where nobody of this gateway is left: the worker's node waits for all parts of the batch.
        self.links.send_part(Part { term, worker, node, address, batch, model, size, payloads, absent });
    }

    fn answer(&self, request: u64, worker: WorkerId, batch: u64, answer: Answer) {
        let count = count_of(request);
        let again = match &answer {
            Err(Failure::WorkerDied) => self.shard(count).worker_died(request, worker, batch, self.session()),
            Err(Failure::NotRun(reason)) => {
                tracing::debug!(worker = worker.number(), reason, "a request came back");
                self.links.undelivered(worker, batch, false);
                self.shard(count).not_run(request, worker, batch)
            }
            _ => {
                let held = self.shard(count).answer(request);
                if let Some(held) = held {
                    // Nobody listens when the client is gone.
                    let _ = held.tell.send(Outcome::Done(answer));
                }
                return;
            }
        };
        if again {
            self.announce(count);
        }
    }

    fn shard(&self, count: u64) -> MutexGuard<'_, Flights<Held>> {
        self.held[count as usize % SHARDS].lock().expect("no panic holds this lock")
    }
}

/// Refuses requests when their time is over, for as long as there is a gateway.
async fn watch(gateway: Weak<Gateway>) {
    while let Some(here) = gateway.upgrade() {
        // Whoever enters a request meanwhile says so, as it may be one of those that were looked at already.
        here.looks_at.store(u64::MAX, Relaxed);
        let next = here.expire();
        here.looks_at.store(next.nanos(), Relaxed);
        let left = Duration::from_nanos((next - here.clock.now()).nanos());
        let sooner = here.sooner.clone();
        drop(here);
        let _ = tokio::time::timeout(left, sooner.notified()).await;
    }
}

/// One request counted as pending, until it is answered or its client goes away.
struct Pending<'a>(&'a Statistics);

impl<'a> Pending<'a> {
    fn new(statistics: &'a Statistics) -> Pending<'a> {
        statistics.pending.fetch_add(1, Relaxed);
        Pending(statistics)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Relaxed);
    }
}

/// Emulated GPUs answer with the inputs themselves, which know nothing of the outputs' names.
fn rename(tensors: &mut [Tensor], outputs: &[TensorSpec]) {
    for (tensor, output) in tensors.iter_mut().zip(outputs) {
        tensor.name = output.name.as_str().into();
    }
}

/// The outputs asked for, in the order asked for.
fn pick(mut tensors: Vec<Tensor>, wanted: &[String]) -> Vec<Tensor> {
    if wanted.is_empty() {
        return tensors;
    }
    let take = |name: &String| {
        let place = tensors.iter().position(|tensor| *tensor.name == **name)?;
        Some(tensors.swap_remove(place))
    };
    wanted.iter().filter_map(take).collect()
}

fn kind_of(refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Late { reason: policy::Reason::TooLate, .. } => Refused::TooLate,
        Refusal::Late { reason: policy::Reason::Sacrificed, .. } => Refused::Sacrificed,
        Refusal::Late { reason: policy::Reason::GpuLost, .. } => Refused::WorkerDied,
        Refusal::TooSlow { .. } => Refused::TooSlow,
        Refusal::Full { .. } => Refused::QueueFull,
        Refusal::Overload { .. } => Refused::Priority,
        Refusal::Starting { .. } | Refusal::Unavailable(_) => Refused::Unavailable,
        Refusal::Expired { .. } => Refused::Expired,
    }
}
