//! Orion (Strati et al., EuroSys 2024): the important tenant launches freely. Another's kernel goes when the important
//! one has nothing in progress, or when it is of the other kind (bound by memory, not by arithmetic, or the reverse) and
//! fits the SMs that are left; and in either case with no more outstanding than a fortieth of an important request.
//!
//! Kernels run side by side, in streams of one process. Stream priorities are not modelled.

use super::control::{above, go_if};
use super::{Control, Verdict};
use crate::sharing::gpu::Mode;
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::sharing::WHOLE;
use policy::{Span, Time};

/// Outstanding time of others, over a burst of the important tenant, is one in this many.
const PART: u64 = 40;

/// Interference-aware best effort.
#[derive(Debug)]
pub(super) struct Orion;

impl Control for Orion {
    fn may_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let state = &snapshot.states[tenant];
        let Some(head) = state.head else { return Verdict::Go };
        let important: Vec<&TenantState> = above(snapshot, tenant).collect();
        let burst = important.iter().map(|state| state.burst_alone).filter(|burst| *burst > Span::ZERO).min();
        let most = burst.map_or(Span::MAX, |burst| burst.scale(1, PART));
        if state.in_flight > 0 && state.outstanding + head.predicted > most {
            return go_if(important.is_empty());
        }
        let beside = |other: &&TenantState| match other.last {
            Some(running) if other.in_flight > 0 => {
                running.memory_bound != head.memory_bound && running.sms + head.sms <= WHOLE
            }
            _ => other.head.is_none(),
        };
        go_if(important.iter().all(beside))
    }

    fn mode(&self, _scenario: Mode) -> Mode {
        Mode::Concurrent
    }
}
