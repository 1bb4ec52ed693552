//! Few moves that keep GPUs idle.
//!
//! Every move is one instance that finds another place on GPUs that are in use already. A decision looks for so many
//! places at most, so it takes a bounded time.

use super::policies::beside::in_use;
use super::sketch::Sketch;
use super::{Demand, Move, Need, Part, Piece, Reason, Room, State, WHOLE};
use crate::{GpuId, InstanceId};

/// What a decision may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Instances that move, at most.
    pub(super) moves: usize,
    /// Places that are looked for, at most.
    pub(super) looks: usize,
}

/// GPUs that are tried for a part that is to be placed, and for one that makes room for it.
const TRIES: [usize; 2] = [16, 4];

/// A place for one part on a GPU that others leave, all of them for GPUs in use. `others` are parts that are placed
/// already.
pub(super) fn make_room(
    sketch: &mut Sketch,
    demand: &Demand,
    others: &[Piece],
    budget: &mut Budget,
) -> Option<Vec<Piece>> {
    let barred: Vec<GpuId> = others.iter().map(|piece| piece.gpu).collect();
    clear(sketch, demand, &barred, budget, &TRIES).map(|piece| vec![piece])
}

/// Moves that empty GPUs, those with the least on them first.
pub(super) fn tidy(state: &State, mut budget: Budget) -> Vec<Move> {
    let mut sketch = Sketch::new(state);
    let mut light: Vec<(u32, u64, GpuId)> = Vec::new();
    for (index, room) in state.rooms().iter().enumerate().filter(|(_, room)| room.in_use()) {
        let gpu = GpuId::new(index);
        if room.parts as usize <= budget.moves && state.gpus()[index].parts.iter().all(|part| sketch.movable(part)) {
            light.push((room.parts, u64::MAX - room.memory, gpu));
        }
    }
    light.sort_unstable();
    for (_, _, gpu) in light.into_iter().take(TRIES[0]) {
        let mark = sketch.mark();
        let parts = &state.gpus()[gpu.index()].parts;
        // One of them may have moved for another GPU, and others may have come.
        let same = sketch.rooms()[gpu.index()] == state.rooms()[gpu.index()];
        let leaving: Vec<InstanceId> = parts.iter().map(|part| part.instance).collect();
        let all = same && parts.iter().all(|part| sketch.movable(part));
        if !all || !send_away(&mut sketch, &leaving, &[gpu], &mut budget, &TRIES[1..]) {
            sketch.back_to(mark);
        }
    }
    sketch.into_moves()
}

/// Finds other places for these instances, one after the other.
fn send_away(
    sketch: &mut Sketch,
    leaving: &[InstanceId],
    barred: &[GpuId],
    budget: &mut Budget,
    tries: &[usize],
) -> bool {
    leaving.iter().enumerate().all(|(index, id)| {
        // It may have made room on another of its GPUs for one that left before it.
        if sketch.has_moved(*id) {
            return true;
        }
        if sketch.moved() + leaving.len() - index > budget.moves || budget.looks == 0 {
            return false;
        }
        budget.looks -= 1;
        let demand = &sketch.state.instances()[id].demand;
        // Neighbours are those of before: who came meanwhile is not among them.
        if demand.apart {
            return false;
        }
        sketch.begin(*id);
        let placed = in_use(sketch, demand, barred);
        let placed = placed.or_else(|| clear(sketch, demand, barred, budget, tries).map(|piece| vec![piece]));
        let found = placed.is_some();
        if let Some(pieces) = placed {
            sketch.finish(pieces);
        }
        found
    })
}

/// A place for a whole part on a GPU that others leave; `tries` says how many GPUs to try, and how many for each of
/// those that leave in their turn.
fn clear(
    sketch: &mut Sketch,
    demand: &Demand,
    barred: &[GpuId],
    budget: &mut Budget,
    tries: &[usize],
) -> Option<Piece> {
    let (most, further) = tries.split_first()?;
    if sketch.moved() >= budget.moves || budget.looks == 0 || demand.need.quota != WHOLE || demand.apart {
        return None;
    }
    for gpu in candidates(sketch, demand, barred, *most) {
        let leaving = fewest(sketch, gpu, &demand.need)?;
        let mark = sketch.mark();
        let barred: Vec<GpuId> = barred.iter().copied().chain([gpu]).collect();
        if send_away(sketch, &leaving, &barred, budget, further) {
            return Some(Piece { gpu, need: demand.need, start: 0, reason: Reason::Cleared });
        }
        sketch.back_to(mark);
    }
    None
}

/// GPUs where something has to leave for this to fit: those with the least memory to send away first.
fn candidates(sketch: &Sketch, demand: &Demand, barred: &[GpuId], most: usize) -> Vec<GpuId> {
    let mut found: Vec<(u64, GpuId)> = Vec::new();
    for (index, room) in sketch.rooms().iter().enumerate().filter(|(_, room)| room.in_use()) {
        let gpu = GpuId::new(index);
        let mut after = *room;
        for part in sketch.state.gpus()[index].parts.iter().filter(|part| sketch.movable(part)) {
            leave(&mut after, &part.need);
        }
        if after.fits(&demand.need) && !barred.contains(&gpu) && sketch.state.allows(demand, gpu) {
            let instance = |id: &InstanceId| sketch.state.instances()[id].demand.need.memory;
            let leaving = fewest(sketch, gpu, &demand.need).unwrap_or_default();
            found.push((leaving.iter().map(instance).sum(), gpu));
        }
    }
    if found.len() > most {
        found.select_nth_unstable(most);
        found.truncate(most);
    }
    found.sort_unstable();
    found.into_iter().map(|(_, gpu)| gpu).collect()
}

/// Who has to leave a GPU for this to fit, those with the least memory first.
fn fewest(sketch: &Sketch, gpu: GpuId, need: &Need) -> Option<Vec<InstanceId>> {
    let mut room = sketch.rooms()[gpu.index()];
    let mut parts: Vec<&Part> = sketch.state.gpus()[gpu.index()].parts.iter().collect();
    parts.retain(|part| sketch.movable(part));
    parts.sort_by_key(|part| part.need.memory);
    let mut leaving = Vec::new();
    for part in parts {
        if room.fits(need) {
            break;
        }
        leave(&mut room, &part.need);
        leaving.push(part.instance);
    }
    room.fits(need).then_some(leaving)
}

/// What is free once this has left.
#[inline]
pub(super) fn leave(room: &mut Room, need: &Need) {
    room.memory += need.memory;
    room.request += need.request;
    room.limit += need.limit;
}
