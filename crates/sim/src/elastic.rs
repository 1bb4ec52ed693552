//! A cluster of GPUs whose functions come and go with their load, with training in what they leave, in virtual time.
//!
//! A function has a profile, an objective and a trace of its rate; its workers are started, stretched and removed by a
//! policy, placed by `policy::placement`, and answer batches as fast as the profile says for the share they have.
//! Training jobs run all the time on what they are given. [`run`] is the whole of it: a [`Scenario`] and the name of a
//! policy in, a [`Report`] out. One seed gives identical bytes, and every policy meets the same arrivals. The policy
//! `weft` is the code that runs live: `policy::autoscale`.
//!
//! What is modelled, and how simply:
//! - A batch takes what [`policy::predict`] says for its size and share; below the smallest share measured, time grows
//!   as the share shrinks. While it runs its speed follows its share.
//! - Neighbours on a GPU slow a batch down as [`policy::predict`] expects of tenants that were never seen together, from
//!   the parts of the GPU that it and they compute on; or by a percentage of theirs, where the scenario says so.
//! - Where a policy holds nobody (MPS), all that run get parts of the GPU in proportion to what they reach for.
//! - Every policy has the same queue and the same rule for batches: a free worker takes what waits, as many as still end
//!   in time if they are as slow as its last ones were beside its neighbours; what can no longer be in time is dropped and
//!   counted.
//! - A start takes the function's `cold_start`, always. Workers of one model share no weights.
//!
//! Checked in every run, in books of its own (`check`): no request lost or answered twice, no GPU given out more than
//! once, GPU time conserved, time never goes back.

mod scenario;
mod file;
mod interference;
mod latency;
mod policies;
mod cluster;
mod check;
mod run;
mod report;

pub use file::parse;
pub use interference::Interference;
pub use policies::NAMES;
pub use report::{FunctionReport, JobReport, Report, Sample};
pub use run::run;
pub use scenario::{Function, Job, Scenario};
