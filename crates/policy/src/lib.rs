//! Every decision Weft makes.
//!
//! Pure code: no clock, no I/O, no async, no unsafe, no randomness of its own. Time is an argument, effects
//! are values. The live scheduler and the simulator drive the same code.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod time;
mod id;
mod request;
mod profile;
pub mod surface;
pub mod search;
pub mod predict;
mod batching;
mod rate;
mod tournament;
mod bitset;
mod cluster;
mod dispatch;
pub mod journal;
mod admission;
pub mod policies;
pub mod sharing;
pub mod placement;
pub mod autoscale;
pub mod deployment;
pub mod generation;

pub use admission::{Admission, PRIORITIES};
pub use batching::{Candidate, Network, Outlook, candidate, target_batch};
pub use bitset::BitSet;
pub use cluster::{Cluster, Flight, Gpu, Lane, Model};
pub use dispatch::{Action, Actions, Context, Dispatcher, Event, Policy, Reason};
pub use id::{GpuId, GpuType, InstanceId, LaneId, ModelId, NodeId, RequestId, TenantId};
pub use profile::{CsvError, LatencyTable, MAX_BATCH, Selection};
pub use rate::RateEstimate;
pub use request::{Queue, Request};
pub use time::{Span, SpanSyntax, Time};
pub use tournament::Tournament;
