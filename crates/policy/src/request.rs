//! Requests, and the queue they wait in.
//!
//! A queue is a ring ordered by deadline. While every request of a model has the same objective this is the
//! order of arrival and an arrival is a push at the back; a request with a tighter deadline of its own, or
//! one that comes back from a GPU that died, is put where its deadline belongs.

use crate::{ModelId, RequestId, Time};
use std::collections::VecDeque;

/// One inference that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What it asks for.
    pub model: ModelId,
    /// When it came.
    pub arrival: Time,
    /// By when its batch must have finished; the way back to the client is already taken off.
    pub deadline: Time,
}

/// Waiting requests of one lane, earliest deadline first.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    ring: VecDeque<Request>,
}

impl Queue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The request with the earliest deadline.
    pub fn head(&self) -> Option<&Request> {
        self.ring.front()
    }

    /// The request at this place in line.
    pub fn get(&self, index: usize) -> Option<&Request> {
        self.ring.get(index)
    }

    /// The deadline at this place in line. The place must be taken.
    pub fn deadline(&self, index: usize) -> Time {
        self.ring[index].deadline
    }

    /// Who is at this place in line. The place must be taken.
    pub fn id(&self, index: usize) -> RequestId {
        self.ring[index].id
    }

    pub(crate) fn insert(&mut self, request: Request) {
        if self.ring.back().is_none_or(|back| back.deadline <= request.deadline) {
            self.ring.push_back(request);
        } else {
            let place = self.ring.partition_point(|waiting| waiting.deadline <= request.deadline);
            self.ring.insert(place, request);
        }
    }

    /// Takes out a request wherever in line it is; its place.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<usize> {
        let place = self.ring.iter().position(|waiting| waiting.id == id)?;
        self.ring.remove(place);
        Some(place)
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        self.ring.pop_front()
    }
}
