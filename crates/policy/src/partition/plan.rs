//! A plan: steps in order, each with its reason.

use super::Subcluster;
use crate::{GpuType, ModelId, Span};

/// What is to be done, and how things are when it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionPlan {
    /// In the order in which they fit.
    pub steps: Vec<Planned>,
    /// How things are afterwards.
    pub subclusters: Vec<Subcluster>,
    /// Models that have no home, and why.
    pub unplaced: Vec<(ModelId, Unplaced)>,
    /// The pressure if the demand were divided evenly, in [`PartitionPlan::FULL`]s.
    pub even: u64,
    /// The highest pressure of a sub-cluster before anything is done; zero where nothing was assigned.
    pub highest_before: u64,
    /// The highest pressure of a sub-cluster afterwards.
    pub highest_after: u64,
    /// GPU time that loading weights takes.
    pub price: Span,
}

impl PartitionPlan {
    /// The pressure of a sub-cluster that needs just the GPUs that it has.
    pub const FULL: u64 = 1 << 20;

    /// How many models are loaded where they were not.
    pub fn loads(&self) -> usize {
        self.steps.iter().filter(|planned| matches!(planned.step, Step::Load { .. })).count()
    }

    /// How many GPUs go from one sub-cluster to another, or into their first.
    pub fn gpu_moves(&self) -> usize {
        let count = |planned: &Planned| match planned.step {
            Step::MoveGpus { count, .. } => count,
            _ => 0,
        };
        self.steps.iter().map(count).sum()
    }
}

/// A step and why it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What is done.
    pub step: Step,
    /// Why.
    pub because: Reason,
}

/// One thing to do. Sub-clusters are named by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes the GPUs with the highest ids of this type out of a sub-cluster once they have finished what they were given,
    /// loads what the other serves, and lets them in there.
    MoveGpus {
        /// Which type.
        kind: GpuType,
        /// How many.
        count: usize,
        /// Where they are; `None`: in no sub-cluster yet.
        from: Option<usize>,
        /// Where they go.
        to: usize,
    },
    /// Loads a model's weights on every GPU of a sub-cluster that can run it.
    Load {
        /// Which model.
        model: ModelId,
        /// Where.
        to: usize,
    },
    /// Requests of this model go to these sub-clusters in turn from now on.
    Route {
        /// Which model.
        model: ModelId,
        /// Where to; nobody: they are refused.
        to: Vec<usize>,
    },
    /// Drops a model's weights once nobody waits for it there any more.
    Unload {
        /// Which model.
        model: ModelId,
        /// Where.
        from: usize,
    },
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The model has no home yet.
    New,
    /// The model is not served any more.
    Gone,
    /// The GPU is in no sub-cluster yet.
    Joined,
    /// There are to be fewer sub-clusters.
    Closing,
    /// The sub-cluster that gets GPUs has less than half of its part of them.
    Small,
    /// The sub-cluster that gives up a model, or gets a GPU, has a pressure above the even one.
    Pressed,
    /// The model needs more than one sub-cluster should give it: more parts.
    Grown,
    /// The model has more parts than it needs.
    Shrunk,
}

impl Reason {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::New => "the model has no home yet",
            Reason::Gone => "the model is not served any more",
            Reason::Joined => "the GPU is in no sub-cluster yet",
            Reason::Closing => "the sub-cluster closes",
            Reason::Small => "the sub-cluster has less than half of its part of the GPUs",
            Reason::Pressed => "the sub-cluster needs more of its GPUs than others do",
            Reason::Grown => "the model needs more than a sub-cluster should give to one",
            Reason::Shrunk => "the model has more parts than it needs",
        }
    }
}

/// Why a model has no home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unplaced {
    /// No GPU can run it in time.
    NoGpu,
    /// No sub-cluster whose GPUs can run it has memory left for it.
    Memory,
}
