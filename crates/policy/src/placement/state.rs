//! Who has what: GPUs in nodes, and the instances on them.

use super::window;
use super::{Demand, Kind, Move, Need, Part, Piece, Plan, Rules, Stale, WHOLE};
use crate::{GpuId, InstanceId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// A GPU and what is on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The machine it is in.
    pub node: NodeId,
    /// Bytes.
    pub memory: u64,
    /// What it is good for.
    pub labels: BTreeSet<String>,
    /// Whether it is there.
    pub alive: bool,
    /// In the order they came.
    pub parts: Vec<Part>,
}

/// What is free on a GPU at all times, in a form that is quick to look through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub memory: u64,
    /// Free for requests, in thousandths.
    pub request: u32,
    /// Free for limits, in thousandths.
    pub limit: u32,
    /// How many parts there are; a GPU without any is idle.
    pub parts: u32,
    /// How many of them are large: they take more than half of the memory, so no two of them meet.
    pub large: u32,
    /// Whether the GPU is there.
    pub alive: bool,
}

impl Room {
    /// Whether there is room for this at all times.
    #[inline]
    pub fn fits(&self, need: &Need) -> bool {
        self.alive && self.memory >= need.memory && self.request >= need.request && self.limit >= need.limit
    }

    /// Whether anything is on the GPU.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.parts > 0
    }

    /// Whether the GPU is there and nothing is on it.
    #[inline]
    pub fn idle(&self) -> bool {
        self.alive && self.parts == 0
    }
}

/// An instance and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What was asked for.
    pub demand: Demand,
    /// Where it is.
    pub pieces: Vec<Piece>,
}

/// GPUs and instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    rules: Rules,
    gpus: Vec<Gpu>,
    /// By GPU id.
    rooms: Vec<Room>,
    /// GPUs by node id.
    nodes: Vec<Vec<GpuId>>,
    instances: BTreeMap<InstanceId, Instance>,
    in_use: usize,
}

impl State {
    /// No GPUs.
    pub fn new(rules: Rules) -> State {
        let instances = BTreeMap::new();
        State { rules, gpus: Vec::new(), rooms: Vec::new(), nodes: Vec::new(), instances, in_use: 0 }
    }

    /// By GPU id.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// What is free, by GPU id.
    pub fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    /// The GPUs of each node, by node id.
    pub fn nodes(&self) -> &[Vec<GpuId>] {
        &self.nodes
    }

    /// All instances.
    pub fn instances(&self) -> &BTreeMap<InstanceId, Instance> {
        &self.instances
    }

    /// How many GPUs have anything on them.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// What may be on a GPU together.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// A GPU comes, or comes back.
    pub fn join(&mut self, gpu: GpuId, node: NodeId, memory: u64, labels: BTreeSet<String>) {
        if gpu.index() >= self.gpus.len() {
            self.gpus.resize(gpu.index() + 1, Gpu::default());
            self.rooms.resize(gpu.index() + 1, Room::default());
        }
        if node.index() >= self.nodes.len() {
            self.nodes.resize(node.index() + 1, Vec::new());
        }
        assert!(!self.gpus[gpu.index()].alive, "{gpu:?} joined twice");
        self.nodes[node.index()].push(gpu);
        self.nodes[node.index()].sort_unstable();
        self.gpus[gpu.index()] = Gpu { node, memory, labels, alive: true, parts: Vec::new() };
        self.count(gpu);
    }

    /// A GPU is gone, and with it every instance that had a part on it: they are to be placed again, in this order.
    pub fn lose(&mut self, gpu: GpuId) -> Vec<(InstanceId, Demand)> {
        let Some(state) = self.gpus.get(gpu.index()).filter(|state| state.alive) else { return Vec::new() };
        let node = state.node.index();
        let ids: BTreeSet<InstanceId> = state.parts.iter().map(|part| part.instance).collect();
        let lost = ids.into_iter().filter_map(|id| Some((id, self.stop(id)?))).collect();
        self.gpus[gpu.index()].alive = false;
        self.nodes[node].retain(|other| *other != gpu);
        self.count(gpu);
        lost
    }

    /// An instance ends; what it asked for, or `None` where there is no such instance.
    pub fn stop(&mut self, id: InstanceId) -> Option<Demand> {
        let instance = self.instances.remove(&id)?;
        self.take_off(id, &instance.pieces);
        Some(instance.demand)
    }

    /// Carries out a plan for a new instance: as a whole, or not at all.
    pub fn apply(&mut self, id: InstanceId, demand: Demand, plan: &Plan) -> Result<(), Stale> {
        if self.instances.contains_key(&id) || plan.moves.iter().any(|step| step.instance == id) {
            return Err(Stale::Twice(id));
        }
        self.attempt(&plan.moves, |state| state.put(id, demand, &plan.pieces))
    }

    /// Moves instances, all of them or none.
    pub fn shift(&mut self, moves: &[Move]) -> Result<(), Stale> {
        self.attempt(moves, |_| Ok(()))
    }

    fn attempt(&mut self, moves: &[Move], last: impl FnOnce(&mut State) -> Result<(), Stale>) -> Result<(), Stale> {
        let known = |step: &Move| Some((step.instance, self.instances.get(&step.instance)?.pieces.clone()));
        let before: Vec<(InstanceId, Vec<Piece>)> = moves.iter().filter_map(known).collect();
        let pieces = before.iter().flat_map(|(_, pieces)| pieces).chain(moves.iter().flat_map(|step| &step.to));
        let touched: BTreeSet<GpuId> =
            pieces.map(|piece| piece.gpu).filter(|gpu| gpu.index() < self.gpus.len()).collect();
        let parts: Vec<(GpuId, Vec<Part>)> =
            touched.into_iter().map(|gpu| (gpu, self.gpus[gpu.index()].parts.clone())).collect();
        let done = moves.iter().try_for_each(|step| self.shift_one(step)).and_then(|()| last(self));
        if done.is_err() {
            for (gpu, parts) in parts {
                self.gpus[gpu.index()].parts = parts;
                self.count(gpu);
            }
            for (id, pieces) in before {
                self.instances.get_mut(&id).expect("an instance that moves stays on the list").pieces = pieces;
            }
        }
        done
    }

    fn shift_one(&mut self, step: &Move) -> Result<(), Stale> {
        let instance = self.instances.get_mut(&step.instance).ok_or(Stale::Unknown(step.instance))?;
        let (demand, pieces) = (instance.demand.clone(), std::mem::take(&mut instance.pieces));
        self.take_off(step.instance, &pieces);
        self.put(step.instance, demand, &step.to)
    }

    /// Puts an instance where its pieces say; changes nothing where they may not be.
    fn put(&mut self, id: InstanceId, demand: Demand, pieces: &[Piece]) -> Result<(), Stale> {
        self.check_pieces(&demand, pieces)?;
        for piece in pieces {
            self.gpus[piece.gpu.index()].parts.push(Part {
                instance: id,
                kind: demand.kind,
                need: piece.need,
                start: piece.start,
            });
            self.count(piece.gpu);
        }
        self.instances.insert(id, Instance { demand, pieces: pieces.to_vec() });
        Ok(())
    }

    fn take_off(&mut self, id: InstanceId, pieces: &[Piece]) {
        for piece in pieces {
            self.gpus[piece.gpu.index()].parts.retain(|part| part.instance != id);
            self.count(piece.gpu);
        }
    }

    /// Whether pieces are what a demand asks for, and each has room.
    fn check_pieces(&self, demand: &Demand, pieces: &[Piece]) -> Result<(), Stale> {
        let distinct: BTreeSet<GpuId> = pieces.iter().map(|piece| piece.gpu).collect();
        let each = |piece: &Piece| piece.need == demand.need;
        let as_asked = pieces.len() == demand.gpus && pieces.iter().all(each);
        let nodes = || pieces.iter().filter_map(|piece| Some(self.gpus.get(piece.gpu.index())?.node));
        let one_node = || nodes().all(|node| Some(node) == nodes().next());
        let split = || demand.divisible() && total(pieces) == Some(demand.need) && one_node();
        if distinct.len() != pieces.len() || pieces.is_empty() || !(as_asked || split()) {
            return Err(Stale::NotAsAsked);
        }
        for Piece { gpu, need, start, .. } in pieces {
            let state = self.gpus.get(gpu.index()).filter(|state| state.alive).ok_or(Stale::Gone(*gpu))?;
            let room = &self.rooms[gpu.index()];
            let own = Part { instance: InstanceId::default(), kind: demand.kind, need: *need, start: *start };
            let in_time = || {
                let parts: Vec<Part> = state.parts.iter().copied().chain([own]).collect();
                let (request, limit) = window::peak(&parts);
                request <= WHOLE && limit <= self.rules.limit && start.saturating_add(need.quota) <= WHOLE
            };
            let shares = if need.quota == WHOLE { *start == 0 && room.fits(need) } else { in_time() };
            if !shares || room.memory < need.memory || !self.allows(demand, *gpu) {
                return Err(Stale::NoRoom(*gpu));
            }
        }
        Ok(())
    }

    /// Whether labels and neighbours let this GPU host an instance of this demand.
    #[inline]
    pub fn allows(&self, demand: &Demand, gpu: GpuId) -> bool {
        if demand.labels.is_empty() && !demand.apart {
            return true;
        }
        let state = &self.gpus[gpu.index()];
        let same = |part: &Part| self.instances[&part.instance].demand.service == demand.service;
        demand.labels.iter().all(|label| state.labels.contains(label))
            && !(demand.apart && state.parts.iter().any(same))
    }

    /// When a part of this need would run on this GPU, if it fits.
    #[inline]
    pub fn start(&self, gpu: GpuId, need: &Need) -> Option<u32> {
        let room = &self.rooms[gpu.index()];
        if need.quota == WHOLE || room.memory < need.memory || !room.alive {
            return room.fits(need).then_some(0);
        }
        window::best_fit(&self.gpus[gpu.index()].parts, need, self.rules)
    }

    /// The training instance on a GPU, if there is one.
    pub fn training_on(&self, gpu: GpuId) -> Option<InstanceId> {
        let parts = &self.gpus[gpu.index()].parts;
        parts.iter().find(|part| part.kind == Kind::Training).map(|part| part.instance)
    }

    /// Counts anew what is free on a GPU. Few parts are on one, and a count cannot drift.
    fn count(&mut self, gpu: GpuId) {
        let (state, room) = (&self.gpus[gpu.index()], &mut self.rooms[gpu.index()]);
        self.in_use -= usize::from(room.in_use());
        let whole = state.parts.iter().all(|part| part.need.quota == WHOLE);
        let sums = || state.parts.iter().fold((0, 0), |sum, part| (sum.0 + part.need.request, sum.1 + part.need.limit));
        let (request, limit) = if whole { sums() } else { window::peak(&state.parts) };
        let memory: u64 = state.parts.iter().map(|part| part.need.memory).sum();
        let large = state.parts.iter().filter(|part| is_large(&part.need, state.memory)).count();
        assert!(
            request <= WHOLE && limit <= self.rules.limit && memory <= state.memory,
            "{gpu:?} has more than it has"
        );
        *room = Room {
            memory: state.memory - memory,
            request: WHOLE - request,
            limit: self.rules.limit - limit,
            parts: state.parts.len() as u32,
            large: large as u32,
            alive: state.alive,
        };
        self.in_use += usize::from(room.in_use());
    }
}

/// Whether a part leaves no room for another like it.
#[inline]
pub(super) fn is_large(need: &Need, memory: u64) -> bool {
    2 * need.memory > memory
}

/// All pieces of an LLM together; `None` where one does not run all the time.
fn total(pieces: &[Piece]) -> Option<Need> {
    let mut sum = Need::new(0, 0, 0);
    for Piece { need, .. } in pieces {
        let request = sum.request.checked_add(need.request)?;
        let limit = sum.limit.checked_add(need.limit)?;
        sum = Need::new(request, limit, sum.memory.checked_add(need.memory)?);
        if need.quota != WHOLE || need.memory == 0 {
            return None;
        }
    }
    Some(sum)
}
