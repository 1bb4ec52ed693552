//! What people have today: every launch goes at once and the GPU decides. `default` runs it as the scenario has it,
//! which is time-slicing between processes unless the scenario says otherwise; `mps` runs all at once.

use super::{Control, Verdict};
use crate::sharing::gpu::Mode;
use crate::sharing::room::Room;
use policy::Time;

/// No control at all.
#[derive(Debug)]
pub(super) struct Unmanaged {
    /// How the GPU is run, where it is not as the scenario has it.
    pub(super) mode: Option<Mode>,
}

impl Control for Unmanaged {
    fn may_launch(&mut self, _now: Time, _tenant: usize, _room: &Room) -> Verdict {
        Verdict::Go
    }

    fn mode(&self, scenario: Mode) -> Mode {
        self.mode.unwrap_or(scenario)
    }
}
