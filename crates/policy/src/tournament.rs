//! The earliest of many times, where any one of them may change: a tournament tree.
//!
//! One slot per model, GPU or lane; [`Time::NEVER`] where there is nothing to wait for. Reading the winner
//! costs one load, changing a slot at most one comparison per level and usually far fewer, because a change
//! that does not alter a match ends there. Ties go to the lowest slot, so the order is part of the result.

use crate::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Trees up to this size are scanned for their first few.
const SCANNED: usize = 512;

/// A fixed number of slots, each with a time.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// A perfect binary tree: node 1 is the final, the leaves start at `leaves`. Each node is its winner.
    nodes: Vec<(Time, u32)>,
    leaves: usize,
}

impl Tournament {
    /// `slots` slots, all at [`Time::NEVER`].
    pub fn new(slots: usize) -> Tournament {
        let leaves = slots.next_power_of_two().max(1);
        let mut nodes = vec![(Time::NEVER, 0); 2 * leaves];
        for (slot, node) in nodes[leaves..].iter_mut().enumerate() {
            node.1 = slot as u32;
        }
        let mut tree = Tournament { nodes, leaves };
        for node in (1..leaves).rev() {
            tree.nodes[node] = tree.match_at(node);
        }
        tree
    }

    fn match_at(&self, node: usize) -> (Time, u32) {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        if right.0 < left.0 { right } else { left }
    }

    /// The earliest time and the lowest slot that holds it, unless every slot is at [`Time::NEVER`].
    #[inline]
    pub fn first(&self) -> Option<(Time, usize)> {
        let (time, slot) = self.nodes[1];
        (time != Time::NEVER).then_some((time, slot as usize))
    }

    /// The earliest time of all.
    #[inline]
    pub fn earliest(&self) -> Time {
        self.nodes[1].0
    }

    /// The `count` earliest times and their slots, in order; fewer when fewer slots hold a time.
    pub fn first_few(&self, count: usize, into: &mut Vec<(Time, usize)>) {
        into.clear();
        if count == 0 {
            return;
        }
        // Going down the tree costs a heap; reading a few cache lines of leaves is faster while they are few.
        if self.leaves <= SCANNED {
            let held = self.nodes[self.leaves..].iter().filter(|(time, _)| *time != Time::NEVER);
            into.extend(held.map(|(time, slot)| (*time, *slot as usize)));
            if into.len() > count {
                into.select_nth_unstable(count - 1);
                into.truncate(count);
            }
            into.sort_unstable();
            return;
        }
        let mut open = BinaryHeap::from([Reverse((self.nodes[1].0, 1))]);
        while let Some(Reverse((time, node))) = open.pop() {
            if time == Time::NEVER || into.len() == count {
                return;
            }
            if node >= self.leaves {
                into.push((time, node - self.leaves));
            } else {
                open.extend([2 * node, 2 * node + 1].map(|child| Reverse((self.nodes[child].0, child))));
            }
        }
    }

    /// What a slot holds.
    #[inline]
    pub fn get(&self, slot: usize) -> Time {
        self.nodes.get(self.leaves + slot).map_or(Time::NEVER, |node| node.0)
    }

    /// Puts a time into a slot, making room when there is no such slot yet.
    #[inline]
    pub fn set(&mut self, slot: usize, time: Time) {
        if slot >= self.leaves {
            self.grow(slot + 1);
        }
        let mut node = self.leaves + slot;
        if self.nodes[node].0 == time {
            return;
        }
        self.nodes[node].0 = time;
        while node > 1 {
            node /= 2;
            let winner = self.match_at(node);
            if winner == self.nodes[node] {
                break;
            }
            self.nodes[node] = winner;
        }
    }

    /// Takes a slot out of the running.
    pub fn clear(&mut self, slot: usize) {
        self.set(slot, Time::NEVER);
    }

    fn grow(&mut self, slots: usize) {
        let mut larger = Tournament::new(slots);
        for slot in 0..self.leaves {
            larger.set(slot, self.get(slot));
        }
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_what_a_scan_would_find(changes in prop::collection::vec((0..40usize, 0..9u64), 1..200)) {
            let mut tree = Tournament::new(3);
            let mut plain = vec![Time::NEVER; 64];
            for (slot, time) in changes {
                let time = if time == 0 { Time::NEVER } else { Time::from_nanos(time) };
                tree.set(slot, time);
                plain[slot] = time;
                let expected = plain.iter().copied().enumerate().map(|(slot, time)| (time, slot)).min().unwrap();
                prop_assert_eq!(tree.first(), (expected.0 != Time::NEVER).then_some(expected));
                let mut all: Vec<_> = plain.iter().copied().enumerate().map(|(slot, time)| (time, slot)).collect();
                all.retain(|(time, _)| *time != Time::NEVER);
                all.sort_unstable_by_key(|(time, _)| *time);
                let mut few = Vec::new();
                tree.first_few(5, &mut few);
                all.truncate(5);
                prop_assert_eq!(few.iter().map(|(time, _)| *time).collect::<Vec<_>>(), all.iter().map(|(time, _)| *time).collect::<Vec<_>>());
            }
        }
    }
}
