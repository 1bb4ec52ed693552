//! What people have today: every launch goes at once and the GPU decides. `default` runs it as the scenario has it,
//! which is time-slicing between processes unless the scenario says otherwise; `mps` runs all at once, and `mps-sms-75`
//! leaves best-effort programs 75% of the SMs.

use super::{Control, Verdict};
use crate::sharing::gpu::Mode;
use crate::sharing::snapshot::Snapshot;
use policy::Time;
use policy::sharing::Class;

/// No control at all.
#[derive(Debug)]
pub(super) struct Unmanaged {
    /// How the GPU is run, where it is not as the scenario has it.
    pub(super) mode: Option<Mode>,
    /// The part of the SMs for best-effort tenants, in thousandths.
    pub(super) cap: Option<u32>,
}

impl Control for Unmanaged {
    fn may_launch(&mut self, _now: Time, _tenant: usize, _room: &Snapshot) -> Verdict {
        Verdict::Go
    }

    fn mode(&self, scenario: Mode) -> Mode {
        self.mode.unwrap_or(scenario)
    }

    fn sm_cap(&self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Option<u32> {
        self.cap.filter(|_| snapshot.states[tenant].class == Class::BestEffort)
    }
}
