//! A cluster of GPUs whose functions come and go with their load, with training in what they leave, in virtual time.
//!
//! A function has a profile, an objective and a trace of its rate; its workers are started, stretched and removed by a
//! policy, placed by `policy::placement`, and answer batches as fast as the profile says for the share they have.
//! Training jobs run all the time on what they are given. [`run`] is the whole of it: a [`Scenario`] and the name of a
//! policy in, a [`Report`] out. One seed gives identical bytes, and every policy meets the same arrivals. The policy
//! `weft` is the code that runs live: `policy::autoscale` for workers, `policy::sharing::divide` for shares. Batches are
//! live code under every policy: the dispatcher of `policy`, with a pool for each function (`pool`).
//!
//! What is modelled, and how simply:
//! - A batch takes what [`policy::predict`] says for its size and share; below the smallest share measured, time grows
//!   as the share shrinks. While it runs its speed follows its share.
//! - Neighbours on a GPU slow a batch down as [`policy::predict`] expects of tenants that were never seen together, from
//!   the parts of the GPU that it and they compute on; or by a percentage of theirs, where the scenario says so.
//! - Where a policy holds nobody (MPS), all that run get parts of the GPU in proportion to what they reach for.
//! - The dispatcher is told how long a worker's batches take on its limit, and how much longer the last ones took because
//!   neighbours or its part of the time left it less. Live it is told what batches took.
//! - Live, `policy::sharing` divides a GPU every few milliseconds by what was used. Here it is divided whenever a batch
//!   begins or ends, by what each tenant is about to use; that best-effort work is held while a batch would be late stands
//!   for the controller.
//! - A start takes the function's `cold_start`, always. Workers of one model share no weights.
//!
//! Checked in every run, in books of its own (`check`, and for each request `crate::check`): no request lost or answered
//! twice, no batch started that was known to be late, one batch at a time for each worker, no GPU given out more than once,
//! GPU time conserved, time never goes back.

mod scenario;
mod file;
mod interference;
mod latency;
mod policies;
mod cluster;
mod pool;
mod check;
mod run;
mod report;

pub use file::parse;
pub use interference::Interference;
pub use policies::NAMES;
pub use report::{FunctionReport, JobReport, Report, Sample};
pub use run::run;
pub use scenario::{Function, Job, Scenario};
