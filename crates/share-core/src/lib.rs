//! What decides within a process that shares a GPU.
//!
//! Plain values in, decisions out: no clock, no memory of its own, nothing that waits. The library in a program, the
//! daemon and the simulator call the same functions.

#![no_std]
#![forbid(unsafe_code)]

mod class;
mod busy;
mod admission;
mod preemption;
mod sm_cap;

pub use admission::{BUDGET_NS, Decision, Launch, Limits, NO_LIMIT, admit_launch, wants_preemption};
pub use busy::{BusyPeriod, Patience, daemon_is_dead, daemon_is_late, is_syncing};
pub use class::{Admission, Class, SharingMode};
pub use preemption::{LEASE, Lease, Preemption, Step};
pub use sm_cap::{may_cap, sm_cap};
