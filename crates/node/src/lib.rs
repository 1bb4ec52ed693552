//! Weft on one machine: starts worker processes, hands them batches and looks after them.
//!
//! The scheduler says which workers there are, the gateway brings the batches, and a [`Node`] says what became of
//! both. A worker is a process with one model: it may hang, crash or leak without anybody else noticing. Tensors go
//! to it and back through memory that both sides map; a small message on a socket says what lies where.
//!
//! Nothing here decides which batch runs where or when.

#![forbid(unsafe_code)]

mod config;
mod node;
mod scheduler_link;
mod message;
mod span;
mod link;
mod worker_queue;
pub mod assembly;
pub mod roster;
mod batch;
mod connection;
mod protocol;
mod warmup;
mod example;
mod spawn;
mod gpu;
mod logs;
mod emulated;
mod python;
mod weights;
mod environment;
mod files;
pub mod worker;
pub mod remote;

pub use config::Config;
pub use environment::{Environment, Installed, Onnx, find_environment, installed, setup, setup_with};
pub use files::raise_file_limit;
pub use node::Node;
pub use scheduler_link::SchedulerLink;
