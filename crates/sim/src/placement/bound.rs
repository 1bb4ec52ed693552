//! GPUs that no policy does without.

use super::trace::{Change, Cluster, Trace};
use policy::placement::{Demand, Rules, WHOLE};
use serde::Serialize;
use std::collections::BTreeMap;

/// GPUs needed at the busiest time, at least, while requests stay within 1 and limits within 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// As many as hold all requests, all limits or all memory, whichever is most.
    pub sums: usize,
    /// The same, and no fewer than there are parts that each need more than half of a GPU's memory, request or limit and
    /// cannot be divided: no two of them share a GPU.
    pub large: usize,
}

/// The bounds of a trace.
pub fn bound(trace: &Trace, cluster: Cluster) -> Bound {
    let memory = u64::from(cluster.memory_gb) << 30;
    let mut living: BTreeMap<_, &Demand> = BTreeMap::new();
    let mut bound = Bound { sums: 0, large: 0 };
    let (mut totals, mut large) = (Totals::default(), 0);
    for event in &trace.events {
        let demand = match &event.change {
            Change::Start(demand) => {
                living.insert(event.instance, demand);
                totals.add(demand);
                demand
            }
            Change::Stop => {
                let demand = living.remove(&event.instance).expect("an instance that ends has started");
                totals.subtract(demand);
                demand
            }
        };
        let need = &demand.need;
        let half = 2 * need.request > WHOLE || 2 * need.limit > Rules::SHARED.limit || 2 * need.memory > memory;
        if half && !demand.divisible() {
            match event.change {
                Change::Start(_) => large += demand.gpus,
                Change::Stop => large -= demand.gpus,
            }
        }
        bound.sums = bound.sums.max(totals.gpus(memory));
        bound.large = bound.large.max(large);
    }
    Bound { large: bound.large.max(bound.sums), ..bound }
}

/// What all living instances ask for together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) request: u64,
    pub(super) limit: u64,
    pub(super) memory: u64,
}

impl Totals {
    pub(super) fn add(&mut self, demand: &Demand) {
        let gpus = demand.gpus as u64;
        self.request += gpus * u64::from(demand.need.request);
        self.limit += gpus * u64::from(demand.need.limit);
        self.memory += gpus * demand.need.memory;
    }

    pub(super) fn subtract(&mut self, demand: &Demand) {
        let gpus = demand.gpus as u64;
        self.request -= gpus * u64::from(demand.need.request);
        self.limit -= gpus * u64::from(demand.need.limit);
        self.memory -= gpus * demand.need.memory;
    }

    /// GPUs that the scarcest of the three fills, rounded up.
    fn gpus(&self, memory: u64) -> usize {
        let request = self.request.div_ceil(u64::from(WHOLE));
        let limit = self.limit.div_ceil(u64::from(Rules::SHARED.limit));
        request.max(limit).max(self.memory.div_ceil(memory)) as usize
    }

    /// The same, not rounded.
    pub(super) fn filled(&self, memory: u64) -> f64 {
        let request = self.request as f64 / f64::from(WHOLE);
        let limit = self.limit as f64 / f64::from(Rules::SHARED.limit);
        request.max(limit).max(self.memory as f64 / memory as f64)
    }
}
