//! Ways to place instances by name, a file each.

mod policy;
mod fit;
pub(super) mod beside;
mod weft;
mod exclusive;
mod limit;
mod request;
mod dilu;

pub use policy::Policy;

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 6] = ["exclusive", "limit", "request", "dilu", "weft", "weft-moves"];

/// The policy of this name.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "exclusive" => Box::new(exclusive::Exclusive),
        "limit" => Box::new(limit::Limit),
        "request" => Box::new(request::Request),
        "dilu" => Box::new(dilu::Dilu),
        "weft" => Box::new(weft::Weft { moves: 0 }),
        "weft-moves" => Box::new(weft::Weft { moves: weft::MOVES_MAX }),
        _ => return None,
    })
}
