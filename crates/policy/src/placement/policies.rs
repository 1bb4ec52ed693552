//! Ways to place instances by name, a file each.

mod fit;
mod weft;
mod exclusive;
mod limit;
mod request;
mod dilu;

pub(super) use weft::in_use;

use super::{Demand, Move, Plan, Refusal, Rules, State};

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 6] = ["exclusive", "limit", "request", "dilu", "weft", "weft-moves"];

/// Decides where instances go.
pub trait Policy {
    /// Where a new instance goes, and who moves for it.
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal>;

    /// Who moves after an instance has ended, so that whole GPUs become idle.
    fn tidy(&self, _state: &State) -> Vec<Move> {
        Vec::new()
    }

    /// Instances that move for one decision, at most. Where it is 0, nothing is ever tidied up.
    fn moves(&self) -> usize {
        0
    }

    /// What may be on a GPU together under this policy.
    fn rules(&self) -> Rules {
        Rules::SHARED
    }
}

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
