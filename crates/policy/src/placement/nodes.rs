//! Which node of a cluster gets a worker, and which worker moves when another node would be better.
//!
//! A worker is one process, so everything it takes is on one node. The GPUs of a node are shared out as its daemon does
//! it ([`super::machine`]): beside programs that leave room, on an idle GPU where none do, and where no GPU has
//! room for the limit on the one that the least is asked of. A node that can promise the share comes before others in
//! this order:
//! 1. the limits on its GPUs stay within [`Rules`];
//! 2. the fewest idle GPUs are taken;
//! 3. the fewest workers of the same service are there, so that the end of one node leaves others;
//! 4. the tightest fit: beside a large program, then the least memory left, then the least share left.
//!
//! A worker without a GPU goes where a core is left for each of its threads, among those where the fewest workers of its
//! service are, and then where the least is asked of the cores. Ties go to the least loaded node, then the lowest number.
//!
//! Which GPU of its node a worker gets is decided there, by the same code: the node also knows programs that nobody here
//! started. These books say what was promised on each node.
//!
//! Invariants:
//! 1. No node promises more than its GPUs have: neither requests beyond a GPU, nor memory beyond what it has in all. Only
//!    a worker that a node brings along is taken in whatever it takes.
//! 2. A choice takes no more idle GPUs than any other node's would.
//! 3. A relocation strictly lowers, in this order: what exceeds GPUs, GPUs in use, workers of one service that share a
//!    node (sum of squares), threads beyond cores, and after that workers of one service and the load of cores (sums of
//!    squares). So relocations end.

use super::explain::giga;
use super::machine::{self, Asked, Host, TenantState};
use super::policies::by_name;
use super::{Demand, Kind, Need, Policy, Rules, State, WHOLE};
use crate::GpuId;
use std::collections::BTreeMap;
use std::fmt;

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Threads that run at a time.
    pub cores: u32,
    /// Bytes of memory of each GPU.
    pub gpus: Vec<u64>,
}

/// What a worker takes of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// What it is a worker of. Workers of one service are kept on different nodes where that costs no GPU.
    pub service: String,
    /// Threads that it computes with.
    pub threads: u32,
    /// How many GPUs it runs on, each of them different; 0 for a worker on the CPU.
    pub gpus: usize,
    /// What it takes of each GPU.
    pub need: Need,
}

/// Where a worker goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node's number.
    pub node: u32,
    /// The GPUs of that node that are planned for it.
    pub gpus: Vec<GpuId>,
    /// Why there, for people.
    pub why: String,
}

/// Why a worker goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No node takes workers.
    NoNode,
    /// Nodes take workers, and none has room for this one.
    NoRoom(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoNode => f.write_str("no node takes workers: start one with `weft node`"),
            Refused::NoRoom(reason) => f.write_str(reason),
        }
    }
}

/// A worker that would be better off elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Which one.
    pub worker: u64,
    /// Where it would go.
    pub choice: Choice,
}

/// How good a node is for a worker; less is better. Workers with and without GPUs are never compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A core is left for each thread.
    Spare { replicas: usize, load: u64, node: u32 },
    /// There are more threads than cores.
    Busy { load: u64, replicas: usize, node: u32 },
    /// Its GPUs have room.
    Room { idle: usize, replicas: usize, no_large: bool, memory: u64, request: u32, load: u64, node: u32 },
    /// Limits would exceed what GPUs allow, or memory may turn out not to be there.
    Crowded { asked: Vec<Asked>, replicas: usize, load: u64, node: u32 },
    /// Which GPUs the node has is not known.
    Unknown { replicas: usize, load: u64, node: u32 },
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = |f: &mut fmt::Formatter<'_>, replicas: usize| match replicas {
            0 => write!(f, "; no other worker of this model is there"),
            1 => write!(f, "; one other worker of this model is there"),
            many => write!(f, "; {many} other workers of this model are there"),
        };
        match self {
            Rank::Spare { replicas, .. } => {
                write!(f, "it has cores to spare")?;
                others(f, *replicas)
            }
            Rank::Busy { load, .. } => {
                write!(
                    f,
                    "no node has cores to spare, and this one is the least loaded: {load} threads per 1,000 cores"
                )
            }
            Rank::Room { idle: 0, replicas, .. } => {
                write!(f, "a GPU in use has room for it")?;
                others(f, *replicas)
            }
            Rank::Room { idle, replicas, .. } => {
                write!(f, "no GPU in use has room, and it has {idle} idle")?;
                others(f, *replicas)
            }
            Rank::Crowded { .. } => write!(f, "no GPU has room for its limit, and the least is asked of this node's"),
            Rank::Unknown { .. } => write!(f, "it did not say which GPUs it has, and no other node has room"),
        }
    }
}

/// A node and what was promised on it.
#[derive(Clone, Debug)]
struct Node {
    capacity: Option<Capacity>,
    open: bool,
    hosts: Vec<Host>,
    state: State,
    /// Threads of all its workers.
    threads: u64,
    /// Workers of each service.
    replicas: BTreeMap<String, usize>,
}

impl Node {
    fn new(capacity: Option<Capacity>) -> Node {
        let gpus = capacity.iter().flat_map(|capacity| &capacity.gpus).enumerate();
        let host = |(gpu, memory): (usize, &u64)| Host { gpu: GpuId::new(gpu), memory: *memory, tenants: Vec::new() };
        let hosts: Vec<Host> = gpus.map(host).collect();
        let state = machine::state(&hosts);
        Node { capacity, open: true, hosts, state, threads: 0, replicas: BTreeMap::new() }
    }

    fn replicas(&self, service: &str) -> usize {
        self.replicas.get(service).copied().unwrap_or(0)
    }

    /// Cores; those of a node that did not say are counted as one.
    fn cores(&self) -> u64 {
        u64::from(self.capacity.as_ref().map_or(0, |capacity| capacity.cores).max(1))
    }

    /// Threads for each thousand cores, with so many more.
    fn load(&self, more: u32) -> u64 {
        (self.threads + u64::from(more)) * 1_000 / self.cores()
    }

    /// Whether it would have more threads than cores with so many more, for all that is known.
    fn is_short(&self, more: u32) -> bool {
        self.capacity.is_some() && self.threads + u64::from(more) > self.cores()
    }

    /// How good it is for a worker, and which of its GPUs it would get.
    fn rank(
        &self,
        node: u32,
        policy: &dyn Policy,
        footprint: &Footprint,
        demand: &Demand,
    ) -> Option<(Rank, Vec<GpuId>)> {
        let (replicas, load) = (self.replicas(&footprint.service), self.load(footprint.threads));
        let need = &footprint.need;
        if footprint.gpus == 0 {
            let rank = match self.is_short(footprint.threads) {
                false => Rank::Spare { replicas, load, node },
                true => Rank::Busy { load, replicas, node },
            };
            return Some((rank, Vec::new()));
        }
        if self.capacity.is_none() {
            return Some((Rank::Unknown { replicas, load, node }, Vec::new()));
        }
        let rooms = self.state.rooms();
        let enough = rooms.iter().filter(|room| room.fits(need)).count() >= footprint.gpus;
        if enough && let Ok(plan) = policy.place(&self.state, demand) {
            let gpus: Vec<GpuId> = plan.pieces.iter().map(|piece| piece.gpu).collect();
            let room = |gpu: &GpuId| &rooms[gpu.index()];
            let rank = Rank::Room {
                idle: gpus.iter().filter(|gpu| room(gpu).idle()).count(),
                replicas,
                no_large: gpus.iter().all(|gpu| room(gpu).large == 0),
                memory: gpus.iter().map(|gpu| room(gpu).memory - need.memory).sum(),
                request: gpus.iter().map(|gpu| room(gpu).request - need.request).sum(),
                load,
                node,
            };
            return Some((rank, gpus));
        }
        let asked = machine::least_asked(&self.hosts, &self.state, need, footprint.gpus)?;
        let gpus = asked.iter().map(|asked| asked.gpu).collect();
        Some((Rank::Crowded { asked, replicas, load, node }, gpus))
    }

    /// A worker is there, on these GPUs.
    fn add(&mut self, worker: u64, footprint: &Footprint, gpus: &[GpuId]) {
        self.threads += u64::from(footprint.threads);
        *self.replicas.entry(footprint.service.clone()).or_default() += 1;
        for gpu in gpus {
            let tenant =
                TenantState { name: worker.to_string(), kind: Kind::Inference, need: footprint.need, leaves: None };
            self.hosts[gpu.index()].tenants.push(tenant);
        }
        if !gpus.is_empty() {
            self.state = machine::state(&self.hosts);
        }
    }

    fn remove(&mut self, worker: u64, footprint: &Footprint, gpus: &[GpuId]) {
        self.threads -= u64::from(footprint.threads);
        if let Some(count) = self.replicas.get_mut(&footprint.service) {
            *count -= 1;
            if *count == 0 {
                self.replicas.remove(&footprint.service);
            }
        }
        let name = worker.to_string();
        for gpu in gpus {
            self.hosts[gpu.index()].tenants.retain(|tenant| tenant.name != name);
        }
        if !gpus.is_empty() {
            self.state = machine::state(&self.hosts);
        }
    }

    /// GPUs for a worker that is here whatever it takes: those that have room, else those that the least is asked of.
    fn take_in(&self, policy: &dyn Policy, footprint: &Footprint, demand: &Demand) -> Vec<GpuId> {
        if let Some((_, gpus)) = self.rank(0, policy, footprint, demand) {
            return gpus;
        }
        let mut rooms: Vec<(u32, GpuId)> =
            self.hosts.iter().map(|host| (WHOLE - self.state.rooms()[host.gpu.index()].request, host.gpu)).collect();
        rooms.sort_unstable();
        rooms.into_iter().map(|(_, gpu)| gpu).take(footprint.gpus).collect()
    }

    /// Whether a worker on these GPUs is part of what exceeds them.
    fn exceeds(&self, need: &Need, gpus: &[GpuId]) -> bool {
        gpus.iter().any(|gpu| {
            let Host { memory, tenants, .. } = &self.hosts[gpu.index()];
            let sum = |of: fn(&Need) -> u64| tenants.iter().map(|tenant| of(&tenant.need)).sum::<u64>();
            need.limit > 0 && sum(|need| need.limit.into()) > u64::from(Rules::SHARED.limit)
                || need.request > 0 && sum(|need| need.request.into()) > u64::from(WHOLE)
                || need.memory > 0 && sum(|need| need.memory) > *memory
        })
    }
}

/// A worker and where it is.
#[derive(Clone, Debug)]
struct Worker {
    node: u32,
    footprint: Footprint,
    gpus: Vec<GpuId>,
}

/// The nodes of a cluster and the workers on them. Nodes and workers have the numbers that their driver gives them.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<u32, Node>,
    workers: BTreeMap<u64, Worker>,
    version: u64,
}

fn policy() -> Box<dyn Policy> {
    by_name("weft").expect("it is one of the policies")
}

fn demand(footprint: &Footprint) -> Demand {
    Demand::new(&*footprint.service, Kind::Inference, footprint.gpus, footprint.need)
}

impl Nodes {
    /// A node joins, with what it has if it said so.
    pub fn join(&mut self, node: u32, capacity: Option<Capacity>) {
        self.lose(node);
        self.nodes.insert(node, Node::new(capacity));
    }

    /// A node is gone, with all its workers.
    pub fn lose(&mut self, node: u32) {
        if self.nodes.remove(&node).is_some() {
            self.workers.retain(|_, worker| worker.node != node);
        }
        self.version += 1;
    }

    /// Says whether a node takes workers.
    pub fn set_open(&mut self, node: u32, open: bool) {
        if let Some(node) = self.nodes.get_mut(&node).filter(|node| node.open != open) {
            node.open = open;
            self.version += 1;
        }
    }

    /// Whether any node takes workers.
    pub fn has_open(&self) -> bool {
        self.nodes.values().any(|node| node.open)
    }

    /// Changes whenever the answer of [`Nodes::choose`] may.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The node of each worker, by its number.
    pub fn workers(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.workers.iter().map(|(id, worker)| (*id, worker.node))
    }

    /// What is planned for the GPUs of a node, by GPU id.
    pub fn hosts(&self, node: u32) -> &[Host] {
        self.nodes.get(&node).map_or(&[], |node| &node.hosts)
    }

    /// Where a worker would go.
    pub fn choose(&self, footprint: &Footprint) -> Result<Choice, Refused> {
        let (policy, demand) = (policy(), demand(footprint));
        let open = || self.nodes.iter().filter(|(_, node)| node.open);
        let ranked = open().filter_map(|(number, node)| {
            let (rank, gpus) = node.rank(*number, &*policy, footprint, &demand)?;
            Some((rank, *number, gpus))
        });
        match ranked.min() {
            Some((rank, node, gpus)) => Ok(Choice { node, gpus, why: rank.to_string() }),
            None if open().next().is_none() => Err(Refused::NoNode),
            None => Err(Refused::NoRoom(self.lacking(footprint))),
        }
    }

    /// Why no node keeps the promise.
    fn lacking(&self, footprint: &Footprint) -> String {
        let Footprint { gpus, need, .. } = footprint;
        let open = || self.nodes.values().filter(|node| node.open);
        if open().all(|node| node.hosts.is_empty()) {
            return "it asks for a GPU and no node has one: start a node with a GPU, or deploy it without".to_owned();
        }
        let large = |node: &&Node| node.hosts.iter().filter(|host| host.memory >= need.memory).count() >= *gpus;
        let memory = giga(need.memory);
        let asks = match (gpus, need.memory) {
            (1, 0) => "a GPU".to_owned(),
            (1, _) => format!("a GPU with {memory} GB of memory"),
            (_, 0) => format!("{gpus} GPUs of one node"),
            _ => format!("{gpus} GPUs of one node with {memory} GB of memory each"),
        };
        match open().any(|node| large(&node)) {
            false => format!("it asks for {asks}, and no node has that: ask for less"),
            true => format!(
                "it asks for {asks} and to be promised {}% of it, and no node has that left: stop something, ask for \
                 less, or add a node",
                f64::from(need.request) / 10.0
            ),
        }
    }

    /// A worker starts where it was chosen to.
    pub fn add(&mut self, worker: u64, footprint: Footprint, choice: &Choice) {
        self.insert(worker, footprint, choice.node, choice.gpus.clone());
    }

    /// A worker is on this node already, whatever it takes.
    pub fn take_in(&mut self, worker: u64, footprint: Footprint, node: u32) {
        let Some(state) = self.nodes.get(&node) else { return };
        let gpus = match footprint.gpus {
            0 => Vec::new(),
            _ => state.take_in(&*policy(), &footprint, &demand(&footprint)),
        };
        self.insert(worker, footprint, node, gpus);
    }

    fn insert(&mut self, worker: u64, footprint: Footprint, node: u32, gpus: Vec<GpuId>) {
        self.remove(worker);
        let Some(state) = self.nodes.get_mut(&node) else { return };
        state.add(worker, &footprint, &gpus);
        self.workers.insert(worker, Worker { node, footprint, gpus });
        self.version += 1;
    }

    /// A worker is gone.
    pub fn remove(&mut self, worker: u64) {
        let Some(Worker { node, footprint, gpus }) = self.workers.remove(&worker) else { return };
        self.version += 1;
        if let Some(node) = self.nodes.get_mut(&node) {
            node.remove(worker, &footprint, &gpus);
        }
    }

    /// The first of these workers that would be better off on another node, of those nodes that may have it.
    pub fn relocation(
        &self,
        candidates: impl IntoIterator<Item = u64>,
        may_have: impl Fn(u64, u32) -> bool,
    ) -> Option<Relocation> {
        let policy = policy();
        candidates.into_iter().find_map(|id| {
            let worker = self.workers.get(&id)?;
            let demand = demand(&worker.footprint);
            let better = self.nodes.iter().filter_map(|(number, to)| {
                if *number == worker.node || !to.open {
                    return None;
                }
                let (rank, gpus) = to.rank(*number, &*policy, &worker.footprint, &demand)?;
                (self.gains(worker, to, &rank) && may_have(id, *number)).then_some((rank, *number, gpus))
            });
            let (rank, node, gpus) = better.min()?;
            Some(Relocation { worker: id, choice: Choice { node, gpus, why: rank.to_string() } })
        })
    }

    /// Whether a worker is better off on another node, where it would have this rank; see invariant 3.
    fn gains(&self, worker: &Worker, to: &Node, rank: &Rank) -> bool {
        let from = &self.nodes[&worker.node];
        let Worker { footprint, gpus, .. } = worker;
        let (here, there) = (from.replicas(&footprint.service), to.replicas(&footprint.service));
        match rank {
            Rank::Room { idle, .. } if !gpus.is_empty() => {
                let freed = gpus.iter().filter(|gpu| from.hosts[gpu.index()].tenants.len() == 1).count();
                from.exceeds(&footprint.need, gpus) || here >= there + 2 && *idle <= freed
            }
            Rank::Spare { .. } => {
                let threads = u64::from(footprint.threads);
                // The sum of squares of threads over cores gets less.
                let levels = || (2 * to.threads + threads) * from.cores() < (2 * from.threads - threads) * to.cores();
                from.is_short(0) || here >= there + 2 || here == there + 1 && levels()
            }
            _ => false,
        }
    }
}
