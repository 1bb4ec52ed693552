//! The sharing daemon of one machine: it shares GPUs among programs.
//!
//! A program that runs under `libweft.so` connects to the daemon's socket. For each GPU it uses, it gets a page to write
//! and a page to read. Every few milliseconds the daemon reads all pages, asks `policy::sharing` what to do, and writes
//! the answer into the pages. It sends nothing else, so a launch never waits for this process.
//!
//! Invariants:
//! 1. One thread owns all state, and there is no lock.
//! 2. A malformed page or message affects only its sender: the daemon rejects it or bounds it.
//! 3. A process that ends, however it ends, loses its slot at the next `poll_once` of the loop.
//! 4. Programs go on without the daemon. The next daemon reads back which tenants there were, and programs connect to it
//!    by themselves.
//!
//! The daemon ticks while a program uses a GPU and sleeps otherwise. What a program or a command needs to reach the daemon
//! is in `share_client`.

#![forbid(unsafe_code)]

mod config;
mod daemon;
mod state;
mod event_loop;
mod answers;
mod placement;
mod reservation;
mod registry;
mod gpu_state;
mod tenant_usage;
mod slot;
mod learned;
mod store;
mod journal;
mod pidfd;
mod mps;

pub use config::Config;
pub use daemon::Daemon;
