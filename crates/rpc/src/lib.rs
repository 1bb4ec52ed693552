//! What gateway, scheduler, node and workers say to each other.
//!
//! Plain values. In one process they travel through channels; between machines they are turned into the messages
//! of `proto/` and back. Nothing here decides anything. What all gRPC servers of Weft do with new connections is here
//! too: `connections`.

#![forbid(unsafe_code)]

pub mod tensor;
mod info;
mod term;
pub mod link;
pub mod leader;
pub mod catalog;
mod scaling;
pub mod inference;
pub mod cluster;
pub mod connections;

pub use catalog::{
    Catalog, Entry, Health, NodeView, NotFound, Order, OrderError, Overview, Source, State, WorkerState, WorkerView,
};
pub use info::{ModelInfo, RunsOn};
pub use link::{
    Answer, Arrival, Compute, Failure, FromNode, Grant, Incarnation, NodeHello, Outputs, Part, Payload, Refusal,
    ReplyTo, Running, ToGateway, ToNode, WorkerId, count_of, request_id, session_of, timing,
};
pub use scaling::{Decision, ScalingView};
pub use tensor::Tensor;
pub use term::Term;
