//! Ways to share a GPU by name, a file each.

mod dilu;
mod fast_gshare;
mod fikit;
mod gpreempt;
mod orion;
mod quota;
mod strict;
mod unmanaged;
mod weft;
mod xsched;

use super::gpu::Mode;
use super::room::{Room, Seat};
use super::scenario::Scenario;
use policy::sharing::{Controller, SharingConfig};
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

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 14] = [
    "weft",
    "weft-time",
    "default",
    "mps",
    "priority",
    "quota",
    "fikit",
    "dilu",
    "fast-gshare",
    "tgs",
    "orion",
    "orion-like",
    "xsched",
    "gpreempt",
];

/// What stands between the tenants and the GPU.
pub trait Control {
    /// Whether a tenant may make the launch that it asks for. Asked again whenever anything happens, and at the time
    /// in the answer.
    fn may_launch(&mut self, now: Time, tenant: usize, room: &Room) -> Verdict;

    /// How the GPU is run, where the policy needs it otherwise than the scenario has it.
    fn mode(&self, scenario: Mode) -> Mode {
        scenario
    }

    /// The length of a tenant's turns, where the policy sets it. Asked at the start and after every tick.
    fn slice(&self, _tenant: usize, _seat: &Seat) -> Option<Span> {
        None
    }

    /// Until when, at least, what a tenant launched is to be off the GPU; `None` where it is not. Asked again whenever
    /// anything happens, and then.
    fn off_until(&mut self, _now: Time, _tenant: usize, _room: &Room) -> Option<Time> {
        None
    }

    /// When [`Control::off_until`] may change by itself. Asked after every tick.
    fn look_at(&self, _tenant: usize) -> Option<Time> {
        None
    }

    /// How often [`Control::on_tick`] is due.
    fn tick(&self) -> Option<Span> {
        None
    }

    /// The clock.
    fn on_tick(&mut self, _now: Time, _room: &Room) {}

    /// A tenant launched what it had asked for; it is in `last`.
    fn on_launch(&mut self, _now: Time, _tenant: usize, _room: &Room) {}

    /// A kernel of a tenant is done.
    fn on_done(&mut self, _now: Time, _tenant: usize, _room: &Room) {}
}

/// Wait for whatever happens next.
const HOLD: Verdict = Verdict::Wait { until: Time::NEVER };

fn go_if(go: bool) -> Verdict {
    if go { Verdict::Go } else { HOLD }
}

/// Those that are more important than a tenant.
fn above(room: &Room, tenant: usize) -> impl Iterator<Item = &Seat> {
    let rank = room.seats[tenant].rank();
    room.seats.iter().filter(move |seat| seat.rank() < rank)
}

/// Nobody interferes.
pub(super) fn none() -> Box<dyn Control> {
    Box::new(unmanaged::Unmanaged { mode: None })
}

/// The policy of this name, for this scenario.
pub(super) fn by_name(name: &str, scenario: &Scenario, config: SharingConfig) -> Option<Box<dyn Control>> {
    let tenants = scenario.tenants.len();
    Some(match name {
        "weft" => Box::new(weft::Weft::new(scenario, false, Controller::Weft, config)),
        "weft-time" => Box::new(weft::Weft::new(scenario, true, Controller::Weft, config)),
        "default" => none(),
        "mps" => Box::new(unmanaged::Unmanaged { mode: Some(Mode::Concurrent) }),
        "priority" => Box::new(strict::Strict),
        "quota" => Box::new(quota::Quota::new(tenants)),
        "fikit" => Box::new(fikit::Fikit::default()),
        "dilu" => Box::new(dilu::Dilu::new(tenants)),
        "fast-gshare" => Box::new(fast_gshare::FastGShare::new(tenants)),
        "tgs" => Box::new(weft::Weft::new(scenario, false, Controller::Tgs, config)),
        "orion" => Box::new(orion::Orion),
        "orion-like" => Box::new(weft::Weft::new(scenario, false, Controller::OrionLike, config)),
        "xsched" => Box::new(xsched::XSched),
        "gpreempt" => Box::new(gpreempt::GPreempt),
        _ => return None,
    })
}
