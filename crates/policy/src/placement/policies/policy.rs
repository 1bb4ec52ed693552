//! What every way to place instances answers.

use crate::placement::{Demand, Move, Plan, Refusal, Rules, State};

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
