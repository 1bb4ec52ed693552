//! What a service looks like at a look.

use crate::InstanceId;
use crate::surface::Share;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It loads its model.
    Starting,
    /// It answers requests.
    Ready,
    /// It finishes what it has and goes.
    Draining,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Which.
    pub id: InstanceId,
    /// What it does.
    pub state: State,
    /// Its size: an index into the service's. One beyond them counts as the last.
    pub size: usize,
    /// The share it has now.
    pub share: Share,
    /// The most that it could be given now: its limit, or less where neighbours leave less.
    pub ceiling: Share,
    /// Whether its GPU would be idle without it, so that it is what that GPU costs.
    pub alone: bool,
    /// The part of the time since the last look in which it ran a batch, in thousandths.
    pub busy: u32,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Requests that came since the last look.
    pub arrivals: u64,
    /// Requests that wait for a worker.
    pub waiting: u64,
    /// Its workers.
    pub workers: Vec<Worker>,
}
