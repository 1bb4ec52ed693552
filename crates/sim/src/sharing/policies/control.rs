//! What every policy answers.

use crate::sharing::gpu::Mode;
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::{Span, Time};

/// What becomes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the GPU.
    Go,
    /// It waits until then, or until anything happens, and asks again.
    Wait {
        /// When.
        until: Time,
    },
}

/// What stands between the tenants and the GPU.
pub trait Control {
    /// Whether a tenant may make the launch that it asks for. Asked again whenever anything happens, and at the time
    /// in the answer.
    fn may_launch(&mut self, now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict;

    /// How the GPU is run, where the policy needs it otherwise than the scenario has it.
    fn mode(&self, scenario: Mode) -> Mode {
        scenario
    }

    /// The length of a tenant's turns, where the policy sets it. Asked at the start and after every tick.
    fn slice(&self, _tenant: usize, _seat: &TenantState) -> Option<Span> {
        None
    }

    /// Until when, at least, what a tenant launched is to be off the GPU; `None` where it is not. Asked again whenever
    /// anything happens, and then.
    fn off_until(&mut self, _now: Time, _tenant: usize, _room: &Snapshot) -> Option<Time> {
        None
    }

    /// When [`Control::off_until`] may change by itself. Asked after every tick.
    fn look_at(&self, _tenant: usize) -> Option<Time> {
        None
    }

    /// The part of the SMs, in thousandths, for the launch that a tenant makes now; `None` for all that it wants.
    fn sm_cap(&self, _now: Time, _tenant: usize, _room: &Snapshot) -> Option<u32> {
        None
    }

    /// How often [`Control::on_tick`] is due.
    fn tick(&self) -> Option<Span> {
        None
    }

    /// The clock.
    fn on_tick(&mut self, _now: Time, _room: &Snapshot) {}

    /// A tenant launched what it had asked for; it is in `last`.
    fn on_launch(&mut self, _now: Time, _tenant: usize, _room: &Snapshot) {}

    /// A kernel of a tenant is done.
    fn on_done(&mut self, _now: Time, _tenant: usize, _room: &Snapshot) {}
}

/// Wait for whatever happens next.
pub(super) const HOLD: Verdict = Verdict::Wait { until: Time::NEVER };

pub(super) fn go_if(go: bool) -> Verdict {
    if go { Verdict::Go } else { HOLD }
}

/// Those that are more important than a tenant.
pub(super) fn above(snapshot: &Snapshot, tenant: usize) -> impl Iterator<Item = &TenantState> {
    let rank = snapshot.states[tenant].rank();
    snapshot.states.iter().filter(move |state| state.rank() < rank)
}
