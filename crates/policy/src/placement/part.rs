//! A part of an instance on a GPU, and what may be there with it.

use super::{Kind, Need};
use crate::InstanceId;

/// What may be on a GPU at the same time, besides requests of 1 and the memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The sum of limits, in thousandths.
    pub limit: u32,
}

impl Rules {
    /// Limits may exceed a GPU by half: not all reach them at once.
    pub const SHARED: Rules = Rules { limit: 1_500 };
    /// Limits do not matter.
    pub const BY_REQUEST: Rules = Rules { limit: u32::MAX };
}

/// A part of an instance, as its GPU sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose.
    pub instance: InstanceId,
    /// What that does.
    pub kind: Kind,
    /// What it takes.
    pub need: Need,
    /// When it runs: the start of its quota, in thousandths of the period.
    pub start: u32,
}
