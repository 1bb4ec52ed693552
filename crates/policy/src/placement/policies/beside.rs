//! A place among the GPUs in use.

use super::fit;
use crate::GpuId;
use crate::placement::sketch::Sketch;
use crate::placement::state::is_large;
use crate::placement::{Demand, Kind, Piece, Reason, Room, State, WHOLE, split};

/// Where an LLM or one part of another instance goes among the GPUs in use, but for those `barred`.
pub(in crate::placement) fn in_use(sketch: &Sketch, demand: &Demand, barred: &[GpuId]) -> Option<Vec<Piece>> {
    if demand.divisible() {
        return split::place(sketch, demand, false, barred);
    }
    let state = sketch.state;
    // Without LLMs nobody fills what is left, and what runs for a part of the time takes what others leave in theirs.
    let by_worth = demand.need.quota == WHOLE && demand.kind != Kind::Training && sketch.worth().has_llms;
    let score = |gpu: GpuId, room: &Room| {
        if barred.contains(&gpu) {
            return None;
        }
        if is_large(&demand.need, state.gpus()[gpu.index()].memory) {
            return Some((false, 0, room.memory));
        }
        let lost = if by_worth { sketch.worth().lost(room, &demand.need) } else { 0 };
        Some((room.large == 0, lost, room.memory))
    };
    let mut piece = fit::part(state, sketch.rooms(), demand, score)?;
    if demand.kind == Kind::Training {
        let neighbour = state.gpus()[piece.gpu.index()].parts.first().map(|part| part.instance);
        let reason = neighbour.map_or(Reason::Fits, Reason::Complements);
        return Some(vec![Piece { reason, ..piece }]);
    }
    let best = score(piece.gpu, &sketch.rooms()[piece.gpu.index()]);
    if best.is_some_and(|(alone, ..)| !alone) && !is_disturbed(state, piece.gpu) {
        let equal = |gpu: GpuId, room: &Room| (score(gpu, room) == best && is_disturbed(state, gpu)).then_some(());
        piece = fit::part(state, sketch.rooms(), demand, equal).unwrap_or(piece);
    }
    let reason = state.training_on(piece.gpu).map_or(Reason::Fits, Reason::Complements);
    Some(vec![Piece { reason, ..piece }])
}

/// Whether the training job on a GPU shares one of its GPUs already.
fn is_disturbed(state: &State, gpu: GpuId) -> bool {
    let job = state.training_on(gpu).and_then(|job| state.instances().get(&job));
    job.is_some_and(|job| job.pieces.iter().any(|piece| state.rooms()[piece.gpu.index()].parts > 1))
}
