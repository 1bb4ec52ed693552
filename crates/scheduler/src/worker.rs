//! A worker, and the batches that it has.

use policy::surface::Share;
use policy::{GpuId, Span, Time};
use rpc::WorkerState;
use std::collections::VecDeque;

pub(crate) struct Worker {
    pub(crate) node: u32,
    /// The model it has loaded; none for an emulated GPU.
    pub(crate) model: Option<u32>,
    pub(crate) pool: u32,
    /// Its seat in the pool; none once it was told to stop.
    pub(crate) gpu: Option<GpuId>,
    pub(crate) state: WorkerState,
    /// What it has of its GPU.
    pub(crate) share: Share,
    /// When it was ordered to start; none where its node brought it along.
    pub(crate) started: Option<Time>,
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) last_done: Time,
    pub(crate) busy: Span,
    pub(crate) batches: u64,
    pub(crate) restarts: u64,
    pub(crate) last_error: Option<String>,
    /// Why it is on its node; empty where its node brought it along.
    pub(crate) why: String,
    /// Whether another one takes its place on another node.
    pub(crate) moving: bool,
    /// Whether it is given nothing more.
    pub(crate) left: bool,
}

pub(crate) struct Flight {
    pub(crate) batch: u64,
    pub(crate) model: u32,
    pub(crate) size: usize,
    pub(crate) sent: Time,
    /// Sessions that have requests in it.
    pub(crate) sessions: Vec<u32>,
}
