//! `libweft.so`: lives in users' processes, between the program and the GPU's driver.
//!
//! It is loaded before everything else (`LD_PRELOAD`), answers for the driver functions in [`table`], and lets the
//! driver do what was asked, at the time and within the memory that the tenant's share allows. A program that never uses
//! CUDA pays one comparison at every `dlsym`: no connection, no thread, no memory.
//!
//! Reading order: [`table`] says what is intercepted, [`boundary`] how a call comes in, [`resolve`] how programs come to
//! call us, `ops` what is done, with `share_core` who waits, [`clock`] how GPU time is known without asking the GPU, [`ledger`]
//! who has which memory, [`attach`] how the daemon is found, lost and found again.
//!
//! Invariants:
//! 1. Nothing of ours runs but in a call that the program made, and there is no thread of ours but one, in best-effort
//!    processes that were told to leave the GPU to the bursts of others ([`preempt`]).
//! 2. A launch allocates nothing and takes no lock; it sleeps only where `share_core::admit_launch` says so.
//! 3. A bug here is not the program's crash: whatever panics falls back to the driver.

mod table;
mod boundary;
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
mod ticks;
pub mod clock;
mod streams;
mod capture;
mod unseen;
pub mod identity;
mod notes;
mod sample;
pub mod ledger;
mod gpu;
mod rivals;
mod attach;
mod channels;
mod slice;
pub mod preempt;
mod space;
mod fork;
mod lock;
mod settings;

/// In a branch that is seldom taken: its code is kept out of the way of the rest, which so is in fewer cache lines.
#[cold]
fn rarely() {}
