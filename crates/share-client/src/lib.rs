//! How programs of one machine reach its sharing daemon, and what the two say to each other.
//!
//! A command or a worker host asks the daemon for a share, and starts a program with the environment that the answer
//! calls for. Both sides import this crate, and neither imports the other. What a *running* program and the daemon exchange
//! is in `shm`: pages and packets.

#![forbid(unsafe_code)]

mod wire;
mod paths;
mod client;
mod environment;
mod gpus;

pub use client::Client;
pub use environment::environment;
pub use gpus::{Gpu, Gpus, Uuid};
pub use paths::DaemonPaths;
/// The version of the pages and messages between library and daemon. Different versions refuse each other.
pub use shm::VERSION as PROTOCOL_VERSION;
pub use wire::{
    Answer, Boost, Change, GpuStatus, MpsServer, Question, Register, Registered, Status, StatusAsked, TenantStatus,
};
