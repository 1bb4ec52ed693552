//! Which steps of a plan may be under way at the same time.
//!
//! A step waits for all steps before it that concern one of its sub-clusters or its model. So what a sub-cluster's GPUs
//! hold changes in the order of the plan, and what fits in that order fits however long each step takes; elsewhere, steps
//! do not wait for each other.

use super::{PartitionPlan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// What two steps may not both have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Concern {
    Subcluster(usize),
    Model(usize),
}

/// The way of a plan from its first step to its last.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    steps: Vec<Step>,
    /// How many steps each one still waits for.
    waits: Vec<usize>,
    /// Which steps wait for each one.
    next: Vec<Vec<usize>>,
    ready: BTreeSet<usize>,
    left: usize,
}

impl Execution {
    /// Nothing of this plan is done yet.
    pub fn new(plan: &PartitionPlan) -> Execution {
        let steps: Vec<Step> = plan.steps.iter().map(|planned| planned.step.clone()).collect();
        let mut last: BTreeMap<Concern, usize> = BTreeMap::new();
        let (mut waits, mut next) = (vec![0; steps.len()], vec![Vec::new(); steps.len()]);
        for (index, step) in steps.iter().enumerate() {
            // Each waits for the last one with the same concern, which waits for the one before it.
            let before: BTreeSet<usize> =
                concerns(step).into_iter().flatten().filter_map(|concern| last.insert(concern, index)).collect();
            waits[index] = before.len();
            for earlier in before {
                next[earlier].push(index);
            }
        }
        let ready = (0..steps.len()).filter(|index| waits[*index] == 0).collect();
        Execution { left: steps.len(), steps, waits, next, ready }
    }

    /// The next step that may start, which has then started, by its place in the plan.
    pub fn start(&mut self) -> Option<(usize, &Step)> {
        let index = self.ready.pop_first()?;
        Some((index, &self.steps[index]))
    }

    /// The step at a place in the plan.
    pub fn step(&self, index: usize) -> &Step {
        &self.steps[index]
    }

    /// Takes note that a step that was started is done.
    pub fn finished(&mut self, index: usize) {
        self.left -= 1;
        for later in std::mem::take(&mut self.next[index]) {
            self.waits[later] -= 1;
            if self.waits[later] == 0 {
                self.ready.insert(later);
            }
        }
    }

    /// Whether all steps are done.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}

fn concerns(step: &Step) -> [Option<Concern>; 3] {
    let model = |model: &crate::ModelId| Some(Concern::Model(model.index()));
    match step {
        Step::MoveGpus { from, to, .. } => [from.map(Concern::Subcluster), Some(Concern::Subcluster(*to)), None],
        Step::Load { model: which, to } => [Some(Concern::Subcluster(*to)), model(which), None],
        Step::Unload { model: which, from } => [Some(Concern::Subcluster(*from)), model(which), None],
        Step::Route { model: which, .. } => [model(which), None, None],
    }
}
