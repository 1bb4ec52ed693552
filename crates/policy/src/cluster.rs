//! What the scheduler knows: who waits, which GPUs there are and what they were given.
//!
//! Invariants, held here so that no policy can break them:
//! 1. A request is in exactly one place: a lane, or a batch on a GPU. It leaves by being answered: its batch
//!    finished, or it was refused; or it is withdrawn while it waits.
//! 2. A GPU's batches run one after the other in the order given; `free_at` is when the last of them should
//!    be over.
//! 3. A GPU is *available* when it may be given a batch: it is alive, not leaving, and idle or due to be idle
//!    within the policy's lead. Available GPUs are in `available`, those that will be are in `busy`; one that
//!    is leaving or was told to stop is in neither.

use crate::bitset::BitSet;
use crate::tournament::Tournament;
use crate::{
    GpuId, GpuType, LaneId, LatencyTable, ModelId, Network, Outlook, Queue, RateEstimate, Request, Span, Time,
};
use std::collections::VecDeque;

/// A model as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct Model {
    /// From arrival to answer, network included.
    pub objective: Span,
    /// Latency by GPU type. An empty table: this type cannot meet the objective at all.
    pub tables: Vec<LatencyTable>,
    /// The expected gap between requests before any was seen; [`Span::MAX`] when unknown.
    pub expected_gap: Span,
}

impl Model {
    /// The table of the type that runs one request fastest.
    pub fn fastest(&self) -> &LatencyTable {
        let alone = |table: &&LatencyTable| table.latency(1);
        self.tables.iter().filter(|table| table.max_batch() > 0).min_by_key(alone).unwrap_or(&self.tables[0])
    }
}

/// A queue and the model its requests ask for.
#[derive(Clone, Debug)]
pub struct Lane {
    /// What they ask for.
    pub model: ModelId,
    /// Who waits.
    pub queue: Queue,
}

/// A batch on a GPU, running or next.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Its serial number.
    pub batch: u64,
    /// The lane it came from.
    pub lane: LaneId,
    /// Its model.
    pub model: ModelId,
    /// How many requests are in it.
    pub size: usize,
    /// When it should start.
    pub start: Time,
    /// When it should be over.
    pub finish: Time,
}

/// A GPU as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub struct Gpu {
    /// Its type.
    pub kind: GpuType,
    /// Whether it is there.
    pub alive: bool,
    /// Whether it goes away once its batches are over.
    pub leaving: bool,
    /// Whether it was told to stop what it runs and has not said that it did.
    pub stopping: bool,
    /// When the last batch it was given should be over.
    pub free_at: Time,
    /// Its batches in order.
    pub flights: VecDeque<Flight>,
    /// The requests of those batches, in the same order.
    pub(crate) requests: VecDeque<Request>,
}

/// Lanes, GPUs and models.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// By model id.
    pub models: Vec<Model>,
    /// By lane id; lane `m` is model `m`'s own.
    pub lanes: Vec<Lane>,
    /// By GPU id.
    pub gpus: Vec<Gpu>,
    /// Requests that came, by model id.
    pub offered: Vec<u64>,
    /// Requests that were refused, by model id.
    pub refused: Vec<u64>,
    /// Requests that were withdrawn, by model id.
    pub withdrawn: Vec<u64>,
    /// Arrival rates by model id.
    pub rates: Vec<RateEstimate>,
    /// What lies between a decision and its effect.
    pub network: Network,
    /// GPUs that may be given a batch, by type.
    pub(crate) available: Vec<BitSet>,
    /// When the other GPUs that may be given batches should be free.
    pub(crate) busy: Tournament,
    /// When each lane's head loses its last chance.
    pub(crate) expiry: Tournament,
    /// How long before it is free a GPU may be given its next batch.
    pub(crate) lead: Span,
    pub(crate) batches: u64,
    /// How often models and their tables changed.
    pub(crate) changes: u64,
    live: usize,
    /// GPUs from this index on are a reserve.
    reserve: usize,
    /// Available GPUs before the reserve.
    open: usize,
}

impl Cluster {
    pub(crate) fn new(models: Vec<Model>, gpus: &[GpuType], network: Network, lead: Span) -> Cluster {
        let lanes: Vec<_> =
            (0..models.len()).map(|model| Lane { model: ModelId::new(model), queue: Queue::default() }).collect();
        let mut cluster = Cluster {
            rates: models.iter().map(|model| RateEstimate::new(model.expected_gap)).collect(),
            expiry: Tournament::new(lanes.len()),
            busy: Tournament::new(gpus.len()),
            available: Vec::new(),
            gpus: Vec::new(),
            offered: vec![0; models.len()],
            refused: vec![0; models.len()],
            withdrawn: vec![0; models.len()],
            models,
            lanes,
            network,
            lead,
            batches: 0,
            changes: 0,
            live: 0,
            reserve: usize::MAX,
            open: 0,
        };
        for (index, kind) in gpus.iter().enumerate() {
            cluster.join(Time::ZERO, GpuId::new(index), *kind);
        }
        cluster.count_live();
        cluster
    }

    pub(crate) fn add_model(&mut self, model: Model) -> ModelId {
        assert_eq!(self.lanes.len(), self.models.len(), "lane m is model m's own");
        let id = ModelId::new(self.models.len());
        self.lanes.push(Lane { model: id, queue: Queue::default() });
        self.rates.push(RateEstimate::new(model.expected_gap));
        self.offered.push(0);
        self.refused.push(0);
        self.withdrawn.push(0);
        self.models.push(model);
        self.changes += 1;
        id
    }

    /// Takes over models and GPUs that another cluster has and this one does not, at most so many of them; whether
    /// both are alike now. GPUs have the same ids and are idle.
    pub(crate) fn mirror(&mut self, now: Time, other: &Cluster, most: usize) -> bool {
        for _ in 0..most {
            if let Some(model) = other.models.get(self.models.len()) {
                self.add_model(model.clone());
            } else if let Some(gpu) = other.gpus.get(self.gpus.len()) {
                let id = GpuId::new(self.gpus.len());
                if gpu.alive && !gpu.leaving {
                    self.join(now, id, gpu.kind);
                } else {
                    self.gpus.push(Gpu::default());
                }
            } else {
                self.count_live();
                return true;
            }
        }
        false
    }

    pub(crate) fn set_table(&mut self, model: ModelId, kind: GpuType, table: LatencyTable) {
        let tables = &mut self.models[model.index()].tables;
        if kind.index() >= tables.len() {
            tables.resize(kind.index() + 1, LatencyTable::default());
        }
        tables[kind.index()] = table;
        self.changes += 1;
    }

    /// The model whose requests wait in a lane.
    #[inline]
    pub fn model_of(&self, lane: LaneId) -> ModelId {
        self.lanes[lane.index()].model
    }

    /// Who waits in a lane.
    #[inline]
    pub fn queue(&self, lane: LaneId) -> &Queue {
        &self.lanes[lane.index()].queue
    }

    /// How long batches of a model take on a GPU.
    #[inline]
    pub fn table(&self, model: ModelId, gpu: GpuId) -> &LatencyTable {
        &self.models[model.index()].tables[self.gpus[gpu.index()].kind.index()]
    }

    /// What would become of a batch of this lane sent to this GPU now.
    #[inline]
    pub fn outlook(&self, now: Time, lane: LaneId, gpu: GpuId) -> Outlook<'_> {
        let table = self.table(self.model_of(lane), gpu);
        Outlook { now, gpu_free: self.gpus[gpu.index()].free_at, table, network: &self.network }
    }

    /// What would become of a batch of this lane on the GPU it is most likely to get: the lowest available
    /// one that can run it, else the fastest type on whichever GPU is free first.
    #[inline]
    pub fn likely_outlook(&self, now: Time, lane: LaneId) -> Outlook<'_> {
        match self.available_for(self.model_of(lane)) {
            Some(gpu) => self.outlook(now, lane, gpu),
            None => {
                let gpu_free = self.busy.earliest().max(now);
                let table = self.models[self.model_of(lane).index()].fastest();
                Outlook { now, gpu_free, table, network: &self.network }
            }
        }
    }

    /// When a request of this lane could be over, alone, on the GPU that would have it done first. Where there
    /// is no GPU at all one may come at any moment; never, where the model cannot be run.
    pub(crate) fn earliest_finish(&self, now: Time, lane: LaneId) -> Time {
        let model = self.model_of(lane);
        let network = &self.network;
        let finish = |table: &LatencyTable, gpu_free: Time| match table.max_batch() {
            0 => Time::NEVER,
            _ => Outlook { now, gpu_free, table, network }.finish(1),
        };
        let ready = now + network.control;
        let mut earliest = finish(self.models[model.index()].fastest(), self.busy.earliest().max(ready));
        let mut none = self.busy.earliest() == Time::NEVER;
        for (gpus, table) in self.available.iter().zip(&self.models[model.index()].tables) {
            // All that are free by `ready` are as good as each other.
            let mut free = Time::NEVER;
            for gpu in gpus.iter() {
                none = false;
                free = free.min(self.gpus[gpu].free_at.max(ready));
                if free == ready {
                    break;
                }
            }
            earliest = earliest.min(finish(table, free));
        }
        if none { finish(self.models[model.index()].fastest(), ready) } else { earliest }
    }

    /// The available GPU with the lowest id that can run this model at all.
    #[inline]
    pub fn available_for(&self, model: ModelId) -> Option<GpuId> {
        let tables = &self.models[model.index()].tables;
        let able = self.available.iter().zip(tables).filter(|(_, table)| table.max_batch() > 0);
        able.filter_map(|(gpus, _)| gpus.first()).min().map(GpuId::new)
    }

    /// All available GPUs, by type and then by id.
    pub fn available(&self) -> impl Iterator<Item = GpuId> + '_ {
        self.available.iter().flat_map(|gpus| gpus.iter().map(GpuId::new))
    }

    /// Whether this GPU may be given a batch.
    pub fn is_available(&self, gpu: GpuId) -> bool {
        self.available[self.gpus[gpu.index()].kind.index()].contains(gpu.index())
    }

    /// How many GPUs may be given a batch.
    #[inline]
    pub fn available_count(&self) -> usize {
        self.available.iter().map(BitSet::len).sum()
    }

    /// Makes the GPUs from this one on a reserve, or none at all. Only the policy that says so minds it.
    pub fn set_reserve(&mut self, first: Option<GpuId>) {
        let reserve = first.map_or(usize::MAX, GpuId::index);
        if reserve != self.reserve {
            self.reserve = reserve;
            self.open = self.available.iter().map(|gpus| gpus.count_below(reserve)).sum();
        }
    }

    /// How many GPUs before the reserve may be given a batch.
    #[inline]
    pub fn open_count(&self) -> usize {
        self.open
    }

    /// Whether a GPU of the reserve may be given a batch.
    #[inline]
    pub fn has_reserve(&self) -> bool {
        self.reserve != usize::MAX && self.available_count() > self.open
    }

    /// Whether a request waits or is in a batch.
    pub fn holds(&self, request: crate::RequestId) -> bool {
        let waits = |lane: &Lane| (0..lane.queue.len()).any(|index| lane.queue.id(index) == request);
        self.lanes.iter().any(waits) || self.gpus.iter().any(|gpu| gpu.requests.iter().any(|one| one.id == request))
    }

    /// Whether nobody waits and no GPU was given anything.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queue.is_empty()) && self.gpus.iter().all(|gpu| gpu.flights.is_empty())
    }

    /// How many GPUs are there and stay.
    #[inline]
    pub fn live_count(&self) -> usize {
        self.live
    }

    /// GPUs that are there and stay.
    pub fn live(&self) -> impl Iterator<Item = GpuId> + '_ {
        let live = self.gpus.iter().enumerate().filter(|(_, gpu)| gpu.alive && !gpu.leaving);
        live.map(|(index, _)| GpuId::new(index))
    }

    /// The mean gap between requests of a model.
    pub fn gap(&mut self, now: Time, model: ModelId) -> Span {
        self.rates[model.index()].gap(now)
    }

    /// A further lane for a model, for policies that route requests before they run them.
    pub fn open_lane(&mut self, model: ModelId) -> LaneId {
        self.lanes.push(Lane { model, queue: Queue::default() });
        LaneId::new(self.lanes.len() - 1)
    }

    /// When a busy GPU next comes within the policy's lead; never where there is no lead, because then the
    /// end of a batch says so.
    pub(crate) fn next_available(&self) -> Time {
        let free_at = self.busy.earliest();
        if self.lead == Span::ZERO || free_at == Time::NEVER { Time::NEVER } else { free_at - self.lead }
    }

    /// Whether a request can still be on time if it starts alone, now, on the fastest type of GPU.
    pub(crate) fn has_a_chance(&self, now: Time, request: &Request) -> bool {
        let table = self.models[request.model.index()].fastest();
        let network = &self.network;
        table.max_batch() > 0 && now + network.control + network.data_per_request + table.latency(1) <= request.deadline
    }

    pub(crate) fn join(&mut self, now: Time, gpu: GpuId, kind: GpuType) {
        if gpu.index() >= self.gpus.len() {
            self.gpus.resize(gpu.index() + 1, Gpu::default());
        }
        if kind.index() >= self.available.len() {
            self.available.resize(kind.index() + 1, BitSet::default());
        }
        let slot = &mut self.gpus[gpu.index()];
        assert!(!slot.alive, "{gpu:?} joined twice");
        *slot = Gpu { kind, alive: true, free_at: now, ..Gpu::default() };
        self.sort_gpu(now, gpu);
    }

    /// Counts anew how many GPUs there are, after one joined, left or died.
    pub(crate) fn count_live(&mut self) {
        self.live = self.live().count();
    }

    /// Puts a GPU among the available or the busy ones, whichever it belongs to; whether it became available.
    /// One that is leaving goes when its last batch is over.
    pub(crate) fn sort_gpu(&mut self, now: Time, gpu: GpuId) -> bool {
        let state = &mut self.gpus[gpu.index()];
        state.alive &= !(state.leaving && state.flights.is_empty());
        let soon = self.lead > Span::ZERO && state.free_at <= now + self.lead;
        let usable = state.alive && !state.leaving && !state.stopping;
        let available = usable && (state.flights.is_empty() || soon);
        let busy = if usable && !available { state.free_at } else { Time::NEVER };
        let kind = state.kind.index();
        self.busy.set(gpu.index(), busy);
        let changed = self.available[kind].set(gpu.index(), available);
        if changed && gpu.index() < self.reserve {
            self.open = if available { self.open + 1 } else { self.open - 1 };
        }
        changed && available
    }

    /// Sets when a lane's head loses its last chance, after the head changed.
    #[inline]
    pub(crate) fn watch_head(&mut self, lane: LaneId, patient: bool) {
        let state = &self.lanes[lane.index()];
        let at = match state.queue.head() {
            None => Time::NEVER,
            Some(head) if patient => head.deadline + Span::from_nanos(1),
            Some(head) => {
                let table = self.models[state.model.index()].fastest();
                let alone = if table.max_batch() > 0 { table.latency(1) } else { Span::ZERO };
                let network = &self.network;
                head.deadline - (alone + network.control + network.data_per_request) + Span::from_nanos(1)
            }
        };
        self.expiry.set(lane.index(), at);
    }
}
