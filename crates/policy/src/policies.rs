//! Policies by name, a file each.

mod clockwork;
mod deferred;
mod eager;
mod nexus;
mod shepherd;
mod static_split;
mod targets;
mod timeshare;
mod weft;

pub use clockwork::Clockwork;
pub use deferred::Deferred;
pub use eager::Eager;
pub use nexus::Nexus;
pub use shepherd::Shepherd;
pub use static_split::StaticSplit;
pub use timeshare::TimeShare;
pub use weft::Weft;

pub(crate) use targets::Targets;

use crate::Policy;

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 10] = [
    "weft",
    "deferred",
    "eager",
    "eager-timeout",
    "clockwork",
    "clockwork-10ms",
    "nexus",
    "shepherd",
    "static",
    "timeshare",
];

/// The policy of this name; `weft/SETTING` is one of Weft's settings alone.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "weft" => Box::new(Weft::default()),
        "deferred" => Box::new(Deferred::default()),
        "eager" => Box::new(Eager::window_drop()),
        "eager-timeout" => Box::new(Eager::timeout_drop()),
        "clockwork" => Box::new(Clockwork::just_in_time()),
        "clockwork-10ms" => Box::new(Clockwork::ahead()),
        "nexus" => Box::new(Nexus::default()),
        "shepherd" => Box::new(Shepherd),
        "static" => Box::new(StaticSplit::default()),
        "timeshare" => Box::new(TimeShare::default()),
        name => return Weft::alone(name.strip_prefix("weft/")?),
    })
}
