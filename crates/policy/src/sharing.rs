//! How programs share one GPU.
//!
//! Two planes. The *slow* one, [`Sharing`], is driven by the node every few milliseconds and at once when a tenant
//! comes, goes or is changed: it sees all tenants of a GPU and answers with [`Action`]s. The *fast* one, `share_core`, is
//! what a tenant decides by itself, launch by launch, from a few words of shared memory; the library in programs and the
//! simulator call the same functions.
//!
//! A tenant is charged GPU time times its share of the SMs, in nanoseconds. Shares are in thousandths of the GPU
//! (`permille`). Nothing here knows who measured the charge or how late it is: a charge that comes late, or a kernel
//! that is longer than a tick, leaves a debt that later ticks pay off.

mod view;
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
pub use manner::Manner;
pub use share_core::{Admission, Class};
pub use slow::{Sharing, TICK};
pub use view::{Action, Gate, GpuView, TenantView};
pub use way::suits_space;
pub use window::WINDOW;

/// All of a GPU.
pub const WHOLE: u32 = 1_000;
/// Priorities are 0, the most important, to 9.
pub const PRIORITY_LEAST: u8 = 9;
