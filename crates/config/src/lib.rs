//! What people write to have a model served or a GPU shared, and what it means.
//!
//! Plain values that were checked when they were read: deployments ([`ModelSpec`]), shares ([`Share`]), profiles on disk
//! ([`profile`]). Processes send them to each other as well, in the messages of `rpc`. Nothing here reads a file or decides
//! anything.

#![forbid(unsafe_code)]

pub mod model;
pub mod env;
pub mod share;
pub mod profile;
mod datatype;
mod size;
mod workers;

pub use datatype::DataType;
pub use model::{Device, Kind, Line, ModelSpec, TensorSpec};
pub use share::{Percent, Share, ShareAsked, SharingMode};
pub use size::Bytes;
pub use workers::{WORKERS_MAX, Workers};
