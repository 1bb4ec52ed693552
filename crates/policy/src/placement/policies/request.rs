//! Static shares as small as a worker can do with: the requests on a GPU stay within it and limits do not count.

use super::{Policy, fit};
use crate::placement::{Demand, Plan, Refusal, Rules, State};

/// Requests within 1, the GPU whose requests leave least first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request;

impl Policy for Request {
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal> {
        fit::place(state, demand, |_, room| Some(room.request))
    }

    fn rules(&self) -> Rules {
        Rules::BY_REQUEST
    }
}
