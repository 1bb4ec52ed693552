//! FIKIT: filling inter-kernel idle time (Wu, arXiv 2311.10359). The holder is the most important task that is under
//! way. When it launches a kernel whose measured gap is above a threshold, the gap is filled: the longest waiting
//! kernel of the highest priority that fits what is left of it, again and again, until nothing fits or the holder
//! launches again. Durations and gaps are means from a measuring phase in which each task was alone.
//!
//! A task is one request here, as in the paper: between two requests it holds nothing. Tasks as important as the
//! holder run beside it, in the order of launches.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::{Span, Time};

/// Gaps below this are not worth filling.
const WORTH: Span = Span::from_micros(10);

/// The gap that is being filled.
#[derive(Debug, Default)]
pub(super) struct Fikit {
    /// Whose it is, and when it ends.
    gap: Option<(usize, Time)>,
}

impl Control for Fikit {
    fn may_launch(&mut self, now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let state = &snapshot.states[tenant];
        let holder = snapshot.states.iter().filter(|state| state.in_request).map(TenantState::rank).min();
        if holder.is_none_or(|holder| state.rank() <= holder) {
            return Verdict::Go;
        }
        let (Some((owner, ends)), Some(head)) = (self.gap, state.head) else { return HOLD };
        // It begins when the holder's kernel is done, and what was put into it before comes first.
        let begins = snapshot.states[owner].busy_until.max(now);
        let filled: u64 = snapshot.states.iter().filter(|other| Some(other.rank()) > holder).map(filling).sum();
        let fits = begins + Span::from_nanos(filled) + head.predicted <= ends;
        if fits { Verdict::Go } else { HOLD }
    }

    fn on_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) {
        let holder = snapshot.states.iter().filter(|state| state.in_request).map(TenantState::rank).min();
        let state = &snapshot.states[tenant];
        if holder == Some(state.rank()) {
            let gap = state.last.map_or(Span::ZERO, |kernel| kernel.gap);
            self.gap = (gap >= WORTH).then(|| (tenant, state.busy_until + gap));
        }
    }
}

fn filling(state: &TenantState) -> u64 {
    state.outstanding.nanos()
}
