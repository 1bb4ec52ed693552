//! What people do today: a GPU for every part.

use super::{Policy, fit};
use crate::placement::{Demand, Piece, Plan, Reason, Refusal, Room, State};

/// Shares no GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exclusive;

impl Policy for Exclusive {
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal> {
        let plan = fit::place(state, demand, |_, _: &Room| None::<()>)?;
        let alone = |piece: Piece| Piece { reason: Reason::Alone, ..piece };
        Ok(Plan { pieces: plan.pieces.into_iter().map(alone).collect(), ..plan })
    }
}
