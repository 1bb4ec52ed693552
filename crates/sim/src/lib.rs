//! Weft's decisions on a virtual cluster.
//!
//! [`run`] is the whole of it: a [`Scenario`] in, a [`Report`] out, in virtual time, with the very dispatcher
//! that schedules live requests. Pure: no clock, no files, no threads; one seed gives identical bytes.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod scenario;
mod workload;
mod event_queue;
mod gpu;
mod check;
mod run;
mod report;
pub mod bound;
mod goodput;
pub mod sharing;
pub mod placement;
pub mod elastic;
pub mod generate;

pub use goodput::{Goodput, Probe, Search, goodput};
pub use policy::journal::Replayed;
pub use policy::policies::NAMES as POLICIES;
pub use report::{Causes, ModelReport, Percentiles, Report};
pub use run::run;
pub use scenario::{
    Failure, GpuGroup, ModelSpec, RATES, ReadFile, Scenario, ScenarioError, Trace, TraceFormat, effective, parse, trace,
};
pub use workload::{Arrivals, Spacing};

/// Feeds the journal of a live scheduler to a fresh dispatcher and compares every decision. An error names the line.
pub fn replay(journal: &str, policy: &str) -> Result<Replayed, String> {
    let policy = policy::policies::by_name(policy).ok_or_else(|| format!("there is no policy `{policy}`"))?;
    policy::journal::replay(journal, policy)
}
