//! Moves that leave rooms worth more.
//!
//! When an idle GPU had to be opened, memory lies idle elsewhere that nothing fits: a small worker took the shares beside
//! much memory, or layers fill memory where a small worker would fit. Who costs its GPUs the most is looked at first, and
//! moves where it costs less. That saves no GPU at once, but the next that would be opened.

use super::moves::leave;
use super::policies::beside::in_use;
use super::sketch::Sketch;
use super::worth::PIECE_MIN;
use super::{Piece, Room};
use crate::{GpuId, InstanceId};
use std::collections::BTreeMap;

/// Instances that are looked at for one decision, at least and at most.
const TRIES: [usize; 2] = [8, 64];
/// Each of them costs a walk over all GPUs in use, and these together so many steps.
const STEPS: usize = 1 << 14;

/// Moves instances where rooms are worth more afterwards. Nothing goes to GPUs that are `barred`.
pub(super) fn polish(sketch: &mut Sketch, barred: &[GpuId], moves_max: usize) {
    for id in dearest(sketch) {
        if sketch.moved() >= moves_max {
            return;
        }
        let instance = &sketch.state.instances()[&id];
        // Neighbours are those of before: who came meanwhile is not among them.
        if sketch.has_moved(id) || instance.demand.apart {
            continue;
        }
        let own: Vec<GpuId> = instance.pieces.iter().map(|piece| piece.gpu).chain(barred.iter().copied()).collect();
        let Some(to) = in_use(sketch, &instance.demand, &own) else { continue };
        let gained = |piece: &Piece| gain(sketch, piece.gpu, |room| leave(room, &piece.need));
        let gained: u64 = instance.pieces.iter().map(gained).sum();
        if gained >= loss(sketch, &to) + PIECE_MIN {
            sketch.begin(id);
            sketch.finish(to);
        }
    }
}

/// Those whose GPUs would be worth the most without them, beyond the memory that they take.
fn dearest(sketch: &Sketch) -> Vec<InstanceId> {
    let mut gains: BTreeMap<InstanceId, i64> = BTreeMap::new();
    for (index, gpu) in sketch.state.gpus().iter().enumerate() {
        for part in gpu.parts.iter().filter(|part| sketch.movable(part)) {
            let own = gain(sketch, GpuId::new(index), |room| leave(room, &part.need));
            *gains.entry(part.instance).or_default() += own as i64 - part.need.memory as i64;
        }
    }
    let mut order: Vec<(i64, InstanceId)> = gains.into_iter().map(|(id, gain)| (-gain, id)).collect();
    let tries = (STEPS / sketch.state.in_use().max(1)).clamp(TRIES[0], TRIES[1]);
    if order.len() > tries {
        order.select_nth_unstable(tries);
        order.truncate(tries);
    }
    order.sort_unstable();
    order.into_iter().map(|(_, id)| id).collect()
}

/// What a room gains in worth by a change.
#[inline]
fn gain(sketch: &Sketch, gpu: GpuId, change: impl FnOnce(&mut Room)) -> u64 {
    let room = &sketch.rooms()[gpu.index()];
    let mut after = *room;
    change(&mut after);
    sketch.worth().of(&after).saturating_sub(sketch.worth().of(room))
}

/// What rooms lose in worth by these pieces.
fn loss(sketch: &Sketch, to: &[Piece]) -> u64 {
    to.iter().map(|piece| sketch.worth().lost(&sketch.rooms()[piece.gpu.index()], &piece.need)).sum()
}
