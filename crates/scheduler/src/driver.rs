//! What happens when something happens: requests, news of workers, timers.
//!
//! It reads no clock and does no I/O but that of its store: time is an argument, and what it wants done goes through
//! the links that it was given. `thread.rs` drives it live, the simulated cluster in virtual time.
//!
//! Invariants:
//! 1. Every request that arrives is answered by one `Refuse`, or by a `Run` whose batch ends; unless its client went
//!    away, or its gateway's session is over, which announces it anew in the next.
//! 2. A deployment that others may still send requests to keeps its queue: it is taken away a while after clients last
//!    saw it, and only when nobody waits.
//! 3. Who gave an order is told that it was carried out after the gateways were.
//! 4. A worker is in `workers` from the order to start it, or from the word of a node that has it, until its node says
//!    that it stopped or is lost. It has a seat in its pool until it is told to stop. Its deployment lists it for as
//!    long as it has a seat, and nobody else.
//! 5. Whoever holds a lease and has not been heard of for its length is given nothing, and what it had is run
//!    elsewhere or refused.

use crate::config::Config;
use crate::deployment::{Deployment, Place, Reply};
use crate::pool::{Pool, Want};
use crate::profile::Profile;
use crate::scaling::{Change, Scaling, bounds, shown};
use crate::session::{Gateway, Node};
use crate::store::Store;
use crate::worker::{Flight, Worker};
use config::Percent;
use policy::autoscale::Admission;
use policy::deployment::Event as Lived;
use policy::journal::Input;
use policy::placement::nodes::Nodes;
use policy::surface::Share;
use policy::{Event, Request, RequestId, Span, Time};
use rpc::{
    Catalog, FromNode, Grant, ModelInfo, OrderError, Overview, Refusal, ToGateway, ToNode, WorkerId, WorkerState,
    WorkerView, session_of, timing,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The number of the pool of emulated GPUs.
pub(crate) const VIRTUAL: u32 = u32::MAX;
const TICK: Span = Span::from_millis(50);
const LOOK: Span = Span::from_secs(1);

/// A request that came, as the scheduler's clock has it.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its id.
    pub request: u64,
    /// The model version it asks for.
    pub model: u32,
    /// When it came.
    pub at: Time,
    /// How long after that its answer must be on its way.
    pub within: Span,
    /// From 0, whom overload hits last, to 9.
    pub priority: u8,
}

/// The scheduler's decisions.
pub struct Driver {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) models: BTreeMap<u32, Deployment>,
    pub(crate) pools: BTreeMap<u32, Pool>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) nodes: BTreeMap<u32, Node>,
    /// What was promised on each node.
    pub(crate) places: Nodes,
    pub(crate) gateways: BTreeMap<u32, Gateway>,
    pub(crate) next_model: u32,
    next_worker: u32,
    /// For so long no worker is started: nodes that bring some may be on their way.
    pub(crate) settling: Span,
    /// When leases were last looked at.
    pub(crate) watched: Time,
    next_tick: Time,
    next_heartbeat: Time,
    next_look: Time,
    /// When it is next looked for workers that are better off elsewhere.
    pub(crate) next_relocation: Time,
    /// The worker that was looked at last.
    pub(crate) relocated: Option<WorkerId>,
    /// Batches of which nobody was left when they were to be run.
    empty: VecDeque<(WorkerId, u64)>,
    /// Whether clients should be told of a change.
    pub(crate) changed: bool,
    /// Orders that were carried out or refused, and whose givers have not been told: first comes the catalog.
    answers: Vec<(Reply, Result<(), OrderError>)>,
}

impl Driver {
    /// A scheduler with what it knew before and what the configuration asks for, and nobody joined.
    pub fn new(now: Time, config: Config, store: Store) -> anyhow::Result<Driver> {
        let models = config.models.clone();
        let mut driver = Driver::empty(now, config, store);
        driver.restore(now, models)?;
        Ok(driver)
    }

    fn empty(now: Time, config: Config, store: Store) -> Driver {
        Driver {
            settling: config.settle,
            config,
            store,
            models: BTreeMap::new(),
            pools: BTreeMap::new(),
            workers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            places: Nodes::default(),
            gateways: BTreeMap::new(),
            next_model: 0,
            next_worker: 0,
            watched: now,
            next_tick: Time::ZERO,
            next_heartbeat: Time::ZERO,
            next_look: Time::ZERO,
            next_relocation: Time::ZERO,
            relocated: None,
            empty: VecDeque::new(),
            changed: false,
            answers: Vec::new(),
        }
    }

    /// When something must be done even if nothing happens.
    pub fn next_timer(&self) -> Time {
        let pools = self.pools.values().filter_map(Pool::next_timer);
        pools.fold(self.next_tick.min(self.next_look), Time::min)
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn on_timer(&mut self, now: Time) {
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
            self.watch_leases(now);
            self.watch_batches(now);
            self.follow(now);
            self.scale_all(now);
            self.live_on(now);
            self.staff_all(now);
            self.relieve(now);
            self.relocate(now);
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + timing::HEARTBEAT;
            for gateway in self.gateways.values().filter(|gateway| gateway.link.is_leased() && !gateway.silent) {
                gateway.link.send(ToGateway::Heartbeat);
            }
            for node in self.nodes.values().filter(|node| node.link.is_leased() && !node.silent) {
                node.link.send(ToNode::Heartbeat);
            }
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            let overview = self.overview(now);
            for gateway in self.gateways.values().filter(|gateway| !gateway.silent) {
                gateway.link.publish_overview(overview.clone());
            }
        }
    }

    /// Publishes what changed since the last time. Who ordered it is told after that, and finds it in every gateway that
    /// was told before. To be called whenever all that happened was told.
    pub fn settle(&mut self, now: Time) {
        while let Some((worker, batch)) = self.empty.pop_front() {
            self.on_done(now, worker, batch, false);
        }
        if std::mem::take(&mut self.changed) {
            let catalog = self.catalog();
            for gateway in self.gateways.values() {
                gateway.link.publish_catalog(catalog.clone());
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

    /// Which models there are, for gateways.
    pub fn catalog(&self) -> Catalog {
        let emulates = self.emulates();
        let entry = |deployment: &Deployment| deployment.entry(emulates);
        let mut entries: Vec<_> = self.models.values().filter(|model| model.is_listed()).map(entry).collect();
        entries.sort_by(|one, other| (&one.spec.name, one.spec.version).cmp(&(&other.spec.name, other.spec.version)));
        Catalog { entries, known: true, settling: self.settling > Span::ZERO }
    }

    /// A request came.
    pub fn on_arrival(&mut self, now: Time, arrival: Arrived) {
        let Arrived { request, model, at, within, priority } = arrival;
        self.hear_gateway(session_of(request));
        let Some(deployment) = self.models.get_mut(&model) else {
            return self.refuse(request, Refusal::Unavailable("the model was taken away".into()));
        };
        let Some(Place { pool, model: id }) = deployment.place else {
            let text = format!("model `{}` is not loaded", deployment.spec.name);
            return self.refuse(request, Refusal::Unavailable(text));
        };
        let queue = &self.pools[&pool];
        if let Some(takes) = queue.too_slow(id, within) {
            let retry_after = queue.backlog(id);
            return self.refuse(request, Refusal::TooSlow { within, takes, retry_after });
        }
        if let Some(scaling) = &mut deployment.scaling {
            scaling.arrived();
        }
        let waiting = queue.waiting(id);
        if waiting >= deployment.spec.queue {
            let retry_after = queue.backlog(id);
            return self.refuse(request, Refusal::Full { waiting, retry_after });
        }
        if !deployment.admission.admits(now, priority) {
            let retry_after = queue.backlog(id);
            return self.refuse(request, Refusal::Overload { priority, retry_after });
        }
        let arrival = at.min(now);
        let deadline = arrival + (within - self.config.network.response);
        if let Some(refusal) = self.meets_nobody(now, model, deadline) {
            return self.refuse(request, refusal);
        }
        let request = Request { id: RequestId(request), model: id, arrival, deadline };
        self.tell(pool, now, Input::Event(Event::Arrived(request)));
    }

    /// Nobody waits for the answer to a request any more: if it waits for a worker, it does no longer.
    pub fn on_withdrawn(&mut self, now: Time, request: u64, model: u32) {
        let Some(Place { pool, model }) = self.models.get(&model).and_then(|deployment| deployment.place) else {
            return;
        };
        self.tell(pool, now, Input::Event(Event::Withdrawn { request: RequestId(request), model }));
    }

    pub(crate) fn refuse(&self, request: u64, refusal: Refusal) {
        if let Some(gateway) = self.gateways.get(&session_of(request)) {
            gateway.link.send(ToGateway::Refuse { request, refusal });
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
                    // Whoever waited for a worker did not wait for other requests.
                    let emulates = || self.emulates();
                    if let Some(why) = self.models.get(&model).and_then(|deployment| deployment.has_nobody(emulates)) {
                        self.refuse(request, Refusal::Unavailable(why));
                        continue;
                    }
                    self.refuse(request, Refusal::Late { within: Span::ZERO, reason, retry_after });
                }
            }
        }
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.wants = wants;
        }
    }

    fn grant(&mut self, now: Time, worker: WorkerId, model: u32, batch: u64, mut requests: Vec<u64>) {
        // Requests of a session that is over are announced again in the next one; a gateway that is not heard of would
        // keep the others of the batch waiting.
        requests.retain(|request| match self.gateways.get(&session_of(*request)) {
            Some(gateway) if gateway.silent => {
                let text = "the gateway was not heard of when the request was to be run";
                gateway.link.send(ToGateway::Refuse { request: *request, refusal: Refusal::Unavailable(text.into()) });
                false
            }
            known => known.is_some(),
        });
        let size = requests.len();
        let batch = rpc::link::batch_id(self.config.epoch, batch);
        let state = self.workers.get_mut(&worker).expect("who has a seat in a pool is a worker");
        let mut sessions: Vec<u32> = Vec::with_capacity(1);
        for request in &requests {
            if sessions.last() != Some(&session_of(*request)) && !sessions.contains(&session_of(*request)) {
                sessions.push(session_of(*request));
            }
        }
        state.flights.push_back(Flight { batch, model, size, sent: now, sessions });
        if size == 0 {
            return self.empty.push_back((worker, batch));
        }
        let node = self.nodes.get(&state.node).expect("a worker's node is joined");
        while let Some(first) = requests.first() {
            let session = session_of(*first);
            let own = match requests.iter().all(|request| session_of(*request) == session) {
                true => std::mem::take(&mut requests),
                false => requests.extract_if(.., |request| session_of(*request) == session).collect(),
            };
            let gateway = self.gateways.get(&session).expect("requests of others were taken out");
            gateway.link.send(ToGateway::Run(Grant {
                term: self.config.term,
                worker,
                node: node.incarnation,
                address: node.address.clone(),
                batch,
                model,
                size,
                requests: own,
            }));
        }
    }

    /// A node has news.
    pub fn on_node(&mut self, now: Time, node: u32, news: FromNode) {
        if !self.nodes.contains_key(&node) {
            return;
        }
        self.hear_node(now, node);
        let of = match &news {
            FromNode::Ready { worker, .. }
            | FromNode::Done { worker, .. }
            | FromNode::Lost { worker, .. }
            | FromNode::Stopped { worker } => Some(*worker),
            FromNode::Leaving | FromNode::Heartbeat => None,
        };
        if let Some(id) = of
            && self.workers.get(&id).is_none_or(|worker| worker.node != node)
        {
            return self.on_stranger(node, id, &news);
        }
        match news {
            FromNode::Ready { worker, info, measured } => self.on_ready(now, worker, info, &measured),
            FromNode::Done { worker, batch, took, .. } => self.on_done(now, worker, batch, took.is_some()),
            FromNode::Lost { worker, reason, .. } => self.on_lost(now, worker, reason),
            FromNode::Stopped { worker } => self.on_stopped(now, worker),
            FromNode::Leaving => self.on_leaving(now, node),
            FromNode::Heartbeat => {}
        }
    }

    /// A node speaks of a worker that is not here, or not its own. One that runs is ended.
    fn on_stranger(&mut self, node: u32, worker: WorkerId, news: &FromNode) {
        if matches!(news, FromNode::Ready { .. } | FromNode::Lost { .. }) {
            tracing::warn!(
                node = self.nodes[&node].name,
                worker = worker.number(),
                "a worker that nobody asked for ends"
            );
            self.nodes[&node].link.send(ToNode::Stop { worker });
        }
    }

    pub(crate) fn on_ready(&mut self, now: Time, id: WorkerId, info: ModelInfo, measured: &[(usize, Span)]) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(gpu) = worker.gpu.filter(|_| worker.state != WorkerState::Ready) else { return };
        let (pool, model, took) = (worker.pool, worker.model, worker.started.map(|started| now - started));
        if let Some(number) = model {
            let unproven = self.models.get(&number).filter(|deployment| !deployment.life.is_proven());
            let fit = match unproven.and_then(|deployment| deployment.too_slow(&self.config.network, measured)) {
                Some(reason) => Err(reason),
                None => Ok(()),
            };
            if fit.is_ok() {
                self.measured(now, number, info, measured, took);
            }
            self.live(now, number, Lived::Ready(id.0, fit));
        }
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.gpu.is_some()) else { return };
        worker.state = WorkerState::Ready;
        worker.last_done = now;
        worker.flights.clear();
        // Virtual models can be asked from the first of these on.
        self.changed |= model.is_none();
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.lose(now, gpu);
            pool.join(now, gpu);
        }
        self.carry_out(pool, now);
    }

    /// A worker found out what its model takes and how long: the first says so for all.
    fn measured(&mut self, now: Time, number: u32, info: ModelInfo, measured: &[(usize, Span)], took: Option<Span>) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        let Some(place) = deployment.place else { return };
        if deployment.life.is_proven() {
            if let Some(known) = deployment.info.as_mut().filter(|known| known.runs_on != info.runs_on) {
                // The worker that started last knows best: one that found no GPU this time is on the CPU.
                Arc::make_mut(known).runs_on = info.runs_on;
                self.changed = true;
            }
            return;
        }
        let profile = Profile::new(measured, info.max_batch, now);
        let table = profile.table();
        deployment.profile = Some(profile);
        deployment.measured = measured.iter().map(|(size, took)| (*size, took.nanos())).collect();
        deployment.info = Some(Arc::new(info));
        deployment.first_start = took;
        deployment.update_scaling(now);
        if let Some(pool) = self.pools.get_mut(&place.pool) {
            pool.set_table(now, place.model, table);
        }
        self.carry_out(place.pool, now);
    }

    /// A batch is over.
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
        if let Some(gpu) = gpu {
            let batch = rpc::link::serial_of(batch);
            self.tell(pool, now, Input::Event(Event::BatchDone { gpu, batch }));
        }
    }

    /// A gateway could not hand a batch to the node of its worker: the worker is given nothing until its node is heard
    /// of, and what it has is run elsewhere. Where `nobody` of the batch is left, it is over.
    pub fn on_undelivered(&mut self, now: Time, id: WorkerId, batch: u64, nobody: bool) {
        let known = |worker: &Worker| worker.flights.iter().any(|flight| flight.batch == batch);
        if !self.workers.get(&id).is_some_and(known) {
            return;
        }
        match nobody {
            true => self.on_done(now, id, batch, false),
            false => self.silence(now, id),
        }
    }

    /// A gateway's session is over: batches that only it could have sent are over for all that is known here.
    pub(crate) fn abandon(&mut self, now: Time, session: u32) {
        let mut over = Vec::new();
        for (id, worker) in &mut self.workers {
            for flight in &mut worker.flights {
                let before = flight.sessions.len();
                flight.sessions.retain(|other| *other != session);
                if before > 0 && flight.sessions.is_empty() {
                    over.push((*id, flight.batch));
                }
            }
        }
        for (id, batch) in over {
            self.on_done(now, id, batch, false);
        }
    }

    /// Takes batches back that were never heard of again.
    pub(crate) fn watch_batches(&mut self, now: Time) {
        let forgotten = |worker: &Worker| worker.flights.front().is_some_and(|first| now - first.sent > timing::BATCH);
        for id in self.workers.iter().filter(|(_, worker)| forgotten(worker)).map(|(id, _)| *id).collect::<Vec<_>>() {
            tracing::warn!(worker = id.number(), "a batch was not heard of again");
            self.silence(now, id);
        }
    }

    /// Whether a request waits here or is being run, for all that is known.
    pub fn holds(&self, request: u64) -> bool {
        self.pools.values().any(|pool| pool.cluster().holds(RequestId(request)))
    }

    /// Every worker: its node, its model and how it is.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, rpc::Incarnation, Option<&str>, WorkerState)> + '_ {
        self.workers.iter().map(|(id, worker)| {
            let model = worker.model.and_then(|number| self.models.get(&number)).map(|model| model.spec.name.as_str());
            (*id, self.nodes[&worker.node].incarnation, model, worker.state)
        })
    }

    /// Whether nobody waits and nothing is being run.
    pub fn is_idle_everywhere(&self) -> bool {
        let idle = |pool: &Pool| pool.cluster().is_idle();
        self.pools.values().all(idle) && self.workers.values().all(|worker| worker.flights.is_empty())
    }

    fn on_lost(&mut self, now: Time, id: WorkerId, reason: String) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
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
        tracing::warn!(worker = id.number(), reason, "a worker was lost");
        self.stay_instead(now, id);
        if let Some(number) = model {
            self.live(now, number, Lived::Lost(id.0, reason));
        }
        if let (Some(pool), Some(gpu)) = (self.pools.get_mut(&pool), gpu) {
            pool.lose(now, gpu);
        }
        self.carry_out(pool, now);
    }

    /// A worker is there no more, whether or not it was told to stop: others take its place.
    fn on_stopped(&mut self, now: Time, id: WorkerId) {
        let model = self.workers.get(&id).and_then(|worker| worker.model);
        self.forget(now, id);
        if let Some(number) = model {
            self.staff(now, number);
        }
    }

    /// Takes a worker out of everything that knows it. What it had is run elsewhere or refused.
    pub(crate) fn forget(&mut self, now: Time, id: WorkerId) {
        self.unseat(now, id);
        self.workers.remove(&id);
        self.places.remove(id.0);
    }

    /// Takes a worker's seat in its pool and its place with its deployment.
    fn unseat(&mut self, now: Time, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let (pool, model) = (worker.pool, worker.model);
        let Some(gpu) = worker.gpu.take() else { return };
        if let Some(number) = model {
            if let Some(deployment) = self.models.get_mut(&number) {
                deployment.workers.retain(|other| *other != id);
            }
            self.live(now, number, Lived::Left(id.0));
        }
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.unseat(now, gpu);
        }
        self.carry_out(pool, now);
    }

    /// Gives a worker that is ready nothing more until it is heard of, and has what it had run elsewhere.
    pub(crate) fn silence(&mut self, now: Time, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.state == WorkerState::Ready) else {
            return;
        };
        worker.state = WorkerState::Silent;
        worker.flights.clear();
        if let Some(node) = self.nodes.get_mut(&worker.node) {
            node.has_silent_workers = true;
        }
        let (pool, gpu, model) = (worker.pool, worker.gpu, worker.model);
        self.changed |= model.is_none();
        if let Some(number) = model {
            self.live(now, number, Lived::Silent(id.0));
        }
        if let (Some(pool), Some(gpu)) = (self.pools.get_mut(&pool), gpu) {
            pool.lose(now, gpu);
        }
        self.carry_out(pool, now);
    }

    /// A worker that was silent takes batches again.
    pub(crate) fn unsilence(&mut self, now: Time, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.state == WorkerState::Silent) else {
            return;
        };
        worker.state = WorkerState::Ready;
        worker.last_done = now;
        let (pool, gpu, model, node, left) = (worker.pool, worker.gpu, worker.model, worker.node, worker.left);
        self.changed |= model.is_none();
        if let Some(number) = model {
            self.live(now, number, Lived::Heard(id.0));
        }
        let goes = left || self.nodes.get(&node).is_some_and(|node| node.leaving);
        if let (Some(pool), Some(gpu)) = (self.pools.get_mut(&pool), gpu.filter(|_| !goes)) {
            pool.join(now, gpu);
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
        // While nodes are on their way, some that have its workers may be among them.
        let nobody = |deployment: &&Deployment| deployment.life.ready() == 0 && self.settling == Span::ZERO;
        let deployment = self.models.get(&number).filter(nobody)?;
        let verdict = deployment.scaling.as_ref()?.admit(now, deadline - now);
        if !deployment.workers.iter().any(|worker| self.workers.contains_key(worker)) {
            self.scale(now, number);
        }
        match verdict {
            Admission::Wait { .. } => None,
            Admission::Refuse { expected } => Some(Refusal::Starting { expected: shown(expected) }),
        }
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
        let Some(deployment) = self.models.get_mut(&number).filter(|deployment| !deployment.life.is_retired()) else {
            return;
        };
        let (Some(place), Some(scaling)) = (deployment.place, &mut deployment.scaling) else { return };
        let waiting = self.pools.get(&place.pool).map_or(0, |pool| pool.waiting(place.model));
        let nodes = &self.nodes;
        let stays = |worker: &&Worker| !worker.moving && !nodes.get(&worker.node).is_some_and(|node| node.leaving);
        let own = |id: &WorkerId| Some((*id, self.workers.get(id).filter(stays)?));
        let workers: Vec<(WorkerId, &Worker)> = deployment.workers.iter().filter_map(own).collect();
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
            node.link.send(ToNode::Stretch { worker: id, to });
        }
    }

    /// Ends workers that are too many, those that have nothing to do and came last first.
    pub(crate) fn trim(&mut self, now: Time, number: u32) {
        while let Some(idle) = self.surplus(number) {
            self.stop_worker(now, idle);
        }
    }

    /// A worker too many that has nothing to do.
    fn surplus(&self, number: u32) -> Option<WorkerId> {
        let deployment = self.models.get(&number)?;
        let too_many = self.staying(deployment).count() > deployment.wanted;
        self.staying(deployment).rev().find(|id| too_many && self.is_idle(*id))
    }

    pub(crate) fn is_idle(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_none_or(|worker| worker.flights.is_empty())
    }

    /// A worker that is to be started on a node, in a pool.
    pub(crate) fn new_worker(&mut self, now: Time, node: u32, model: Option<u32>, pool: u32) -> WorkerId {
        let id = WorkerId::new(self.config.epoch, self.next_worker);
        self.next_worker += 1;
        self.add_worker(now, id, node, model, pool);
        self.workers.get_mut(&id).expect("it was just added").started = Some(now);
        id
    }

    /// Takes in a worker on a node, in a pool.
    pub(crate) fn add_worker(&mut self, now: Time, id: WorkerId, node: u32, model: Option<u32>, pool: u32) {
        let deployment = model.and_then(|number| self.models.get_mut(&number));
        let share = deployment.as_ref().map_or(Share::ALL, |deployment| bounds(&deployment.spec).0);
        if let Some(deployment) = deployment {
            deployment.workers.push(id);
        }
        let gpu = self.pools.get_mut(&pool).expect("the pool was made before its workers").seat(id);
        let worker = Worker {
            node,
            model,
            pool,
            gpu: Some(gpu),
            state: WorkerState::Starting,
            share,
            started: None,
            flights: VecDeque::new(),
            last_done: now,
            busy: Span::ZERO,
            batches: 0,
            restarts: 0,
            last_error: None,
            why: String::new(),
            moving: false,
            left: false,
        };
        self.workers.insert(id, worker);
        if let Some(number) = model {
            self.live(now, number, Lived::Ordered(id.0));
        }
    }

    /// Ends a worker, once it has finished what it has.
    pub(crate) fn stop_worker(&mut self, now: Time, id: WorkerId) {
        self.unseat(now, id);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.state = WorkerState::Stopping;
        if let Some(node) = self.nodes.get(&worker.node) {
            node.link.send(ToNode::Stop { worker: id });
        }
    }

    fn overview(&self, now: Time) -> Overview {
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
            why: worker.why.clone(),
        };
        let queue = |model: &Deployment| {
            let place = model.place?;
            Some((model.number, self.pools.get(&place.pool)?.waiting(place.model)))
        };
        let scaling = |model: &Deployment| {
            let scaling = model.scaling.as_ref()?;
            Some(scaling.view(now, model.number, model.spec.workers, model.wanted, self.config.dry_run))
        };
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
