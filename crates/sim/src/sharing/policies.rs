//! Ways to share a GPU by name, a file each.

mod control;
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
use super::scenario::Scenario;
use policy::sharing::{Controller, SharingConfig};

pub use control::Control;
pub(super) use control::Verdict;
use weft::How;

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 15] = [
    "weft",
    "weft-time",
    "weft-space",
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

/// Nobody interferes.
pub(super) fn none() -> Box<dyn Control> {
    Box::new(unmanaged::Unmanaged { mode: None, cap: None })
}

/// The policy of this name, for this scenario.
pub(super) fn by_name(name: &str, scenario: &Scenario, config: SharingConfig) -> Option<Box<dyn Control>> {
    let tenants = scenario.tenants.len();
    Some(match name {
        "weft" => Box::new(weft::Weft::new(scenario, How::Gate, Controller::Weft, config)),
        "weft-time" => Box::new(weft::Weft::new(scenario, How::Temporal, Controller::Weft, config)),
        "weft-space" => Box::new(weft::Weft::new(scenario, How::Spatial, Controller::Weft, config)),
        "default" => none(),
        "mps" => Box::new(unmanaged::Unmanaged { mode: Some(Mode::Concurrent), cap: None }),
        "priority" => Box::new(strict::Strict),
        "quota" => Box::new(quota::Quota::new(tenants)),
        "fikit" => Box::new(fikit::Fikit::default()),
        "dilu" => Box::new(dilu::Dilu::new(tenants)),
        "fast-gshare" => Box::new(fast_gshare::FastGShare::new(tenants)),
        "tgs" => Box::new(weft::Weft::new(scenario, How::Gate, Controller::Tgs, config)),
        "orion" => Box::new(orion::Orion),
        "orion-like" => Box::new(weft::Weft::new(scenario, How::Gate, Controller::OrionLike, config)),
        "xsched" => Box::new(xsched::XSched),
        "gpreempt" => Box::new(gpreempt::GPreempt),
        // Not in the list, as it is one for each number: as `weft bench sharing` calls its setting.
        other => {
            let percent: u32 = other.strip_prefix("mps-sms-")?.parse().ok().filter(|part| (1..=100).contains(part))?;
            Box::new(unmanaged::Unmanaged { mode: Some(Mode::Spatial), cap: Some(10 * percent) })
        }
    })
}
