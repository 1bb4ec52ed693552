//! A state to plan on: what would be free, had some instances moved already.
//!
//! Changes are noted and can be taken back, so a plan that comes to nothing leaves no trace. Instances that run for a
//! part of the time stay where they are.

use super::state::is_large;
use super::worth::Worth;
use super::{Kind, Move, Need, Part, Piece, Room, State, WHOLE};
use crate::{GpuId, InstanceId};
use std::borrow::Cow;
use std::cell::OnceCell;

/// Rooms as they would be, and who has moved.
#[derive(Debug)]
pub(super) struct Sketch<'a> {
    pub(super) state: &'a State,
    rooms: Cow<'a, [Room]>,
    /// Of the state before any move; counted when it is first asked for.
    worth: OnceCell<Worth>,
    /// Changed rooms as they were before.
    undo: Vec<(GpuId, Room)>,
    /// Who has moved, in order.
    moves: Vec<Move>,
    /// Who is about to move and has no place to go yet.
    pending: Vec<InstanceId>,
}

/// A moment to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    undo: usize,
    moves: usize,
    pending: usize,
}

impl<'a> Sketch<'a> {
    pub(super) fn new(state: &'a State) -> Sketch<'a> {
        let (rooms, worth) = (Cow::Borrowed(state.rooms()), OnceCell::new());
        Sketch { state, rooms, worth, undo: Vec::new(), moves: Vec::new(), pending: Vec::new() }
    }

    /// What rooms are worth.
    #[inline]
    pub(super) fn worth(&self) -> &Worth {
        self.worth.get_or_init(|| Worth::new(self.state))
    }

    /// By GPU id.
    #[inline]
    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { undo: self.undo.len(), moves: self.moves.len(), pending: self.pending.len() }
    }

    pub(super) fn back_to(&mut self, mark: Mark) {
        for (gpu, room) in self.undo.drain(mark.undo..).rev() {
            self.rooms.to_mut()[gpu.index()] = room;
        }
        self.moves.truncate(mark.moves);
        self.pending.truncate(mark.pending);
    }

    /// How many instances have moved or are about to.
    pub(super) fn moved(&self) -> usize {
        self.moves.len() + self.pending.len()
    }

    /// Everything that has moved, in order.
    pub(super) fn into_moves(self) -> Vec<Move> {
        self.moves
    }

    /// Whether the instance of this part may be moved: it does not train, runs all the time and has not moved yet.
    #[inline]
    pub(super) fn movable(&self, part: &Part) -> bool {
        let whole = part.kind != Kind::Training && part.need.quota == WHOLE;
        whole && !self.pending.contains(&part.instance) && !self.has_moved(part.instance)
    }

    /// Whether an instance has moved.
    #[inline]
    pub(super) fn has_moved(&self, id: InstanceId) -> bool {
        self.moves.iter().any(|step| step.instance == id)
    }

    /// An instance is about to move. It stays where it is until there is another place, as it does when it serves.
    pub(super) fn begin(&mut self, id: InstanceId) {
        self.pending.push(id);
    }

    /// The last that was about to move does.
    pub(super) fn finish(&mut self, to: Vec<Piece>) {
        let (state, id) = (self.state, self.pending.pop().expect("a move begins before it ends"));
        self.add(&to);
        for piece in &state.instances()[&id].pieces {
            self.change(piece.gpu, &piece.need, false);
        }
        self.moves.push(Move { instance: id, to });
    }

    /// Takes up room.
    pub(super) fn add(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.change(piece.gpu, &piece.need, true);
        }
    }

    fn change(&mut self, gpu: GpuId, need: &Need, taken: bool) {
        let room = &mut self.rooms.to_mut()[gpu.index()];
        self.undo.push((gpu, *room));
        let large = u32::from(is_large(need, self.state.gpus()[gpu.index()].memory));
        if taken {
            room.memory -= need.memory;
            // When a part of the time is taken, nothing that came later counts on the rest.
            let whole = need.quota == WHOLE;
            room.request = if whole { room.request - need.request } else { 0 };
            room.limit = if whole { room.limit - need.limit } else { 0 };
            room.parts += 1;
            room.large += large;
        } else {
            room.memory += need.memory;
            room.request += need.request;
            room.limit += need.limit;
            room.parts -= 1;
            room.large -= large;
        }
    }
}
