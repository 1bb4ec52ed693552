//! XSched, highest priority first (Shen et al., OSDI 2025): while a higher queue is ready, every lower one is suspended.
//! Whatever was launched before is not taken back, and a queue may have eight commands in flight, so suspending takes as
//! long as those run.
//!
//! A queue is ready when it has commands; the host time between two launches looks like being done.

use super::control::{above, go_if};
use super::{Control, Verdict};
use crate::sharing::snapshot::Snapshot;
use policy::Time;

/// Commands that a queue may have in flight.
const IN_FLIGHT: u32 = 8;

/// Suspend the lower.
#[derive(Debug)]
pub(super) struct XSched;

impl Control for XSched {
    fn may_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let ready = above(snapshot, tenant).any(|state| state.in_flight > 0 || state.head.is_some());
        let least = above(snapshot, tenant).next().is_some();
        go_if(!ready && (!least || snapshot.states[tenant].in_flight < IN_FLIGHT))
    }
}
