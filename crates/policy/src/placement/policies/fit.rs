//! What the policies share: every part of an instance on the GPU with the lowest score.

use crate::GpuId;
use crate::placement::explain::giga;
use crate::placement::{Demand, Piece, Plan, Reason, Refusal, Room, State, WHOLE};

/// Puts each part on a GPU of its own: the one in use with the lowest score, else the first idle one. `None` as a
/// score: not there.
pub(super) fn place<S: Ord>(
    state: &State,
    demand: &Demand,
    score: impl Fn(GpuId, &Room) -> Option<S>,
) -> Result<Plan, Refusal> {
    let mut pieces: Vec<Piece> = Vec::new();
    for _ in 0..demand.gpus {
        let taken = |gpu: GpuId| pieces.iter().any(|other: &Piece| other.gpu == gpu);
        let score = |gpu: GpuId, room: &Room| if taken(gpu) { None } else { score(gpu, room) };
        let piece = part(state, state.rooms(), demand, score);
        let piece = piece.or_else(|| open(state, state.rooms(), demand, &pieces));
        pieces.push(piece.ok_or_else(|| refusal(state, demand, pieces.len()))?);
    }
    Ok(Plan { moves: Vec::new(), pieces })
}

/// The GPU in use with room and the lowest score.
#[inline]
pub(super) fn part<S: Ord>(
    state: &State,
    rooms: &[Room],
    demand: &Demand,
    score: impl Fn(GpuId, &Room) -> Option<S>,
) -> Option<Piece> {
    let whole = demand.need.quota == WHOLE;
    let mut best: Option<(S, GpuId, u32)> = None;
    for (index, room) in rooms.iter().enumerate().filter(|(_, room)| room.in_use()) {
        let gpu = GpuId::new(index);
        let start = if whole { room.fits(&demand.need).then_some(0) } else { state.start(gpu, &demand.need) };
        let Some(start) = start else { continue };
        let Some(score) = score(gpu, room) else { continue };
        if best.as_ref().is_none_or(|(least, ..)| score < *least) && state.allows(demand, gpu) {
            best = Some((score, gpu, start));
        }
    }
    let (_, gpu, start) = best?;
    Some(Piece { gpu, need: demand.need, start, reason: Reason::Fits })
}

/// The first idle GPU that has room and no part of this instance.
pub(super) fn open(state: &State, rooms: &[Room], demand: &Demand, others: &[Piece]) -> Option<Piece> {
    let free = |gpu: GpuId| others.iter().all(|other| other.gpu != gpu) && state.allows(demand, gpu);
    let idle = |(index, room): (usize, &Room)| {
        let gpu = GpuId::new(index);
        (room.idle() && room.fits(&demand.need) && free(gpu)).then_some(gpu)
    };
    let gpu = rooms.iter().enumerate().find_map(idle)?;
    Some(Piece { gpu, need: demand.need, start: 0, reason: Reason::Opens })
}

/// Why there is no room for an instance of which so many parts had some.
pub(super) fn refusal(state: &State, demand: &Demand, placed: usize) -> Refusal {
    let labelled = |gpu: &&crate::placement::Gpu| demand.labels.iter().all(|label| gpu.labels.contains(label));
    let alive = || state.gpus().iter().filter(|gpu| gpu.alive);
    let largest = alive().filter(labelled).map(|gpu| gpu.memory).max();
    let (service, need) = (&demand.service, &demand.need);
    let reason = match largest {
        None if alive().next().is_none() => "there is no GPU: start a node".to_owned(),
        None => format!("no GPU has the labels {}: label one, or ask for fewer", demand.labels.join(", ")),
        Some(memory) if memory < need.memory => format!(
            "{service} needs {} GB on a GPU and the largest has {} GB: ask for less, or for more GPUs",
            giga(need.memory),
            giga(memory)
        ),
        Some(_) => format!(
            "{service} needs {} GPUs with {} GB and a share of {:.2} free, and there is room on {placed}: stop \
             something, or add GPUs",
            demand.gpus,
            giga(need.memory),
            f64::from(need.request) / f64::from(WHOLE)
        ),
    };
    Refusal { reason }
}
