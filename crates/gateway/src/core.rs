//! Requests in flight: from a decoded request to its answer, whichever protocol it came by.
//!
//! Invariants:
//! 1. A request that was told to the scheduler is in `held` until it is answered, whatever happens to its worker or
//!    its client.
//! 2. A worker that dies with a batch answers nobody: the scheduler hears of it too, and runs the batch again or
//!    refuses it.

use crate::check;
use crate::settings::Settings;
use crate::shared_memory::Regions;
use crate::statistics::{Refused, Served, Statistics};
use crate::traces::{Parent, Told, Traces};
use arc_swap::ArcSwap;
use policy::Span;
use rpc::{
    Answer, Arrival, Catalog, Entry, Failure, Grant, Kind, NotFound, Order, OrderError, Outputs, Overview, Part,
    Payload, Refusal, State, Tensor, TensorSpec, ToGateway,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Requests are spread over so many locks.
const SHARDS: usize = 16;

/// What whoever needs the scheduler is told when there is none.
pub(crate) const NO_SCHEDULER: &str = "the scheduler cannot be reached";

/// How a gateway reaches the rest of Weft.
pub struct Links {
    /// Tells the scheduler of a request; says whether there is one.
    pub arrival: Box<dyn Fn(Arrival) -> bool + Send + Sync>,
    /// Hands requests to the node of a worker.
    pub part: Box<dyn Fn(Part) + Send + Sync>,
    /// Gives the scheduler an order and waits until it is carried out.
    pub order: Box<dyn Fn(Order) -> oneshot::Receiver<Result<(), OrderError>> + Send + Sync>,
}

/// The front door, shared by all servers of a process.
pub struct Gateway {
    links: Links,
    catalog: ArcSwap<Shelf>,
    overview: ArcSwap<Look>,
    /// By model name and version, kept when a model goes so that its counters never fall.
    statistics: RwLock<BTreeMap<(String, u32), Arc<Statistics>>>,
    held: [Mutex<HashMap<u64, Held>>; SHARDS],
    next: AtomicU64,
    /// When this gateway started.
    pub started: Instant,
    /// Shared memory that clients registered.
    pub regions: Regions,
    /// What clients asked to be traced and logged.
    pub settings: Settings,
    /// Where spans are told; nowhere where this is not set.
    pub traces: OnceLock<Traces>,
}

/// The models there are, each with its counters.
#[derive(Default)]
struct Shelf {
    catalog: Arc<Catalog>,
    /// Of each entry, in order.
    statistics: Vec<Arc<Statistics>>,
}

impl Shelf {
    /// The counters of one of the entries.
    fn statistics_of(&self, entry: &Entry) -> Option<&Arc<Statistics>> {
        let place = self.catalog.entries.iter().position(|other| std::ptr::eq(other, entry))?;
        self.statistics.get(place)
    }
}

/// How workers and queues were at a moment.
struct Look {
    at: Instant,
    overview: Arc<Overview>,
}

struct Held {
    inputs: Arc<[Tensor]>,
    tell: oneshot::Sender<Outcome>,
}

enum Outcome {
    Done(Answer),
    Refused(Refusal),
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
    pub model: Arc<rpc::ModelSpec>,
    /// The outputs asked for, in the order asked for.
    pub outputs: Vec<Tensor>,
}

/// Why there are no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// No such model or version.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The request makes no sense for the model.
    #[error("{0}")]
    Invalid(String),
    /// Weft chose not to serve it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model failed.
    #[error("{0}")]
    Failed(String),
}

impl Gateway {
    /// A gateway with a number of its own in the cluster.
    pub fn new(number: u16, links: Links) -> Arc<Gateway> {
        let gateway = Gateway::unnumbered(links);
        gateway.renumber(number);
        Arc::new(gateway)
    }

    /// A gateway that has yet to be given its number.
    pub(crate) fn unnumbered(links: Links) -> Gateway {
        Gateway {
            links,
            catalog: ArcSwap::default(),
            overview: ArcSwap::from_pointee(Look { at: Instant::now(), overview: Arc::default() }),
            statistics: RwLock::default(),
            held: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(0),
            started: Instant::now(),
            regions: Regions::default(),
            settings: Settings::default(),
            traces: OnceLock::new(),
        }
    }

    /// Numbers requests from now on as those of the gateway with this number. The count goes on, so that no answer to a
    /// request of before fits one that comes.
    pub(crate) fn renumber(&self, number: u16) {
        let count = self.next.load(Relaxed) & ((1 << 48) - 1);
        self.next.store(u64::from(number) << 48 | count, Relaxed);
    }

    /// Refuses all requests that are not answered yet: nobody will.
    pub(crate) fn refuse_all(&self, why: &str) {
        for shard in &self.held {
            for (_, held) in shard.lock().expect("no panic holds this lock").drain() {
                let _ = held.tell.send(Outcome::Refused(Refusal::Unavailable(why.to_string())));
            }
        }
    }

    /// Which models there are.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load().catalog.clone()
    }

    /// Replaces the list of models.
    pub fn publish(&self, catalog: Catalog) {
        let statistics = |entry: &Entry| self.statistics(&entry.spec.name, entry.spec.version);
        let statistics = catalog.entries.iter().map(statistics).collect();
        self.catalog.store(Arc::new(Shelf { catalog: Arc::new(catalog), statistics }));
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

    /// Whether no model is still on its way.
    pub fn ready(&self) -> bool {
        self.catalog.load().catalog.entries.iter().all(|entry| entry.state != State::Loading)
    }

    /// Requests that were accepted and are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.held.iter().map(|shard| shard.lock().expect("no panic holds this lock").len()).sum()
    }

    /// Gives the scheduler an order and waits until it is carried out.
    pub async fn order(&self, order: Order) -> Result<(), OrderError> {
        let gone = |_| Err(OrderError::Invalid(NO_SCHEDULER.into()));
        (self.links.order)(order).await.unwrap_or_else(gone)
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
        let outcome = self.run(entry, inference).await;
        drop(pending);
        let total = Span::from_nanos(arrived.elapsed().as_nanos() as u64);
        match &outcome {
            Ok((_, outputs, rows, within)) => statistics.served(Served {
                total,
                computed: outputs.computed,
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
            let outcome = outcome.as_ref().map(|(_, outputs, ..)| (outputs.computed, outputs.batch_size));
            traces.tell(&Told { parent, model: &entry.spec.name, version: entry.spec.version, total, outcome });
        }
        outcome.map(|(response, ..)| response)
    }

    async fn run(
        self: &Arc<Gateway>,
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
        let request = self.next.fetch_add(1, Relaxed);
        let (tell, told) = oneshot::channel();
        self.shard(request).insert(request, Held { inputs: inputs.into(), tell });
        let at = inference.arrived;
        let arrival = Arrival { request, model: entry.model, at, within, priority: inference.priority };
        if !(self.links.arrival)(arrival) {
            self.shard(request).remove(&request);
            return Err(Refusal::Unavailable(NO_SCHEDULER.into()).into());
        }
        match told.await {
            Ok(Outcome::Done(Ok(mut outputs))) => {
                let mut tensors = std::mem::take(&mut outputs.tensors);
                if let Kind::Virtual { .. } = spec.kind {
                    rename(&mut tensors, &info.outputs);
                }
                let tensors = pick(tensors, &inference.outputs);
                Ok((Response { model: spec.clone(), outputs: tensors }, outputs, rows, within))
            }
            Ok(Outcome::Done(Err(failure @ Failure::Unreachable))) => {
                Err(Refusal::Unavailable(format!("model `{}`: {failure}", spec.name)).into())
            }
            Ok(Outcome::Done(Err(failure))) => Err(ServeError::Failed(format!("model `{}`: {failure}", spec.name))),
            Ok(Outcome::Refused(Refusal::Late { reason, retry_after, .. })) => {
                Err(Refusal::Late { within, reason, retry_after }.into())
            }
            Ok(Outcome::Refused(refusal)) => Err(refusal.into()),
            Err(_) => Err(Refusal::Unavailable("the server is shutting down".into()).into()),
        }
    }

    /// Does what the scheduler says.
    pub fn tell(self: &Arc<Gateway>, message: ToGateway) {
        match message {
            ToGateway::Run(grant) => self.carry(grant),
            ToGateway::Refuse { request, refusal } => {
                if let Some(held) = self.shard(request).remove(&request) {
                    // Nobody listens when the client is gone.
                    let _ = held.tell.send(Outcome::Refused(refusal));
                }
            }
        }
    }

    fn carry(self: &Arc<Gateway>, grant: Grant) {
        let Grant { worker, node, address, batch, model, size, requests } = grant;
        let payload = |request: u64| {
            let inputs = self.shard(request).get(&request).map(|held| held.inputs.clone()).unwrap_or_default();
            let gateway = self.clone();
            Payload { request, inputs, answer: Box::new(move |answer| gateway.answer(request, answer)) }
        };
        let payloads = requests.into_iter().map(payload).collect();
        (self.links.part)(Part { worker, node, address, batch, model, size, payloads });
    }

    fn answer(&self, request: u64, answer: Answer) {
        if answer == Err(Failure::WorkerDied) {
            return;
        }
        if let Some(held) = self.shard(request).remove(&request) {
            // Nobody listens when the client is gone.
            let _ = held.tell.send(Outcome::Done(answer));
        }
    }

    fn shard(&self, request: u64) -> std::sync::MutexGuard<'_, HashMap<u64, Held>> {
        self.held[request as usize % SHARDS].lock().expect("no panic holds this lock")
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
        Refusal::Full { .. } => Refused::QueueFull,
        Refusal::Overload { .. } => Refused::Priority,
        Refusal::Starting { .. } | Refusal::Unavailable(_) => Refused::Unavailable,
    }
}
