//! Which GPUs an instance gets.
//!
//! A GPU is 1.0 of SM share and its memory. A worker asks for a share that it can count on (*request*), one that it may
//! reach while others leave room (*limit*), memory, and the part of the time in which it runs (*quota*). [`State`] is
//! who has what; a [`Policy`] answers a [`Demand`] with a [`Plan`], which leaves no choice to whoever carries it out
//! and can be told in words ([`explain`]).
//!
//! Invariants, held by [`State`] so that no policy can break them:
//! 1. At no time do the requests on a GPU exceed 1, their limits what [`Rules`] allow, or the memory what it has.
//! 2. The parts of an instance lie on different GPUs. Together they are what was asked for: each as large as the
//!    demand, or, for an LLM that was split, all of them on one node and exactly the demand in sum.
//! 3. A plan is carried out as a whole or not at all.
//!
//! A part of an LLM holds some of its layers and computes only those, so its share is the same part of the request and
//! of the limit. What the way between the parts costs is not counted, which is why they stay on one node and are few.
//!
//! Nothing here knows whose bursts coincide: shares are all that is known of a worker.

mod demand;
mod part;
mod window;
mod plan;
mod state;
mod explain;
mod worth;
mod sketch;
mod split;
mod moves;
mod polish;
pub mod policies;
pub mod machine;
pub mod nodes;

pub use crate::sharing::WHOLE;
pub use demand::{Demand, Kind, Need};
pub use explain::explain;
pub use part::{Part, Rules};
pub use plan::{Move, Piece, Plan, Reason, Refusal, Stale};
pub use policies::Policy;
pub use split::PIECES_MAX;
pub use state::{Gpu, Instance, Room, State};
