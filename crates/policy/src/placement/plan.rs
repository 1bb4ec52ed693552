//! What is to be done, and why.

use super::Need;
use crate::{GpuId, InstanceId};
use std::fmt;

/// A part of an instance on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub gpu: GpuId,
    /// What it takes there.
    pub need: Need,
    /// When it runs: the start of its quota, in thousandths of the period.
    pub start: u32,
    /// Why there.
    pub reason: Reason,
}

/// Why a GPU was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No GPU in use has room for it.
    Opens,
    /// It takes what a large worker leaves.
    Complements(InstanceId),
    /// Of those with room it leaves the least memory free.
    Fits,
    /// It holds some of an LLM's layers in memory that would be of little use otherwise.
    Fragment,
    /// Others move away from there.
    Cleared,
    /// The policy shares no GPU.
    Alone,
}

/// An instance that goes elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub instance: InstanceId,
    /// Where it will be, all of it.
    pub to: Vec<Piece>,
}

/// Who moves, in this order, and then where the new instance goes. Each step has room when those before it are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Instances that make room.
    pub moves: Vec<Move>,
    /// The new instance; nothing where GPUs are only tidied up.
    pub pieces: Vec<Piece>,
}

/// Why an instance cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is missing and what would help.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

/// Why a plan can no longer be carried out. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The instance is placed already.
    Twice(InstanceId),
    /// The instance that should move is not there.
    Unknown(InstanceId),
    /// The GPU is not there.
    Gone(GpuId),
    /// The GPU has no room for it, or may not host it.
    NoRoom(GpuId),
    /// The pieces are not what was asked for.
    NotAsAsked,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::Twice(instance) => write!(f, "instance {} is placed already", instance.0),
            Stale::Unknown(instance) => write!(f, "instance {} is not there", instance.0),
            Stale::Gone(gpu) => write!(f, "gpu {} is not there", gpu.0),
            Stale::NoRoom(gpu) => write!(f, "gpu {} has no room for it", gpu.0),
            Stale::NotAsAsked => f.write_str("its pieces are not what was asked for"),
        }
    }
}

impl std::error::Error for Stale {}
