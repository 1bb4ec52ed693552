//! After Dilu (ASPLOS 2025, resourcing-complementary scheduling): requests within 1, limits within 1.5, and the GPU
//! whose requests leave least first. An LLM that fits on no GPU in use is divided in two halves on GPUs in use of one
//! node, each of which has room for its whole share: one half runs while the other waits.

use super::{Policy, fit};
use crate::GpuId;
use crate::placement::{Demand, Need, Piece, Plan, Reason, Refusal, Room, State};

/// Best fit by request, LLMs in halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dilu;

impl Policy for Dilu {
    fn place(&self, state: &State, demand: &Demand) -> Result<Plan, Refusal> {
        let request = |_: GpuId, room: &Room| Some(room.request);
        if demand.divisible()
            && fit::part(state, state.rooms(), demand, request).is_none()
            && let Some(pieces) = halve(state, demand)
        {
            return Ok(Plan { moves: Vec::new(), pieces });
        }
        fit::place(state, demand, request)
    }
}

/// Two halves on the node with the two GPUs that have the least memory free.
fn halve(state: &State, demand: &Demand) -> Option<Vec<Piece>> {
    let Need { request, limit, memory, .. } = demand.need;
    let smaller = Need::new(request / 2, limit / 2, memory / 2);
    let larger = Need::new(request - request / 2, limit - limit / 2, memory - memory / 2);
    let room_for = Need { request, limit, ..larger };
    let mut best: Option<(u64, [GpuId; 2])> = None;
    for gpus in state.nodes() {
        let free = |gpu: &GpuId| state.rooms()[gpu.index()];
        let able = |gpu: &GpuId| free(gpu).in_use() && free(gpu).fits(&room_for) && state.allows(demand, *gpu);
        let mut able: Vec<GpuId> = gpus.iter().copied().filter(able).collect();
        able.sort_by_key(|gpu| (free(gpu).memory, *gpu));
        if let [first, second, ..] = able[..] {
            let left = free(&first).memory + free(&second).memory;
            best = best.filter(|(least, _)| *least <= left).or(Some((left, [first, second])));
        }
    }
    let (_, [first, second]) = best?;
    // A model of one byte has nothing to divide.
    let piece = |gpu, need| Piece { gpu, need, start: 0, reason: Reason::Fragment };
    (smaller.memory > 0).then(|| vec![piece(first, larger), piece(second, smaller)])
}
