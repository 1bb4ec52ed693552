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
