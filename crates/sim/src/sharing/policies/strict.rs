//! Strict priority: nobody launches while somebody more important has work, or is between the first launch of a burst
//! and its sync. Fills no gap and predicts nothing; what is on the GPU already is not preempted.

use super::control::{above, go_if};
use super::{Control, Verdict};
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::Time;

/// Strict priority.
#[derive(Debug)]
pub(super) struct Strict;

impl Control for Strict {
    fn may_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        go_if(!above(snapshot, tenant).any(TenantState::is_active))
    }
}
