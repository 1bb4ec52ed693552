//! Instances that come and go, replayed: how many GPUs each way to place them needs.
//!
//! [`replay`] drives the code that places live instances. Pure: whoever has a clock measures around the decisions. The
//! cluster has as many GPUs as anybody could ask for, so nothing is ever refused and the figure is how many are in use.
//!
//! Checked after every event, in books of its own: what is taken of all GPUs is what the living instances asked for.

mod literal;
mod trace;
mod bound;
mod replay;
mod shuffle;

pub use bound::{Bound, bound};
pub use policy::placement::policies::NAMES;
pub use replay::{Report, replay};
pub use trace::{Change, Cluster, Event, Trace, parse};
