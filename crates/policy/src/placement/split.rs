//! LLMs over fragments of GPUs.
//!
//! Memory beside large workers is of use to little else, so an LLM goes there first: to one GPU if it has room, else to
//! a few of one node. Where a node's fragments do not suffice, they take what they can and one more GPU takes the rest;
//! the less that is, the sooner a large worker finds room beside it.

use super::sketch::Sketch;
use super::{Demand, Need, Piece, Reason, Room};
use crate::GpuId;

/// An LLM lies on so many GPUs at most: requests go through all of them one after the other.
pub const PIECES_MAX: usize = 4;
/// Layers are not divided finer than this.
const GRAIN: u64 = 1 << 20;
/// A smaller piece is not worth a hop.
const PIECE_MIN: u64 = 1 << 30;

/// How good a way to place an LLM is; less is better.
type Score = (u8, u64, u64);

/// How much of an LLM's memory a GPU could hold for each thousandth of share that is free.
struct PerShare {
    request: u64,
    limit: u64,
}

impl PerShare {
    fn new(need: &Need) -> PerShare {
        let by = |all: u32| need.memory.checked_div(u64::from(all)).unwrap_or(u64::MAX);
        PerShare { request: by(need.request), limit: by(need.limit) }
    }

    /// How much of it fits here, with shares to match.
    #[inline]
    fn capacity(&self, room: &Room, need: &Need) -> u64 {
        if room.fits(need) {
            return need.memory;
        }
        let request = self.request.saturating_mul(u64::from(room.request));
        let limit = self.limit.saturating_mul(u64::from(room.limit));
        room.memory.min(request).min(limit).min(need.memory) / GRAIN * GRAIN
    }
}

/// Where an LLM goes. `open`: whether an idle GPU may be used. `None`: it fits nowhere.
pub(super) fn place(sketch: &Sketch, demand: &Demand, open: bool, barred: &[GpuId]) -> Option<Vec<Piece>> {
    let per_share = PerShare::new(&demand.need);
    let least = PIECE_MIN.min(demand.need.memory);
    let mut best: Option<(Score, Vec<(GpuId, u64)>)> = None;
    let mut fragments: Vec<(u64, GpuId)> = Vec::new();
    let mut others: Vec<(bool, u64, GpuId)> = Vec::new();
    for gpus in sketch.state.nodes() {
        fragments.clear();
        others.clear();
        for gpu in gpus {
            let room = &sketch.rooms()[gpu.index()];
            let capacity = per_share.capacity(room, &demand.need);
            if capacity < least || barred.contains(gpu) || !sketch.state.allows(demand, *gpu) {
                continue;
            }
            match room.idle() {
                // One idle GPU is as good as the next.
                true if open && others.iter().all(|(idle, ..)| !idle) => others.push((true, capacity, *gpu)),
                true => {}
                false if room.large > 0 => fragments.push((capacity, *gpu)),
                false => others.push((false, capacity, *gpu)),
            }
        }
        fragments.sort_unstable();
        consider(&fragments, &others, sketch.rooms(), demand.need.memory, &mut best);
    }
    let (_, parts) = best?;
    Some(pieces(sketch, &demand.need, &parts))
}

/// The best way over the fragments of one node, smallest first.
fn consider(
    fragments: &[(u64, GpuId)],
    others: &[(bool, u64, GpuId)],
    rooms: &[Room],
    memory: u64,
    best: &mut Option<(Score, Vec<(GpuId, u64)>)>,
) {
    let better = |score: Score, best: &Option<(Score, _)>| best.as_ref().is_none_or(|(least, _)| score < *least);
    // Few pieces first, then the fragments that are left least of.
    for count in 1..=PIECES_MAX.min(fragments.len()) {
        let sum = |window: &[(u64, GpuId)]| window.iter().map(|(capacity, _)| capacity).sum::<u64>();
        let Some(window) = fragments.windows(count).find(|window| sum(window) >= memory) else { continue };
        let score = (0, count as u64, sum(window) - memory);
        if better(score, best) {
            *best = Some((score, fill(window.iter().copied(), memory)));
        }
        return;
    }
    let largest = || fragments.iter().rev().take(PIECES_MAX - 1).copied();
    let held: u64 = largest().map(|(capacity, _)| capacity).sum();
    let rest = memory - held.min(memory);
    for (idle, capacity, gpu) in others.iter().filter(|(_, capacity, _)| *capacity >= rest) {
        let score = (1 + u8::from(*idle), rest, u64::MAX - rooms[gpu.index()].memory);
        if better(score, best) {
            *best = Some((score, fill(largest().chain([(*capacity, *gpu)]), memory)));
        }
    }
}

/// Takes from each in turn what is still missing.
fn fill(from: impl Iterator<Item = (u64, GpuId)>, memory: u64) -> Vec<(GpuId, u64)> {
    let mut missing = memory;
    let mut parts = Vec::new();
    for (capacity, gpu) in from {
        let taken = capacity.min(missing);
        missing -= taken;
        if taken > 0 {
            parts.push((gpu, taken));
        }
    }
    parts
}

/// Pieces of so much memory each, with shares in proportion. Their sum is exactly the need: what is rounded away from
/// one is in the next.
fn pieces(sketch: &Sketch, need: &Need, parts: &[(GpuId, u64)]) -> Vec<Piece> {
    let portion = |of: u32, memory: u64| (u128::from(of) * u128::from(memory) / u128::from(need.memory)) as u32;
    let mut before = 0;
    let mut out = Vec::new();
    for (gpu, memory) in parts {
        let share = |of: u32| portion(of, before + memory) - portion(of, before);
        let own = Need::new(share(need.request), share(need.limit), *memory);
        let room = &sketch.rooms()[gpu.index()];
        let reason = match room {
            _ if !room.in_use() => Reason::Opens,
            _ if parts.len() > 1 => Reason::Fragment,
            _ => Reason::Fits,
        };
        out.push(Piece { gpu: *gpu, need: own, start: 0, reason });
        before += memory;
    }
    out
}
