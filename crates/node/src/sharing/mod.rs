//! Sharing GPUs among programs: the daemon of one machine.
//!
//! Programs that run under `libweft.so` connect to the daemon's socket and are given a page to write and a page to read
//! for each GPU they use. Every few milliseconds the daemon reads what all of them wrote, asks `policy::sharing` what to
//! do, and writes what goes. Nothing is sent after the pages: a launch never waits for this process.
//!
//! Invariants:
//! 1. One thread owns everything here, and there is no lock.
//! 2. Whatever comes over the socket or lies in a page disturbs the sender alone: it is refused, or bounded.
//! 3. A process that is gone, however it went, is out of its slot at the next turn of the loop.
//! 4. A daemon that is gone leaves programs running; the next one reads back who there was, and they come by themselves.
//!
//! The daemon ticks while a program uses a GPU and sleeps otherwise.

mod wire;
mod daemon;
mod answers;
mod ledger;
mod mps;
mod board;
mod account;
mod slot;
mod learned;
mod store;
mod gpus;
mod pidfd;
mod place;
mod record;
mod reserved;
mod room;
mod client;
mod environment;

pub use client::Client;
pub use daemon::{Config, Daemon};
pub use environment::environment;
pub use gpus::{Gpu, Gpus, Uuid};
pub use place::Place;
/// Of the pages and messages between library and daemon: those of different versions refuse each other.
pub use shm::VERSION as PROTOCOL_VERSION;
pub use wire::{
    Answer, Change, GpuStatus, Question, Register, Registered, Space, Status, StatusAsked, Stretch, TenantStatus,
};
