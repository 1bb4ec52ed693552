//! What happens when something happens: requests, news of workers, timers.
//!
//! Invariants:
//! 1. Every request that arrives is answered by one `Refuse`, or by a `Run` whose batch ends.
//! 2. A deployment that others may still send requests to keeps its queue: it is taken away a while after clients last
//!    saw it, and only when nobody waits.
//! 3. Who gave an order is told that it was carried out after the gateways were.

use crate::deployment::{Deployment, Place, Reply};
use crate::pool::{Pool, Want};
use crate::profile::Profile;
use crate::scaling::{Change, Scaling, bounds};
use crate::store::Store;
use crate::thread::{Config, GatewayLink, NodeLink};
use policy::journal::Input;
use policy::surface::Share;
use policy::{Event, GpuId, Request, RequestId, Span, Time};
use rpc::{
    Arrival, Catalog, FromNode, Grant, ModelInfo, OrderError, Overview, Percent, Refusal, ToGateway, ToNode, WorkerId,
    WorkerState, WorkerView,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The number of the pool of emulated GPUs.
pub(crate) const VIRTUAL: u32 = u32::MAX;
/// How long a deployment stays after clients last saw it: a request may be on its way.
const GRACE: Span = Span::from_secs(1);
const TICK: Span = Span::from_millis(50);
const LOOK: Span = Span::from_secs(1);

pub(crate) struct Driver {
    origin: Instant,
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) models: BTreeMap<u32, Deployment>,
    pub(crate) pools: BTreeMap<u32, Pool>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) nodes: BTreeMap<u16, NodeLink>,
    pub(crate) gateways: BTreeMap<u16, GatewayLink>,
    pub(crate) next_model: u32,
    next_worker: u64,
    next_tick: Time,
    next_look: Time,
    /// Whether clients should be told of a change.
    pub(crate) changed: bool,
    /// Orders that were carried out or refused, and whose givers have not been told: first comes the catalog.
    answers: Vec<(Reply, Result<(), OrderError>)>,
}

pub(crate) struct Worker {
    pub(crate) node: u16,
    /// The model it has loaded; none for an emulated GPU.
    pub(crate) model: Option<u32>,
    pub(crate) pool: u32,
    pub(crate) gpu: GpuId,
    pub(crate) state: WorkerState,
    /// What it has of its GPU.
    pub(crate) share: Share,
    started: Time,
    flights: VecDeque<Flight>,
    last_done: Time,
    pub(crate) busy: Span,
    batches: u64,
    restarts: u64,
    last_error: Option<String>,
}

struct Flight {
    batch: u64,
    model: u32,
    size: usize,
    sent: Time,
}

impl Driver {
    pub(crate) fn new(config: Config, store: Store) -> Driver {
        Driver {
            origin: Instant::now(),
            config,
            store,
            models: BTreeMap::new(),
            pools: BTreeMap::new(),
            workers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            gateways: BTreeMap::new(),
            next_model: 0,
            next_worker: 0,
            next_tick: Time::ZERO,
            next_look: Time::ZERO,
            changed: false,
            answers: Vec::new(),
        }
    }

    /// The time now, as the dispatchers count it.
    pub(crate) fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, at: Instant) -> Time {
        Time::from_nanos(at.saturating_duration_since(self.origin).as_nanos() as u64)
    }

    /// When something must be done even if nothing happens.
    pub(crate) fn next_timer(&self) -> Time {
        let pools = self.pools.values().filter_map(Pool::next_timer);
        pools.fold(self.next_tick.min(self.next_look), Time::min)
    }

    pub(crate) fn on_timer(&mut self, now: Time) {
        let due: Vec<u32> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.next_timer().is_some_and(|at| at <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            self.tell(number, now, Input::Timer);
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.follow(now);
            self.scale_all(now);
            self.clear_away(now);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            let overview = self.overview();
            for gateway in self.gateways.values() {
                (gateway.look)(overview.clone());
            }
        }
    }

    /// Publishes what changed since the last time. Who ordered it is told after that, and finds it in every gateway that
    /// was told before.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.changed) {
            let catalog = self.catalog();
            for gateway in self.gateways.values() {
                (gateway.publish)(catalog.clone());
            }
        }
        for (reply, outcome) in self.answers.drain(..) {
            reply(outcome);
        }
    }

    /// Has an order answered.
    pub(crate) fn answer(&mut self, reply: Reply, outcome: Result<(), OrderError>) {
        self.answers.push((reply, outcome));
    }

    /// Has all answered who wait for a deployment.
    pub(crate) fn answer_all(&mut self, number: u32, outcome: &Result<(), OrderError>) {
        let replies = self.models.get_mut(&number).map(|deployment| std::mem::take(&mut deployment.replies));
        self.answers.extend(replies.unwrap_or_default().into_iter().map(|reply| (reply, outcome.clone())));
    }

    pub(crate) fn catalog(&self) -> Catalog {
        let mut entries: Vec<_> =
            self.models.values().filter(|model| model.is_listed()).map(Deployment::entry).collect();
        entries.sort_by(|one, other| (&one.spec.name, one.spec.version).cmp(&(&other.spec.name, other.spec.version)));
        Catalog { entries }
    }

    pub(crate) fn on_arrival(&mut self, now: Time, arrival: Arrival) {
        let Arrival { request, model, at, within, priority } = arrival;
        let Some(deployment) = self.models.get_mut(&model) else {
            return self.refuse(request, Refusal::Unavailable("the model was taken away".into()));
        };
        let Some(Place { pool, model: id }) = deployment.place else {
            let text = format!("model `{}` is not loaded", deployment.spec.name);
            return self.refuse(request, Refusal::Unavailable(text));
        };
        if let Some(scaling) = &mut deployment.scaling {
            scaling.arrived();
        }
        let queue = &self.pools[&pool];
        let waiting = queue.waiting(id);
        if waiting >= deployment.spec.queue {
            let retry_after = queue.backlog(id);
            return self.refuse(request, Refusal::Full { waiting, retry_after });
        }
        if !deployment.admission.admits(now, priority) {
            let retry_after = queue.backlog(id);
            return self.refuse(request, Refusal::Overload { priority, retry_after });
        }
        let arrival = self.time_of(at).min(now);
        let deadline = arrival + (within - self.config.network.response);
        if let Some(refusal) = self.meets_nobody(now, model, deadline) {
            return self.refuse(request, refusal);
        }
        let request = Request { id: RequestId(request), model: id, arrival, deadline };
        self.tell(pool, now, Input::Event(Event::Arrived(request)));
    }

    pub(crate) fn refuse(&self, request: u64, refusal: Refusal) {
        if let Some(gateway) = self.gateways.get(&gateway_of(request)) {
            (gateway.tell)(ToGateway::Refuse { request, refusal });
        }
    }

    /// Tells a pool something and does what it wants done.
    pub(crate) fn tell(&mut self, number: u32, now: Time, input: Input) {
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.tell(now, input);
            self.carry_out(number, now);
        }
    }

    /// Does what a pool wants done.
    pub(crate) fn carry_out(&mut self, number: u32, now: Time) {
        let Some(pool) = self.pools.get_mut(&number) else { return };
        let mut wants = std::mem::take(&mut pool.wants);
        for want in wants.drain(..) {
            match want {
                Want::Run { worker, model, batch, requests } => self.grant(now, worker, model, batch, requests),
                Want::Refuse { request, model, reason } => {
                    let retry_after = self.models.get_mut(&model).and_then(|deployment| {
                        deployment.admission.refused();
                        Some(self.pools.get(&number)?.backlog(deployment.place?.model))
                    });
                    let retry_after = retry_after.unwrap_or(Span::from_secs(1));
                    self.refuse(request, Refusal::Late { within: Span::ZERO, reason, retry_after });
                }
            }
        }
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.wants = wants;
        }
    }

    fn grant(&mut self, now: Time, worker: WorkerId, model: u32, batch: u64, mut requests: Vec<u64>) {
        let size = requests.len();
        let Some(state) = self.workers.get_mut(&worker) else { return };
        state.flights.push_back(Flight { batch, model, size, sent: now });
        let node = state.node;
        let Some(address) = self.nodes.get(&node).map(|link| link.address.clone()) else { return };
        while let Some(first) = requests.first() {
            let number = gateway_of(*first);
            let own = match requests.iter().all(|request| gateway_of(*request) == number) {
                true => std::mem::take(&mut requests),
                false => requests.extract_if(.., |request| gateway_of(*request) == number).collect(),
            };
            match self.gateways.get(&number) {
                Some(gateway) => (gateway.tell)(ToGateway::Run(Grant {
                    worker,
                    node,
                    address: address.clone(),
                    batch,
                    model,
                    size,
                    requests: own,
                })),
                // Its requests went with it; the node gives the batch up when they do not come.
                None => tracing::debug!(gateway = number, "requests of a gateway that is gone"),
            }
        }
    }

    pub(crate) fn on_node(&mut self, now: Time, news: FromNode) {
        match news {
            FromNode::Ready { worker, info, measured } => self.on_ready(now, worker, info, &measured),
            FromNode::Done { worker, batch, took, .. } => self.on_done(now, worker, batch, took.is_some()),
            FromNode::Lost { worker, reason, .. } => self.on_lost(now, worker, reason),
            FromNode::Stopped { worker } => {
                self.workers.remove(&worker);
            }
        }
    }

    fn on_ready(&mut self, now: Time, id: WorkerId, info: ModelInfo, measured: &[(usize, Span)]) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.state == WorkerState::Ready || worker.state == WorkerState::Stopping {
            return;
        }
        worker.state = WorkerState::Ready;
        worker.last_done = now;
        let (pool, gpu, model, took) = (worker.pool, worker.gpu, worker.model, now - worker.started);
        if let Some(number) = model
            && let Some(deployment) = self.models.get_mut(&number)
            && let Some(place) = deployment.place
        {
            deployment.ready += 1;
            deployment.last_error = None;
            if !std::mem::replace(&mut deployment.proven, true) {
                let profile = Profile::new(measured, info.max_batch, now);
                let table = profile.table();
                deployment.profile = Some(profile);
                deployment.info = Some(Arc::new(info));
                deployment.first_start = Some(took);
                deployment.update_scaling(now);
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.set_table(now, place.model, table);
                }
                tracing::info!(model = deployment.label(), "ready");
                self.take_over(now, number);
            }
            self.changed = true;
        }
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.join(now, gpu);
        }
        self.carry_out(pool, now);
        if let Some(number) = model {
            self.answer_all(number, &Ok(()));
        }
    }

    pub(crate) fn on_done(&mut self, now: Time, id: WorkerId, batch: u64, succeeded: bool) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(place) = worker.flights.iter().position(|flight| flight.batch == batch) else { return };
        let flight = worker.flights.remove(place).expect("it was found there");
        let took = now - flight.sent.max(worker.last_done);
        worker.last_done = now;
        worker.busy += took;
        worker.batches += 1;
        let (pool, gpu) = (worker.pool, worker.gpu);
        if succeeded && let Some(profile) = self.models.get_mut(&flight.model).and_then(|model| model.profile.as_mut())
        {
            profile.observe(now, flight.size, took);
        }
        self.tell(pool, now, Input::Event(Event::BatchDone { gpu, batch }));
    }

    fn on_lost(&mut self, now: Time, id: WorkerId, reason: String) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let was_ready = worker.state == WorkerState::Ready;
        if worker.state != WorkerState::Stopping {
            worker.state = WorkerState::Restarting;
        }
        worker.flights.clear();
        worker.restarts += 1;
        if let Some(deployment) = worker.model.and_then(|number| self.models.get(&number)) {
            worker.share = bounds(&deployment.spec).0;
        }
        worker.last_error = Some(reason.clone());
        let (pool, gpu, model) = (worker.pool, worker.gpu, worker.model);
        tracing::warn!(worker = id.0, reason, "a worker was lost");
        if let Some(number) = model
            && let Some(deployment) = self.models.get_mut(&number)
        {
            deployment.ready -= usize::from(was_ready);
            deployment.last_error = Some(reason.clone());
            self.changed = true;
            if !deployment.proven {
                let failed = Err(OrderError::Invalid(format!("model `{}`: {reason}", deployment.spec.name)));
                let on_trial = deployment.on_trial;
                self.answer_all(number, &failed);
                if on_trial {
                    self.withdraw(now, number);
                }
            }
        }
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.lose(now, gpu);
        }
        self.carry_out(pool, now);
    }

    /// Follows what was seen of batches.
    fn follow(&mut self, now: Time) {
        let mut touched = Vec::new();
        for deployment in self.models.values_mut() {
            let (Some(place), Some(profile)) = (deployment.place, &mut deployment.profile) else { continue };
            profile.forget(now);
            if let Some(table) = profile.news()
                && let Some(pool) = self.pools.get_mut(&place.pool)
            {
                pool.set_table(now, place.model, table);
                deployment.update_scaling(now);
                touched.push(place.pool);
            }
        }
        for pool in touched {
            self.carry_out(pool, now);
        }
    }

    /// What becomes of a request whose model has no worker: a worker is started, and it waits for that or is refused.
    fn meets_nobody(&mut self, now: Time, number: u32, deadline: Time) -> Option<Refusal> {
        let deployment = self.models.get(&number).filter(|deployment| deployment.ready == 0)?;
        let (expected, in_time) = deployment.scaling.as_ref()?.admit(now, deadline - now);
        if !deployment.workers.iter().any(|worker| self.workers.contains_key(worker)) {
            self.scale(now, number);
        }
        (!in_time).then_some(Refusal::Starting { expected })
    }

    fn scale_all(&mut self, now: Time) {
        let due = |deployment: &&Deployment| deployment.scaling.as_ref().is_some_and(|scaling| scaling.is_due(now));
        for number in self.models.values().filter(due).map(|deployment| deployment.number).collect::<Vec<_>>() {
            self.scale(now, number);
        }
        for number in self.models.keys().copied().collect::<Vec<_>>() {
            self.trim(now, number);
        }
    }

    /// Lets a deployment have the workers that its load asks for.
    fn scale(&mut self, now: Time, number: u32) {
        let Some(deployment) = self.models.get_mut(&number).filter(|deployment| deployment.retiring.is_none()) else {
            return;
        };
        let (Some(place), Some(scaling)) = (deployment.place, &mut deployment.scaling) else { return };
        let waiting = self.pools.get(&place.pool).map_or(0, |pool| pool.waiting(place.model));
        let ids = deployment.workers.iter();
        let workers: Vec<(WorkerId, &Worker)> = ids.filter_map(|id| Some((*id, self.workers.get(id)?))).collect();
        let change = scaling.look(now, waiting, deployment.wanted, &workers);
        let dry_run = self.config.dry_run;
        let Change { more, fewer, stretched } = change;
        if !dry_run {
            for (id, share) in stretched {
                self.stretch(id, share);
            }
        }
        let Some(deployment) = self.models.get_mut(&number).filter(|_| more + fewer > 0) else { return };
        tracing::info!(model = deployment.label(), dry_run, "{}", scaling_words(deployment));
        if dry_run {
            return;
        }
        let bounds = deployment.spec.workers;
        deployment.wanted = (deployment.wanted + more).saturating_sub(fewer).clamp(bounds.min(), bounds.max());
        self.changed = true;
        self.staff(now, number);
        self.trim(now, number);
    }

    /// Lets a worker have as much of its GPU as its load asks for.
    fn stretch(&mut self, id: WorkerId, share: Share) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.share = share;
        if let (Some(node), Some(to)) = (self.nodes.get(&worker.node), Percent::from_permille(share.permille())) {
            (node.tell)(ToNode::Stretch { worker: id, to });
        }
    }

    /// Ends workers that are too many, those that have nothing to do and came last first.
    pub(crate) fn trim(&mut self, now: Time, number: u32) {
        while let Some(deployment) = self.models.get(&number)
            && deployment.workers.len() > deployment.wanted
            && let Some(idle) = deployment.workers.iter().rev().copied().find(|id| self.is_idle(*id))
        {
            let was_ready = self.workers.get(&idle).is_some_and(|worker| worker.state == WorkerState::Ready);
            let deployment = self.models.get_mut(&number).expect("it was just seen");
            deployment.workers.retain(|worker| *worker != idle);
            deployment.ready -= usize::from(was_ready);
            self.changed = true;
            self.stop_worker(now, idle);
        }
    }

    fn is_idle(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_none_or(|worker| worker.flights.is_empty())
    }

    /// Takes away deployments that have nothing left to do.
    fn clear_away(&mut self, now: Time) {
        let idle = |deployment: &&Deployment| {
            let long_ago = deployment.retiring.is_some_and(|since| now - since > GRACE);
            let pool = deployment.place.and_then(|place| Some((self.pools.get(&place.pool)?, place.model)));
            long_ago && pool.is_none_or(|(pool, model)| pool.is_idle(model))
        };
        let over: Vec<u32> = self.models.values().filter(idle).map(|deployment| deployment.number).collect();
        for number in over {
            self.remove(now, number);
        }
    }

    /// A number for a worker on a node, in a pool.
    pub(crate) fn new_worker(&mut self, now: Time, node: u16, model: Option<u32>, pool: u32) -> WorkerId {
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let spec = model.and_then(|number| self.models.get(&number)).map(|deployment| &deployment.spec);
        let share = spec.map_or(Share::ALL, |spec| bounds(spec).0);
        let gpu = self.pools.get_mut(&pool).expect("the pool was made before its workers").seat(id);
        let worker = Worker {
            node,
            model,
            pool,
            gpu,
            state: WorkerState::Starting,
            share,
            started: now,
            flights: VecDeque::new(),
            last_done: now,
            busy: Span::ZERO,
            batches: 0,
            restarts: 0,
            last_error: None,
        };
        self.workers.insert(id, worker);
        id
    }

    /// Ends a worker, once it has finished what it has.
    pub(crate) fn stop_worker(&mut self, now: Time, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.state = WorkerState::Stopping;
        if let Some(node) = self.nodes.get(&worker.node) {
            (node.tell)(ToNode::Stop { worker: id });
        }
        let (pool, gpu) = (worker.pool, worker.gpu);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.unseat(now, gpu);
        }
        self.carry_out(pool, now);
    }

    fn overview(&self) -> Overview {
        let view = |(id, worker): (&WorkerId, &Worker)| WorkerView {
            worker: *id,
            node: self.nodes.get(&worker.node).map_or_else(String::new, |node| node.name.clone()),
            model: worker
                .model
                .and_then(|number| self.models.get(&number))
                .map_or("virtual GPU".into(), Deployment::label),
            state: worker.state,
            busy: worker.busy,
            batches: worker.batches,
            restarts: worker.restarts,
            last_error: worker.last_error.clone(),
        };
        let queue = |model: &Deployment| {
            let place = model.place?;
            Some((model.number, self.pools.get(&place.pool)?.waiting(place.model)))
        };
        let now = self.now();
        let scaling = |model: &Deployment| Some(model.scaling.as_ref()?.view(now, model, self.config.dry_run));
        Overview {
            workers: self.workers.iter().map(view).collect(),
            queues: self.models.values().filter_map(queue).collect(),
            nodes: self.nodes.iter().map(|(number, node)| node.view(*number)).collect(),
            scaling: self.models.values().filter_map(scaling).collect(),
        }
    }
}

fn scaling_words(deployment: &Deployment) -> &str {
    deployment.scaling.as_ref().map_or("", Scaling::last_decision)
}

/// The number of the gateway that holds a request.
fn gateway_of(request: u64) -> u16 {
    (request >> 48) as u16
}
