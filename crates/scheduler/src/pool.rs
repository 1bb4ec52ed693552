//! Workers that can run the same models, and the dispatcher that shares them out.
//!
//! A model with worker processes of its own has a pool of its own; emulated GPUs, which run any virtual model, are one
//! pool. To the dispatcher a worker is a GPU.

use crate::objective::alone;
use policy::journal::{Input, Recorder};
use policy::{Action, Cluster, Event, GpuId, GpuType, LatencyTable, Model, ModelId, Network, Span, Time, policies};
use rpc::WorkerId;
use std::fs::File;
use std::io::Write;

/// All workers of a pool are alike.
const KIND: GpuType = GpuType(0);

/// Something a pool wants done.
pub(crate) enum Want {
    /// Run these requests.
    Run { worker: WorkerId, model: u32, batch: u64, requests: Vec<u64> },
    /// Refuse this one.
    Refuse { request: u64, model: u32, reason: policy::Reason },
}

pub(crate) struct Pool {
    recorder: Recorder,
    /// By GPU id. A worker keeps its place when it is started again.
    workers: Vec<Option<WorkerId>>,
    /// Numbers by model id.
    models: Vec<u32>,
    journal: Option<File>,
    pub(crate) wants: Vec<Want>,
}

impl Pool {
    pub(crate) fn new(now: Time, network: Network, policy: &str, journal: Option<File>) -> Pool {
        let policy = policies::by_name(policy).expect("the name was checked when the configuration was read");
        let recorder = Recorder::new(now, network, policy, journal.is_some());
        Pool { recorder, workers: Vec::new(), models: Vec::new(), journal, wants: Vec::new() }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.recorder.dispatcher().cluster()
    }

    /// When it must be woken.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.recorder.dispatcher().next_timer()
    }

    /// Tells the dispatcher something; what it wants done is appended to `wants`.
    pub(crate) fn tell(&mut self, now: Time, input: Input) {
        let Pool { recorder, workers, models, wants, .. } = self;
        let actions = recorder.tell(now, input);
        for action in &actions.list {
            match action {
                Action::Run { gpu, model, batch, requests, .. } => wants.push(Want::Run {
                    worker: workers[gpu.index()].expect("a GPU that is used has a worker"),
                    model: models[model.index()],
                    batch: *batch,
                    requests: actions.requests[requests.clone()].iter().map(|request| request.0).collect(),
                }),
                Action::Reject { request, model, reason } => {
                    wants.push(Want::Refuse { request: request.0, model: models[model.index()], reason: *reason });
                }
                Action::Preempt { .. } => unreachable!("no policy that runs live stops batches"),
            }
        }
        self.write_journal();
    }

    fn write_journal(&mut self) {
        let (Some(file), Some(text)) = (&mut self.journal, self.recorder.take_journal()) else { return };
        if let Err(error) = file.write_all(text.as_bytes()) {
            tracing::warn!(%error, "the journal cannot be written and ends here");
            self.journal = None;
        }
    }

    /// Takes in a model; its id here.
    pub(crate) fn add_model(&mut self, now: Time, number: u32, objective: Span) -> ModelId {
        let model = Model { objective, tables: vec![LatencyTable::default()], expected_gap: Span::MAX };
        self.models.push(number);
        self.tell(now, Input::Model(model));
        ModelId::new(self.models.len() - 1)
    }

    pub(crate) fn set_table(&mut self, now: Time, model: ModelId, table: LatencyTable) {
        self.tell(now, Input::Table(model, KIND, table));
    }

    /// Gives a worker a place.
    pub(crate) fn seat(&mut self, worker: WorkerId) -> GpuId {
        let place = self.workers.iter().position(Option::is_none).unwrap_or(self.workers.len());
        if place == self.workers.len() {
            self.workers.push(None);
        }
        self.workers[place] = Some(worker);
        GpuId::new(place)
    }

    /// Lets a worker take batches.
    pub(crate) fn join(&mut self, now: Time, gpu: GpuId) {
        self.tell(now, Input::Event(Event::GpuJoined { gpu, kind: KIND }));
    }

    /// A worker died with what it ran.
    pub(crate) fn lose(&mut self, now: Time, gpu: GpuId) {
        if self.cluster().gpus.get(gpu.index()).is_some_and(|state| state.alive) {
            self.tell(now, Input::Event(Event::GpuLost(gpu)));
        }
    }

    /// A worker finishes what it has and is given nothing more.
    pub(crate) fn leave(&mut self, now: Time, gpu: GpuId) {
        if self.cluster().gpus.get(gpu.index()).is_some_and(|state| state.alive && !state.leaving) {
            self.tell(now, Input::Event(Event::GpuLeaving(gpu)));
        }
    }

    /// Takes a worker's place away.
    pub(crate) fn unseat(&mut self, now: Time, gpu: GpuId) {
        self.lose(now, gpu);
        self.workers[gpu.index()] = None;
    }

    /// Requests of a model that wait.
    pub(crate) fn waiting(&self, model: ModelId) -> usize {
        self.cluster().lanes[model.index()].queue.len()
    }

    /// Whether nobody waits for a model or is being served by it.
    pub(crate) fn is_idle(&self, model: ModelId) -> bool {
        let running = |gpu: &policy::Gpu| gpu.flights.iter().any(|flight| flight.model == model);
        self.waiting(model) == 0 && !self.cluster().gpus.iter().any(running)
    }

    /// How long a request of a model takes with nobody before it, where that is longer than this and it would be
    /// refused for it.
    pub(crate) fn too_slow(&self, model: ModelId, within: Span) -> Option<Span> {
        let dispatcher = self.recorder.dispatcher();
        let cluster = dispatcher.cluster();
        let table = cluster.models[model.index()].fastest();
        let known = dispatcher.keeps_deadlines() && table.max_batch() > 0;
        known.then(|| alone(table.latency(1), &cluster.network)).filter(|takes| *takes > within)
    }

    /// How long the requests of a model that wait will take, were they to be run now.
    pub(crate) fn backlog(&self, model: ModelId) -> Span {
        let cluster = self.cluster();
        let table = cluster.models[model.index()].fastest();
        if table.max_batch() == 0 {
            return Span::from_secs(1);
        }
        let batches = (self.waiting(model) / table.max_batch() + 1) as u64;
        table.latency(table.max_batch()).scale(batches, cluster.live_count().max(1) as u64)
    }
}
