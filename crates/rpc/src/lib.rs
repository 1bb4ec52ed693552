//! What gateway, scheduler, node and workers say to each other.
//!
//! Plain values. In one process they travel through channels; between machines they are turned into the messages
//! of `proto/` and back. Nothing here decides anything. What all gRPC servers of Weft do with new connections is here
//! too: `connections`.

#![forbid(unsafe_code)]

pub mod tensor;
pub mod model;
pub mod env;
pub mod share;
pub mod profile;
mod size;
mod term;
pub mod link;
pub mod leader;
pub mod catalog;
mod workers;
mod scaling;
pub mod inference;
pub mod cluster;
pub mod connections;

pub use catalog::{
    Catalog, Entry, Health, NodeView, NotFound, Order, OrderError, Overview, Source, State, WorkerState, WorkerView,
};
pub use link::{
    Answer, Arrival, Compute, Failure, FromNode, Grant, Incarnation, NodeHello, Outputs, Part, Payload, Refusal,
    ReplyTo, Running, ToGateway, ToNode, WorkerId, count_of, request_id, session_of, timing,
};
pub use model::{Device, Kind, Line, ModelInfo, ModelSpec, RunsOn, TensorSpec};
pub use scaling::{Decision, ScalingView};
pub use share::{Percent, Share, ShareAsked, Way};
pub use size::Bytes;
pub use tensor::{DataType, Tensor};
pub use term::Term;
pub use workers::{WORKERS_MAX, Workers};
