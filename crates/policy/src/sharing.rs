//! How programs share one GPU.
//!
//! Two planes. The daemon drives the *slow* one, [`Sharing`], at each tick and at once when a tenant comes, goes or changes:
//! it sees all tenants of a GPU and answers with [`Action`]s. The *fast* one, `share_core`, decides launch by launch within a
//! program, from a few words of shared memory; the library and the simulator call the same functions.
//!
//! A tenant is charged GPU time times its share of the SMs, in nanoseconds. Shares are in thousandths of the GPU
//! (`permille`). Nothing here knows who measured the charge or how late it is: a charge that comes late, or a kernel
//! that is longer than a tick, leaves a debt that later ticks pay off.

mod config;
mod view;
mod division;
mod window;
mod allowance;
mod rhythm;
mod slowdown;
mod throttle;
mod promise;
mod controllers;
mod mode;
mod slow;
pub mod journal;

pub use config::{Parameter, SharingConfig};
pub use controllers::Controller;
pub use division::{Claim, divide};
pub use mode::{Modes, suits_spatial};
pub use share_core::{Admission, Class};
pub use slow::Sharing;
pub use view::{Action, Burst, Gate, GpuView, TenantView};

/// All of a GPU.
pub const WHOLE: u32 = 1_000;
/// Priorities are 0, the most important, to 9.
pub const PRIORITY_LEAST: u8 = 9;
