//! A trace under a policy.

use super::bound::Totals;
use super::trace::{Change, Cluster, Trace};
use policy::placement::policies::by_name;
use policy::placement::{PIECES_MAX, Plan, State, WHOLE};
use policy::{GpuId, NodeId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a policy made of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its name.
    pub policy: String,
    /// GPUs in use at the busiest time.
    pub peak_gpus: usize,
    /// GPUs in use on average over time.
    pub mean_gpus: f64,
    /// The part of the GPUs in use that lies idle, of whichever is scarcest: requests, limits or memory. An average over
    /// time, weighted by the GPUs in use.
    pub fragmentation: f64,
    /// Instances that were moved.
    pub moves: usize,
    /// LLMs that were divided when they started.
    pub splits: usize,
}

/// Replays a trace. `None`: there is no such policy. `around` is handed every decision and makes it, once.
pub fn replay(
    trace: &Trace,
    cluster: Cluster,
    policy: &str,
    mut around: impl FnMut(&mut dyn FnMut()),
) -> Option<Report> {
    let name = policy;
    let policy = by_name(name)?;
    let memory = u64::from(cluster.memory_gb) << 30;
    let mut state = State::new(policy.rules());
    for gpu in 0..gpus(trace) {
        state.join(GpuId::new(gpu), NodeId::new(gpu / cluster.node_gpus.max(1)), memory, BTreeSet::new());
    }
    let mut totals = Totals::default();
    let mut report =
        Report { policy: name.to_owned(), peak_gpus: 0, mean_gpus: 0.0, fragmentation: 0.0, moves: 0, splits: 0 };
    let (mut used, mut filled) = (0.0, 0.0);
    for (index, event) in trace.events.iter().enumerate() {
        match &event.change {
            Change::Start(demand) => {
                let mut plan = Ok(Plan::default());
                around(&mut || plan = policy.place(&state, demand));
                let plan = plan.expect("there are GPUs for all");
                report.moves += plan.moves.len();
                report.splits += usize::from(plan.pieces.len() > demand.gpus);
                state.apply(event.instance, demand.clone(), &plan).expect("a plan is for the state it was made from");
                totals.add(demand);
            }
            Change::Stop => {
                totals.subtract(&state.stop(event.instance).expect("an instance that ends has started"));
                if policy.moves() > 0 {
                    let mut moves = Vec::new();
                    around(&mut || moves = policy.tidy(&state));
                    report.moves += moves.len();
                    state.shift(&moves).expect("a plan is for the state it was made from");
                }
            }
        }
        assert_eq!(taken(&state), totals, "what is taken of the GPUs is not what was asked for");
        report.peak_gpus = report.peak_gpus.max(state.in_use());
        let until = trace.events.get(index + 1).map_or(event.seconds, |next| next.seconds);
        let seconds = (until - event.seconds) as f64;
        used += state.in_use() as f64 * seconds;
        filled += totals.filled(memory) * seconds;
    }
    let seconds = trace.events.last().map_or(0, |event| event.seconds) as f64;
    report.mean_gpus = if seconds > 0.0 { used / seconds } else { state.in_use() as f64 };
    report.fragmentation = if used > 0.0 { 1.0 - filled / used } else { 0.0 };
    Some(report)
}

/// As many GPUs as all pieces of all instances could ever lie on, and a node to spare.
fn gpus(trace: &Trace) -> usize {
    let mut living: BTreeMap<_, usize> = BTreeMap::new();
    let (mut pieces, mut most) = (0, 0);
    for event in &trace.events {
        match &event.change {
            Change::Start(demand) => {
                let own = if demand.divisible() { PIECES_MAX } else { demand.gpus };
                living.insert(event.instance, own);
                pieces += own;
            }
            Change::Stop => pieces -= living.remove(&event.instance).expect("an instance that ends has started"),
        }
        most = most.max(pieces);
    }
    most + 1
}

/// What is taken of all GPUs together, counted from their parts.
fn taken(state: &State) -> Totals {
    let mut totals = Totals::default();
    for gpu in state.gpus().iter().filter(|gpu| !gpu.parts.is_empty()) {
        let mut own = Totals::default();
        for part in &gpu.parts {
            own.request += u64::from(part.need.request);
            own.limit += u64::from(part.need.limit);
            own.memory += part.need.memory;
        }
        let within = own.request <= u64::from(WHOLE) && own.limit <= u64::from(state.rules().limit);
        assert!(within && own.memory <= gpu.memory, "a GPU has more on it than it has");
        totals.request += own.request;
        totals.limit += own.limit;
        totals.memory += own.memory;
    }
    totals
}
