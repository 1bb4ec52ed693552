//! How programs share one GPU.
//!
//! Two planes. The *slow* one, [`Sharing`], is driven by the node every few milliseconds and at once when a tenant
//! comes, goes or is changed: it sees all tenants of a GPU and answers with [`Action`]s. The *fast* one,
//! [`may_launch`] and [`is_off`], is what a tenant decides by itself from a few words of shared memory; the shim, which
//! depends on nothing, has a copy of it, and the simulator runs this one.
//!
//! A tenant is charged GPU time times its share of the SMs, in nanoseconds. Shares are in thousandths of the GPU
//! (`permille`). Nothing here knows who measured the charge or how late it is: a charge that comes late, or a kernel
//! that is longer than a tick, leaves a debt that later ticks pay off.

mod view;
mod launch;
mod division;
mod window;
mod allowance;
mod depth;
mod ladder;
mod adjust;
mod tgs;
mod manner;
mod way;
mod slow;

pub use division::{Claim, divide};
pub use launch::{Control, DAEMON_SILENT, LOOK_AGAIN, Neighbour, Own, Verdict, is_off, may_launch};
pub use manner::{Filling, Manner};
pub use slow::{Sharing, TICK};
pub use view::{Action, Class, Gate, GpuView, TenantView};
pub use way::suits_space;
pub use window::WINDOW;

/// All of a GPU.
pub const WHOLE: u32 = 1_000;
/// Priorities are 0, the most important, to 9.
pub const PRIORITY_LEAST: u8 = 9;
