//! How many bytes each address and handle of this process stands for.
//!
//! Invariants:
//! 1. Bytes are given back exactly once, and only bytes that were taken: what is not tracked (freed twice, or never
//!    ours) gives back nothing, so nothing falls below zero.
//! 2. An entry is removed before the driver frees its address, because the address may be another thread's a
//!    moment later; it comes back if the driver refuses.
//! 3. A physical allocation is in use as long as it has a handle or is mapped, as with the driver.
//!
//! What they do not cover: memory that the driver takes for itself (contexts, modules), and imported memory, which is
//! charged to the process that made it.

#![deny(unsafe_code)]

use crate::lock::Lock;
use std::collections::BTreeMap;

/// The memory of this process.
pub(crate) static ALLOCATIONS: Lock<AllocationTracker> = Lock::new(AllocationTracker::new());

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An address.
    Pointer,
    /// An array.
    Array,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The GPU.
    pub gpu: usize,
    /// How much.
    pub bytes: u64,
    /// The context that it goes with.
    pub context: usize,
}

/// Physical memory, which has handles and mappings.
#[derive(Debug)]
struct Block {
    gpu: usize,
    bytes: u64,
    handles: u32,
    mappings: u32,
}

/// All device memory of a process.
#[derive(Debug)]
pub struct AllocationTracker {
    holdings: BTreeMap<(Kind, u64), Holding>,
    /// Physical memory by a number of our own: the driver uses handles again while old memory is still mapped.
    blocks: BTreeMap<u64, Block>,
    handles: BTreeMap<u64, u64>,
    /// Address to length and block.
    mappings: BTreeMap<u64, (u64, u64)>,
    next: u64,
}

impl AllocationTracker {
    /// A tracker with nothing in it.
    #[allow(clippy::new_without_default, reason = "only made as a constant")]
    pub const fn new() -> AllocationTracker {
        AllocationTracker {
            holdings: BTreeMap::new(),
            blocks: BTreeMap::new(),
            handles: BTreeMap::new(),
            mappings: BTreeMap::new(),
            next: 0,
        }
    }

    /// Writes down what an address or array is. Returns what the same key stood for before, which the driver must have
    /// freed without our seeing it.
    pub fn put(&mut self, kind: Kind, key: u64, holding: Holding) -> Option<Holding> {
        self.holdings.insert((kind, key), holding)
    }

    /// Crosses out an address or array, if it is there.
    pub fn take(&mut self, kind: Kind, key: u64) -> Option<Holding> {
        self.holdings.remove(&(kind, key))
    }

    /// Crosses out everything that goes with a context.
    pub fn take_context(&mut self, context: usize) -> Vec<Holding> {
        let gone = |holding: &Holding| holding.context == context;
        let taken = self.holdings.values().copied().filter(gone).collect();
        self.holdings.retain(|_, holding| !gone(holding));
        taken
    }

    /// Physical memory was made.
    pub fn create(&mut self, handle: u64, gpu: usize, bytes: u64) {
        self.next += 1;
        self.blocks.insert(self.next, Block { gpu, bytes, handles: 1, mappings: 0 });
        self.handles.insert(handle, self.next);
    }

    /// A handle is let go. Returns the memory that is free by this.
    pub fn release(&mut self, handle: u64) -> Option<(usize, u64)> {
        let number = *self.handles.get(&handle)?;
        let block = self.blocks.get_mut(&number)?;
        block.handles = block.handles.saturating_sub(1);
        if block.handles == 0 {
            self.handles.remove(&handle);
        }
        self.sweep(number)
    }

    /// Memory at an address got one more handle.
    pub fn retain(&mut self, address: u64, handle: u64) {
        let Some((start, (length, number))) = self.mappings.range(..=address).next_back() else { return };
        if address - start < *length
            && let Some(block) = self.blocks.get_mut(number)
        {
            block.handles += 1;
            self.handles.insert(handle, *number);
        }
    }

    /// Physical memory appears at an address.
    pub fn map(&mut self, address: u64, bytes: u64, handle: u64) {
        let Some(number) = self.handles.get(&handle) else { return };
        if let Some(block) = self.blocks.get_mut(number) {
            block.mappings += 1;
            self.mappings.insert(address, (bytes, *number));
        }
    }

    /// Physical memory disappears from a range of addresses. Returns what is free by this.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Vec<(usize, u64)> {
        let range = address..address.saturating_add(bytes);
        let gone: Vec<u64> = self.mappings.range(range).map(|(start, _)| *start).collect();
        let mut free = Vec::new();
        for start in gone {
            let Some((_, number)) = self.mappings.remove(&start) else { continue };
            if let Some(block) = self.blocks.get_mut(&number) {
                block.mappings = block.mappings.saturating_sub(1);
            }
            free.extend(self.sweep(number));
        }
        free
    }

    fn sweep(&mut self, number: u64) -> Option<(usize, u64)> {
        let block = self.blocks.get(&number)?;
        if block.handles > 0 || block.mappings > 0 {
            return None;
        }
        self.blocks.remove(&number).map(|block| (block.gpu, block.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(bytes: u64, context: usize) -> Holding {
        Holding { gpu: 0, bytes, context }
    }

    #[test]
    fn bytes_are_given_back_once() {
        let mut tracker = AllocationTracker::new();
        assert_eq!(tracker.put(Kind::Pointer, 7, holding(100, 1)), None);
        assert_eq!(tracker.take(Kind::Array, 7), None);
        assert_eq!(tracker.take(Kind::Pointer, 7), Some(holding(100, 1)));
        assert_eq!(tracker.take(Kind::Pointer, 7), None, "freed twice");
        tracker.put(Kind::Pointer, 7, holding(100, 1));
        assert_eq!(tracker.put(Kind::Pointer, 7, holding(50, 1)), Some(holding(100, 1)), "freed untracked");
    }

    #[test]
    fn memory_goes_with_its_context() {
        let mut tracker = AllocationTracker::new();
        tracker.put(Kind::Pointer, 1, holding(10, 1));
        tracker.put(Kind::Array, 2, holding(20, 2));
        tracker.put(Kind::Pointer, 3, holding(30, 1));
        assert_eq!(tracker.take_context(1).iter().map(|holding| holding.bytes).sum::<u64>(), 40);
        assert_eq!(tracker.take_context(1), []);
        assert!(tracker.take(Kind::Array, 2).is_some());
    }

    #[test]
    fn physical_memory_lives_by_handles_and_mappings() {
        let mut tracker = AllocationTracker::new();
        tracker.create(5, 3, 1000);
        tracker.map(0x1000, 1000, 5);
        assert_eq!(tracker.release(5), None, "still mapped");
        // The driver may give the same handle to new memory.
        tracker.create(5, 3, 2000);
        assert_eq!(tracker.unmap(0x1000, 1000), [(3, 1000)]);
        assert_eq!(tracker.unmap(0x1000, 1000), []);
        tracker.map(0x2000, 2000, 5);
        tracker.retain(0x27cf, 6);
        tracker.retain(0x27d0, 7);
        assert_eq!(tracker.release(5), None);
        assert_eq!(tracker.release(7), None, "nothing is at its address");
        assert_eq!(tracker.unmap(0, u64::MAX), []);
        assert_eq!(tracker.release(6), Some((3, 2000)));
        assert_eq!(tracker.release(6), None);
        assert_eq!(tracker.release(99), None);
    }
}
