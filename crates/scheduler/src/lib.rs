//! The scheduler, live.
//!
//! One driver makes every decision, and whoever brings news drives it: it reads the clock once, tells the dispatchers
//! and does what they want done. Everything else turns messages into news and actions into messages.

#![forbid(unsafe_code)]

mod alarm;
mod config;
mod link;
mod session;
mod worker;
mod objective;
pub mod lead;
pub mod store;
pub mod lock_file;
mod profile;
mod readiness;
mod pool;
mod deployment;
mod scaling;
mod driver;
mod members;
mod placing;
mod life;
mod orders;
mod thread;
pub mod server;

pub use config::Config;
pub use driver::{Arrived, Driver};
pub use link::{GatewayLink, NodeLink};
pub use store::{Record, Store, Stored, private_folder};
pub use thread::Scheduler;
