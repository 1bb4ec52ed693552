//! Which models and GPUs form a sub-cluster, for the next epoch.
//!
//! Any model on any GPU costs memory, and one dispatcher decides on one thread. So a large cluster is cut into
//! sub-clusters: each has a dispatcher, some of the GPUs and some of the models, and every GPU of a sub-cluster holds the
//! weights of all its models. [`partition()`] decides anew at the end of every epoch, from measured rates; its plan is a
//! list of steps that leaves no choice to whoever executes it.
//!
//! What a plan keeps to:
//! 1. Every model that is served has a home, or the plan says why it has none. A model that is too large for one
//!    sub-cluster has several and is served by them in equal parts.
//! 2. No GPU's memory is exceeded at any step: a model's weights are loaded where it goes before they are unloaded where
//!    it was. Only moves that fit when their turn comes are planned, so there is no order to be found afterwards.
//! 3. A step is worth its price. The GPU time that it gives a sub-cluster that has too little, within an epoch, is at
//!    least the GPU time that loading takes.
//!
//! Even is judged by *pressure*: the GPUs that a sub-cluster needs, with the headroom that randomness asks for (see
//! [`crate::staffing`]), as a part of those it has. Bursty models ask for more headroom; those that ask for most are placed
//! first, each where least is asked for, which spreads them.
//!
//! How close to even: let `a` be the sub-cluster with the highest pressure when a plan for models without a home is done,
//! and `b` one with room for a model `i` of `a`. Had `i` in `b` given less pressure than `a` has, it would have been
//! moved. As the spread of a sum is at most the sum of spreads, the pressure of `a` is at most that of `b` plus what `i`
//! alone would be in `b`. Where memory is not short `b` may be the sub-cluster with the lowest pressure, which is at most
//! the even one. So the highest pressure is above the even one by at most one model's, the smallest of `a`.
//!
//! Not covered: types of GPU differ in how fast they run all models together, not in which models each is good at; and
//! what batches need in memory beside weights is to be taken off the memory of GPUs beforehand.

mod view;
mod plan;
mod books;
mod balance;
mod execution;
mod traffic;

pub use balance::partition;
pub use execution::Execution;
pub use plan::{PartitionPlan, Planned, Reason, Step, Unplaced};
pub use traffic::Traffic;
pub use view::{GpuKind, ModelDemand, Parameters, PartitionView, Subcluster};
