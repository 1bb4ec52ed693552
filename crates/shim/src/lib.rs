//! `libweft.so`: lives in users' processes, between the program and the GPU's driver.
//!
//! It is loaded before everything else (`LD_PRELOAD`), answers for the driver functions in [`entries`], and lets the
//! driver do what was asked, at the time and within the memory that the tenant's share allows. A program that never uses
//! CUDA pays one comparison at every `dlsym`: no connection, no thread, no memory.
//!
//! Reading order: [`entries`] lists what is intercepted, [`exports`] are the functions that programs call, [`boundary`] is
//! how a call comes in, [`dlsym`] and [`resolve`] are how programs get these functions. `ops` do the work; `share_core`
//! decides whether a launch waits; [`clock`] estimates GPU time without asking the GPU; [`allocations`] counts memory;
//! [`attach`] finds the daemon, loses it and finds it again.
//!
//! Invariants:
//! 1. Weft's code runs only in calls that the program makes. Its one thread is in best-effort processes that the daemon
//!    told to leave the GPU to the busy periods of others ([`preempt`]).
//! 2. A launch allocates nothing and takes no lock; it sleeps only where `share_core::admit_launch` says so.
//! 3. A bug here is not the program's crash: whatever panics falls back to the driver.

mod entries;
mod table;
mod exports;
mod boundary;
mod dlsym;
mod resolve;
mod lookup;
mod real;
mod types;
mod ops {
    pub(crate) mod capture;
    pub(crate) mod code;
    pub(crate) mod context;
    pub(crate) mod graph;
    pub(crate) mod launch;
    pub(crate) mod memory;
    pub(crate) mod query;
    pub(crate) mod sync;
}
mod bits;
mod hot;
mod ticks;
pub mod clock;
mod streams;
mod untracked;
mod fast_path;
mod capture;
pub mod identity;
mod notes;
mod samples;
mod sample;
pub mod allocations;
mod link;
mod gpu;
mod current;
mod rivals;
mod attach;
mod channels;
mod slice;
pub mod preempt;
mod sm_cap;
mod fork;
mod lock;
mod settings;

/// In a branch that is seldom taken: its code is kept out of the way of the rest, which so is in fewer cache lines.
#[cold]
fn rarely() {}
