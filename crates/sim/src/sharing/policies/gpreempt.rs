//! GPreempt (Fan et al., ATC 2025): the hardware's time slices decide, 1 s for latency tenants and 200 us for
//! best-effort ones, on a patched driver. Nothing is held; whoever is best-effort is preempted soon.

use super::{Control, Verdict};
use crate::sharing::gpu::Mode;
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::sharing::Class;
use policy::{Span, Time};

/// Slices by class.
#[derive(Debug)]
pub(super) struct GPreempt;

impl Control for GPreempt {
    fn may_launch(&mut self, _now: Time, _tenant: usize, _room: &Snapshot) -> Verdict {
        Verdict::Go
    }

    fn mode(&self, _scenario: Mode) -> Mode {
        Mode::TimeSlice
    }

    fn slice(&self, _tenant: usize, state: &TenantState) -> Option<Span> {
        match state.class {
            Class::Latency => Some(Span::from_secs(1)),
            Class::Standard => None,
            Class::BestEffort => Some(Span::from_micros(200)),
        }
    }
}
