//! What a launch reads before its GPU is known: the clock of launches, whether anything is captured, and which GPU is in
//! use, in one cache line.

#![deny(unsafe_code)]

use crate::ticks::Ticks;
use std::sync::atomic::{AtomicU32, AtomicUsize};

#[repr(C, align(64))]
pub(crate) struct Hot {
    /// Which GPU is in use, if it is one: its index + 1; else [`NO_GPU`] or [`SEVERAL_GPUS`].
    pub(crate) only: AtomicUsize,
    /// How many streams are captured.
    pub(crate) captures: AtomicU32,
    /// The clock of launches.
    pub(crate) ticks: Ticks,
}

pub(crate) static HOT: Hot = Hot { only: AtomicUsize::new(NO_GPU), captures: AtomicU32::new(0), ticks: Ticks::new() };
pub(crate) const NO_GPU: usize = 0;
pub(crate) const SEVERAL_GPUS: usize = usize::MAX;
