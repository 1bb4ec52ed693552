//! Static shares as large as a worker ever needs: the limits on a GPU stay within it.

use super::{Policy, fit};
use crate::placement::{Demand, Plan, Refusal, Rules, State, WHOLE};

/// Limits within 1, the GPU whose limits leave least first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit;

impl Policy for Limit {
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal> {
        fit::place(state, demand, |_, room| Some(room.limit))
    }

    fn rules(&self) -> Rules {
        Rules { limit: WHOLE }
    }
}
