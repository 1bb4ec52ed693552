//! What a partition is decided from.

use crate::staffing::ONE;
use crate::{LatencyTable, ModelId, Network, Span};

/// Everything a plan depends on, beside [`Parameters`].
#[derive(Clone, Debug)]
pub struct PartitionView<'a> {
    /// By model id.
    pub models: Vec<ModelDemand<'a>>,
    /// By type of GPU.
    pub kinds: Vec<GpuKind>,
    /// Delays, which objectives must allow for.
    pub network: Network,
    /// How many sub-clusters there should be. There are never more than GPUs.
    pub subclusters: usize,
    /// How things are now; empty before anything was assigned.
    pub present: Vec<Subcluster>,
}

/// What a model asks for.
#[derive(Clone, Copy, Debug)]
pub struct ModelDemand<'a> {
    /// Latency by type of GPU; an empty table where it cannot be run.
    pub tables: &'a [LatencyTable],
    /// From arrival to answer.
    pub objective: Span,
    /// The mean time between two requests; [`Span::MAX`] where none comes.
    pub gap: Span,
    /// The variance of how many come in a while, as a part of their mean (of [`ONE`]): one where they come at random.
    pub dispersion: u64,
    /// Bytes on every GPU of a sub-cluster that serves it.
    pub weights: u64,
    /// Whether it is served at all. One that is not has to go.
    pub served: bool,
}

/// GPUs of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuKind {
    /// How many there are, in sub-clusters and outside.
    pub count: usize,
    /// Bytes for weights on each.
    pub memory: u64,
}

/// A sub-cluster's GPUs and models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subcluster {
    /// How many GPUs of each type.
    pub gpus: Vec<usize>,
    /// In the order of their ids.
    pub models: Vec<ModelId>,
}

/// What a plan weighs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// GPUs beyond those needed, in spreads of the demand (of [`ONE`]). By the square-root rule of staffing.
    pub headroom: u64,
    /// So far above even, in thousandths of it, a sub-cluster's pressure may be before anything is moved for it.
    pub tolerance: u64,
    /// And so far above even it is left once something is.
    pub settled: u64,
    /// A model that needs more than so many thousandths of a sub-cluster is divided.
    pub largest: u64,
    /// Bytes of weights that a GPU loads in a second.
    pub bandwidth: u64,
    /// How long what is planned lasts: a move must pay for itself in that time.
    pub epoch: Span,
}

impl Default for Parameters {
    /// Headroom as the dispatcher's own policy keeps it, an epoch of half a minute as in Symphony, weights at the speed
    /// of PCIe 3. A twentieth above even is within what rates measured over such an epoch stray by where bursts are
    /// strong; a quarter of a sub-cluster is as much as one model may upset it.
    fn default() -> Parameters {
        Parameters {
            headroom: ONE,
            tolerance: 50,
            settled: 20,
            largest: 250,
            bandwidth: 12_000_000_000,
            epoch: Span::from_secs(30),
        }
    }
}

impl Parameters {
    /// How long a GPU loads so many bytes.
    pub fn loading(&self, bytes: u64) -> Span {
        Span::from_secs(1).scale(bytes, self.bandwidth.max(1))
    }
}
