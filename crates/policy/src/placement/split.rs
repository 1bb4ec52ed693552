//! LLMs over fragments of GPUs.
//!
//! Memory beside large workers is of use to little else, so an LLM goes there first: to one GPU if it has room, else to
//! a few of one node. Of all ways the one is taken that leaves rooms worth the most (`worth`): it uses up fragments that
//! are good for nothing else and leaves alone those where a small worker would fit. Where fragments beside large workers
//! do not suffice, others in use help out, and an idle GPU is the last resort.

use super::sketch::Sketch;
use super::worth::{Layers, PIECE_MIN, Worth};
use super::{Demand, Need, Piece, Reason, Room};
use crate::GpuId;
use std::cmp::Reverse;

/// An LLM lies on so many GPUs at most: requests go through all of them one after the other.
pub const PIECES_MAX: usize = 8;
/// Layers are not divided finer than this.
const GRAIN: u64 = 1 << 20;
/// Fragments of one node that are tried in all ways, at most: the largest.
const FRAGMENTS_MAX: usize = 12;

/// How good a way to place an LLM is; less is better. First whether it takes an idle GPU (2), one without a large worker
/// (1) or neither, then what it costs.
type Score = (u8, u64, u64);

/// A GPU that could hold some of an LLM.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    /// Bytes.
    capacity: u64,
    gpu: GpuId,
    /// Whether no large worker is there.
    outside: bool,
    /// What the room is worth when the fragment is filled.
    filled: u64,
    /// What it loses in worth by that.
    cost: u64,
}

/// How much of an LLM fits here, with shares to match.
#[inline]
fn capacity(layers: &Layers, room: &Room, need: &Need) -> u64 {
    if room.fits(need) {
        return need.memory;
    }
    room.memory.min(layers.held(room)).min(need.memory) / GRAIN * GRAIN
}

/// Where an LLM goes. `open`: whether an idle GPU may be used. `None`: it fits nowhere.
pub(super) fn place(sketch: &Sketch, demand: &Demand, open: bool, barred: &[GpuId]) -> Option<Vec<Piece>> {
    let need = &demand.need;
    let least = PIECE_MIN.min(need.memory);
    let mut search = Search::new(sketch, need);
    for gpus in sketch.state.nodes() {
        search.fragments.clear();
        let mut idle = None;
        for gpu in gpus {
            let room = &sketch.rooms()[gpu.index()];
            let capacity = capacity(&search.layers, room, need);
            if capacity < least || barred.contains(gpu) || !sketch.state.allows(demand, *gpu) {
                continue;
            }
            match room.idle() {
                // One idle GPU is as good as the next.
                true => idle = idle.or(Some((capacity, *gpu))),
                false => search.offer(*gpu, capacity),
            }
        }
        search.node();
        if let Some(idle) = idle.filter(|_| open) {
            search.open(idle);
        }
    }
    let (_, parts) = search.best?;
    Some(pieces(sketch, need, &parts))
}

/// What chosen fragments come to.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    cost: u64,
    /// The cost of one of them; no way over them costs less than the others, as only one is not filled.
    dearest: u64,
    outside: bool,
}

impl Held {
    fn and(&self, fragment: &Fragment) -> Held {
        Held {
            bytes: self.bytes + fragment.capacity,
            cost: self.cost + fragment.cost,
            dearest: self.dearest.max(fragment.cost),
            outside: self.outside || fragment.outside,
        }
    }
}

/// Looks through the nodes, one after the other.
struct Search<'a> {
    rooms: &'a [Room],
    worth: &'a Worth,
    need: &'a Need,
    layers: Layers,
    /// Of the node that is looked at.
    fragments: Vec<Fragment>,
    /// The ones that would be used, by index.
    chosen: Vec<usize>,
    best: Option<(Score, Vec<(GpuId, u64)>)>,
}

impl<'a> Search<'a> {
    fn new(sketch: &'a Sketch, need: &'a Need) -> Search<'a> {
        let layers = Layers::new(u64::from(need.request), u64::from(need.limit), need.memory);
        let (fragments, chosen) = (Vec::new(), Vec::new());
        Search { rooms: sketch.rooms(), worth: sketch.worth(), need, layers, fragments, chosen, best: None }
    }

    fn offer(&mut self, gpu: GpuId, capacity: u64) {
        let outside = self.rooms[gpu.index()].large == 0;
        self.fragments.push(Fragment { capacity, gpu, outside, filled: 0, cost: 0 });
    }

    fn is_better(&self, score: Score) -> bool {
        self.best.as_ref().is_none_or(|(least, _)| score < *least)
    }

    /// All ways over the GPUs in use of this node.
    fn node(&mut self) {
        self.fragments.sort_unstable_by_key(|fragment| (Reverse(fragment.capacity), fragment.gpu));
        self.fragments.truncate(FRAGMENTS_MAX);
        let most: u64 = self.fragments.iter().take(PIECES_MAX).map(|fragment| fragment.capacity).sum();
        if most < self.need.memory {
            return;
        }
        for fragment in &mut self.fragments {
            let room = &self.rooms[fragment.gpu.index()];
            fragment.filled = self.worth.of(&self.layers.taken(room, fragment.capacity));
            fragment.cost = self.worth.of(room).saturating_sub(fragment.filled);
        }
        self.extend(0, Held::default());
    }

    /// All ways that begin with those chosen.
    fn extend(&mut self, from: usize, held: Held) {
        if held.bytes >= self.need.memory {
            return self.weigh(held.bytes - self.need.memory, held);
        }
        let further = (PIECES_MAX - self.chosen.len()) as u64;
        for index in from..self.fragments.len() {
            let fragment = self.fragments[index];
            // The rest are no larger.
            if held.bytes + further * fragment.capacity < self.need.memory {
                return;
            }
            let next = held.and(&fragment);
            if self.is_better((u8::from(next.outside), next.cost - next.dearest, 0)) {
                self.chosen.push(index);
                self.extend(index + 1, next);
                self.chosen.pop();
            }
        }
    }

    /// The chosen hold the LLM and `left` more: which of them is not filled?
    fn weigh(&mut self, left: u64, held: Held) {
        // Where one of them is not needed, the way without it is looked at as well.
        if self.chosen.iter().any(|index| self.fragments[*index].capacity <= left) {
            return;
        }
        for at in (0..self.chosen.len()).rev() {
            let Fragment { capacity, gpu, filled, .. } = self.fragments[self.chosen[at]];
            let partly = self.layers.taken(&self.rooms[gpu.index()], capacity - left);
            let kept = self.worth.of(&partly).saturating_sub(filled);
            let score = (u8::from(held.outside), held.cost.saturating_sub(kept), left);
            if self.is_better(score) {
                let others = self.chosen.iter().filter(|index| **index != self.chosen[at]);
                let order = others.chain([&self.chosen[at]]).map(|index| &self.fragments[*index]);
                let parts = fill(order.map(|fragment| (fragment.capacity, fragment.gpu)), self.need.memory);
                self.best = Some((score, parts));
            }
        }
    }

    /// The largest fragments beside large workers, and an idle GPU for the rest: the less that is, the sooner a large
    /// worker finds room beside it.
    fn open(&mut self, (capacity, gpu): (u64, GpuId)) {
        let beside = self.fragments.iter().filter(|fragment| !fragment.outside);
        let largest: Vec<(u64, GpuId)> =
            beside.take(PIECES_MAX - 1).map(|fragment| (fragment.capacity, fragment.gpu)).collect();
        let held: u64 = largest.iter().map(|(capacity, _)| capacity).sum();
        let rest = self.need.memory - held.min(self.need.memory);
        let score = (2, rest, 0);
        if capacity >= rest && self.is_better(score) {
            self.best = Some((score, fill(largest.into_iter().chain([(capacity, gpu)]), self.need.memory)));
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
