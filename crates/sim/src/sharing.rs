//! One GPU and the programs that share it, kernel by kernel, in virtual time.
//!
//! A tenant is a host thread that launches a sequence of kernels, over and over, and sometimes waits for them. The
//! GPU runs what was launched: in slices of time, all at once, or in the order of launches. A [`Control`] stands
//! between the two, as a shim with its daemon does: it may hold a launch. [`run`] is the whole of it: a [`Scenario`]
//! and the name of a policy in, a [`Report`] out. One seed gives identical bytes, and every policy meets the same
//! kernels, gaps and arrivals.
//!
//! The policy `weft` is the code that runs live: `policy::sharing`.

mod scenario;
mod models;
mod file;
mod gpu;
mod snapshot;
mod check;
mod tenant;
mod run;
mod report;
mod policies;
mod pair;

pub use file::parse;
pub use gpu::{GpuSpec, Mode};
pub use models::{MODELS, model};
pub use pair::{AtRandom, Expected, Pair, Solo, predict};
pub use policies::{Control, NAMES};
pub use report::{Report, TenantReport};
pub use run::{run, run_with};
pub use scenario::{Kernel, Load, Scenario, TenantSpec};
pub use snapshot::{Head, Snapshot, TenantState};
