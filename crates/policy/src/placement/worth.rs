//! What is free on a GPU, and how much of it will be of use.
//!
//! Memory is what runs out; shares only decide whether it can be filled. An LLM's layers fill any amount as long as there
//! are shares to match. A small worker takes large shares for its memory, so where it goes decides what is lost beside it.
//! How large workers are is not assumed but taken from those that run.

use super::state::is_large;
use super::{Kind, Need, Room, State, WHOLE};

/// A smaller piece of an LLM is not worth a hop, so less memory than this is worth nothing to one.
pub(super) const PIECE_MIN: u64 = 1 << 30;
/// Small workers that are imagined on one GPU, at most.
const SMALL_MAX: usize = 4;

/// What running workers say about those to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    small: Option<Small>,
    layers: Layers,
    /// Whether any LLM runs, whose layers fill what is left.
    pub(super) has_llms: bool,
}

/// Workers that cannot be divided and leave room for another like them.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// Their mean, in thousandths.
    request: u32,
    /// Their mean, in thousandths.
    limit: u32,
    /// Bytes of the smallest.
    least: u64,
    /// Bytes of the largest.
    most: u64,
}

/// Bytes of an LLM for each thousandth of share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layers {
    request: u64,
    limit: u64,
}

impl Layers {
    pub(super) fn new(request: u64, limit: u64, memory: u64) -> Layers {
        let by = |share: u64| memory.checked_div(share).unwrap_or(u64::MAX);
        Layers { request: by(request), limit: by(limit) }
    }

    /// Bytes that the shares of a room would do for.
    #[inline]
    pub(super) fn held(&self, room: &Room) -> u64 {
        let request = self.request.saturating_mul(u64::from(room.request));
        request.min(self.limit.saturating_mul(u64::from(room.limit)))
    }

    /// A room with so many bytes of layers in it.
    #[inline]
    pub(super) fn taken(&self, room: &Room, bytes: u64) -> Room {
        let share = |bytes_each: u64| u32::try_from(bytes.div_ceil(bytes_each.max(1))).unwrap_or(u32::MAX);
        Room {
            memory: room.memory - bytes,
            request: room.request.saturating_sub(share(self.request)),
            limit: room.limit.saturating_sub(share(self.limit)),
            ..*room
        }
    }
}

/// A room once this is in it as well.
#[inline]
fn beside(room: &Room, need: &Need) -> Room {
    Room {
        memory: room.memory - need.memory,
        request: room.request - need.request,
        limit: room.limit - need.limit,
        ..*room
    }
}

impl Worth {
    pub(super) fn new(state: &State) -> Worth {
        let (mut count, mut small, mut llms) = (0, [0; 2], [0; 3]);
        let (mut least, mut most) = (u64::MAX, 0);
        for gpu in state.gpus() {
            for part in gpu.parts.iter().filter(|part| part.need.quota == WHOLE) {
                let Need { request, limit, memory, .. } = part.need;
                if part.kind == Kind::Llm {
                    llms = [llms[0] + u64::from(request), llms[1] + u64::from(limit), llms[2] + memory];
                } else if !is_large(&part.need, gpu.memory) {
                    count += 1;
                    small = [small[0] + u64::from(request), small[1] + u64::from(limit)];
                    (least, most) = (least.min(memory), most.max(memory));
                }
            }
        }
        let mean = |sum: u64| (sum / count) as u32;
        let small = (count > 0).then(|| Small { request: mean(small[0]), limit: mean(small[1]), least, most });
        Worth { small, layers: Layers::new(llms[0], llms[1], llms[2]), has_llms: llms[2] > 0 }
    }

    /// What a room loses in worth by this.
    #[inline]
    pub(super) fn lost(&self, room: &Room, need: &Need) -> u64 {
        self.of(room).saturating_sub(self.of(&beside(room, need)))
    }

    /// Bytes of this room that an LLM's layers, or a few small workers and then layers, would fill. A small worker counts
    /// for more than its memory, as layers would fill that as well but it not theirs.
    #[inline]
    pub(super) fn of(&self, room: &Room) -> u64 {
        let layers = |room: &Room| self.layers.held(room).min(room.memory).saturating_sub(PIECE_MIN);
        let mut best = layers(room);
        let Some(small) = self.small else { return best };
        let (mut left, mut before) = (*room, 0);
        for _ in 0..SMALL_MAX {
            if left.memory < small.least || left.request < small.request || left.limit < small.limit {
                break;
            }
            let own = left.memory.min(small.most);
            left.memory -= own;
            left.request -= small.request;
            left.limit -= small.limit;
            before += own + PIECE_MIN;
            best = best.max(before + layers(&left));
        }
        best
    }
}
