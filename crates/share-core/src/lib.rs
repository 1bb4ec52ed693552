//! What decides within a process that shares a GPU.
//!
//! Plain values in, decisions out: no clock, no memory of its own, nothing that waits. The library in a program, the
//! daemon and the simulator call the same functions.

#![no_std]
#![forbid(unsafe_code)]

mod busy;
mod preemption;

pub use busy::{BusyPeriod, Patience, daemon_is_dead, is_syncing};
pub use preemption::{LEASE, Lease, Preemption, Step};
