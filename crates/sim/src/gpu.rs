//! An emulated GPU: runs the batches it is given, one after the other, each as long as it takes.

use policy::{ModelId, RequestId, Time};
use std::collections::VecDeque;

/// A batch on its way through a GPU.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) serial: u64,
    pub(crate) model: ModelId,
    pub(crate) size: usize,
}

/// One GPU of the virtual cluster.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    /// Batches in order; the first is running once `started` is set.
    pub(crate) batches: VecDeque<Batch>,
    /// Requests of those batches in the same order.
    pub(crate) requests: VecDeque<RequestId>,
    /// When the first batch started.
    pub(crate) started: Option<Time>,
    /// Batches that have reached the GPU; the rest are still on their way.
    pub(crate) arrived: usize,
    /// Batches that are over and of which the scheduler has not heard.
    pub(crate) untold: VecDeque<u64>,
    pub(crate) dead: bool,
    /// How often it has died, so that what was meant for one life does not reach the next.
    pub(crate) deaths: usize,
}
