//! The scheduler, live.
//!
//! One thread owns every decision: it waits for news or a timer, reads the clock once, tells the dispatchers and does
//! what they want done. Everything else turns messages into news and actions into messages. There is no lock around
//! anything here.

#![forbid(unsafe_code)]

mod store;
mod profile;
mod pool;
mod deployment;
mod driver;
mod orders;
mod thread;
pub mod server;

pub use store::{Store, Stored};
pub use thread::{Config, GatewayLink, NodeLink, Scheduler};
