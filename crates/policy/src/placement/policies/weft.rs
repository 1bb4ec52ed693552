//! Weft's own.
//!
//! A *large* part takes more than half of a GPU's memory, so each needs a GPU of its own, and their number is what no
//! policy gets below. Large parts go where the least memory is left over, and to a new GPU in a node whose large parts
//! leave about as much; smaller ones beside large ones, where what is left loses the least (`worth`) or, where no LLM would
//! fill that, is the least; LLMs over fragments beside large ones (`split`). What fits beside none is packed tightly
//! elsewhere. Among equals a training job that has neighbours already is disturbed rather than another: a job is as slow
//! as its slowest worker.
//!
//! With moves, an idle GPU is opened only when moving a few instances cannot make room; then a few move where they waste
//! less (`polish`). GPUs that a few moves empty are emptied. Training never moves.

use super::beside::in_use;
use super::{Policy, fit};
use crate::GpuId;
use crate::placement::polish::polish;
use crate::placement::sketch::Sketch;
use crate::placement::state::is_large;
use crate::placement::{Demand, Gpu, Move, Piece, Plan, Reason, Refusal, State, moves, split};

/// Instances that move for one decision, at most.
pub(super) const MOVES_MAX: usize = 4;
/// Places that are looked for to make room, at most; each costs a walk over all GPUs.
const LOOKS_MAX: usize = 24;
/// Nodes are not alike whose large parts leave memory that differs by more than this part of a GPU's.
const UNLIKE: u64 = 10;

/// Fills what large parts leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weft {
    /// Instances that may move for one decision.
    pub(super) moves: usize,
}

impl Weft {
    fn budget(&self) -> moves::Budget {
        moves::Budget { moves: self.moves, looks: LOOKS_MAX }
    }
}

impl Policy for Weft {
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal> {
        let mut sketch = Sketch::new(state);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut budget = self.budget();
        let parts = if demand.divisible() { 1 } else { demand.gpus };
        for part in 0..parts {
            let barred: Vec<GpuId> = pieces.iter().map(|piece| piece.gpu).collect();
            let placed = in_use(&sketch, demand, &barred);
            let placed = placed.or_else(|| moves::make_room(&mut sketch, demand, &pieces, &mut budget));
            let placed = placed.or_else(|| open(&sketch, demand, &pieces));
            let placed = placed.ok_or_else(|| fit::refusal(state, demand, part))?;
            sketch.add(&placed);
            pieces.extend(placed);
        }
        if self.moves > 0 && pieces.iter().any(|piece| piece.reason == Reason::Opens) {
            // Who stays off its own service must not find it there.
            let barred: Vec<GpuId> = pieces.iter().map(|piece| piece.gpu).filter(|_| demand.apart).collect();
            polish(&mut sketch, &barred, self.moves);
        }
        Ok(Plan { moves: sketch.into_moves(), pieces })
    }

    fn moves(&self) -> usize {
        self.moves
    }

    fn tidy(&self, state: &State) -> Vec<Move> {
        moves::tidy(state, self.budget())
    }
}

/// The same with an idle GPU.
fn open(sketch: &Sketch, demand: &Demand, others: &[Piece]) -> Option<Vec<Piece>> {
    match demand.divisible() {
        true => split::place(sketch, demand, true, &[]),
        false => open_alike(sketch, demand, others).map(|piece| vec![piece]),
    }
}

/// An idle GPU for one part. Large ones go to the node whose large parts leave about as much memory as this one will: what
/// is left adds up to room for LLMs in some nodes, where it would be too little for one in each. Without such a node it is
/// one that has no large part yet.
fn open_alike(sketch: &Sketch, demand: &Demand, others: &[Piece]) -> Option<Piece> {
    let (state, need) = (sketch.state, &demand.need);
    let taken = |gpu: GpuId| others.iter().any(|other| other.gpu == gpu);
    let mut best: Option<(u64, GpuId)> = None;
    for gpus in state.nodes() {
        let able = |gpu: &GpuId| {
            let room = &sketch.rooms()[gpu.index()];
            room.idle() && room.fits(need) && !taken(*gpu) && state.allows(demand, *gpu)
        };
        let Some(gpu) = gpus.iter().copied().find(able) else { continue };
        let memory = state.gpus()[gpu.index()].memory;
        if !is_large(need, memory) {
            return Some(Piece { gpu, need: *need, start: 0, reason: Reason::Opens });
        }
        let left = gpus.iter().filter_map(|gpu| match taken(*gpu) {
            true => Some(state.gpus()[gpu.index()].memory - need.memory),
            false => left_by_large(&state.gpus()[gpu.index()]),
        });
        let (count, sum) = left.fold((0, 0), |(count, sum), left| (count + 1, sum + left));
        let unlike = sum.checked_div(count).map_or(memory / UNLIKE, |mean: u64| mean.abs_diff(memory - need.memory));
        if best.is_none_or(|(least, _)| unlike < least) {
            best = Some((unlike, gpu));
        }
    }
    best.map(|(_, gpu)| Piece { gpu, need: *need, start: 0, reason: Reason::Opens })
}

/// Memory that a large part leaves on its GPU, if there is one.
fn left_by_large(gpu: &Gpu) -> Option<u64> {
    let large = gpu.parts.iter().find(|part| is_large(&part.need, gpu.memory))?;
    Some(gpu.memory - large.need.memory)
}
