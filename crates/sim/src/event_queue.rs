//! What happens next: a heap ordered by time, and by order of entry where times are equal.

use policy::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// The standard heap gives the greatest first, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Events waiting for their time.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        EventQueue { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<T> EventQueue<T> {
    pub(crate) fn push(&mut self, at: Time, what: T) {
        self.heap.push(Entry { at, sequence: self.sequence, what });
        self.sequence += 1;
    }

    /// When the next event is.
    pub(crate) fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |entry| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_in_order_of_entry() {
        let mut queue = EventQueue::default();
        for (at, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(Time::from_nanos(at), what);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
