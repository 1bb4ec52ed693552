//! The books of one GPU: who has work queued, whose turn it is, who holds how much memory. Pure: time is an argument.
//!
//! The rule of time: every process with a context on the GPU has one queue, first in first out, whatever its streams. A
//! queue is therefore two numbers: nanoseconds ever submitted and nanoseconds ever given, and a kernel is done when the
//! second passes the first as it stood after the kernel was submitted (its *position*). Queues with work take turns in
//! the order of their slots. A turn lasts at most the process's time slice, ends early when the queue is empty, and may
//! end in the middle of a kernel. A process alone keeps the GPU.
//!
//! Invariants:
//! 1. `given_ns <= submitted_ns` in every slot.
//! 2. Time never goes back, and each nanosecond of it is given to one slot at most: the sum of all `given_ns` ever is
//!    `busy_ns`.
//! 3. A slot is occupied exactly when it lies below `high` and its `pid` is not zero. What lies above means nothing.

/// Processes that can have a context on one GPU at a time.
pub const SLOTS: usize = 128;
/// What a new process's time slice is.
pub const SLICE_NS: u64 = 2_048_000;
/// Over how long the use of the GPU is averaged for NVML.
const WINDOW_NS: u64 = 100_000_000;

/// One process on the GPU: its queue, and the truth about it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its process id; zero for a free slot.
    pub pid: u32,
    /// Not zero while it was taken off the schedule.
    pub held: u32,
    /// When the process started, in the kernel's ticks: a process id alone may be used again.
    pub started: u64,
    /// When it came to this GPU.
    pub attached_ns: u64,
    /// How long a turn lasts.
    pub slice_ns: u64,
    /// The interleave level, which is kept and has no effect.
    pub interleave: u64,
    /// GPU time ever submitted.
    pub submitted_ns: u64,
    /// GPU time ever given.
    pub given_ns: u64,
    /// When it was last given time.
    pub given_until_ns: u64,
    /// How often it was given the GPU after not having it; the number of entries in its history.
    pub turns: u64,
    /// Kernels launched, those in graphs not counted.
    pub launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// Kernels in the graphs that were launched.
    pub graph_kernels: u64,
    /// Waits for the GPU: of streams, events, contexts and synchronous copies.
    pub synchronizations: u64,
    /// Device memory held.
    pub used_bytes: u64,
    /// The most it ever held.
    pub peak_bytes: u64,
    /// Allocations made.
    pub allocations: u64,
    /// Allocations refused for want of memory.
    pub refused: u64,
}

/// The books.
#[repr(C)]
#[derive(Clone)]
pub struct Book {
    /// Until when time was given out.
    pub now_ns: u64,
    /// Time given out.
    pub busy_ns: u64,
    /// When it was last looked whether the processes are alive.
    pub looked_ns: u64,
    /// Processes that left; their slots are in the graves.
    pub buried: u64,
    /// Highest occupied slot plus one.
    pub high: u64,
    current: u64,
    slice_left_ns: u64,
    window_began_ns: u64,
    window_busy_ns: u64,
    utilization: u64,
    /// Everybody.
    pub slots: [Slot; SLOTS],
}

/// A turn that began: which slot, when, and how much it had been given before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The slot.
    pub slot: usize,
    /// The number of the turn among the slot's.
    pub number: u64,
    /// When it began.
    pub began_ns: u64,
    /// The slot's `given_ns` at that time.
    pub given_ns: u64,
}

impl Book {
    /// The books of a GPU that nobody used.
    pub fn new(now_ns: u64) -> Book {
        Book {
            now_ns,
            busy_ns: 0,
            looked_ns: 0,
            buried: 0,
            high: 0,
            current: 0,
            slice_left_ns: 0,
            window_began_ns: now_ns,
            window_busy_ns: 0,
            utilization: 0,
            slots: [Slot::default(); SLOTS],
        }
    }

    /// Occupies a slot. `None` when all are taken.
    pub fn occupy(&mut self, pid: u32, started: u64) -> Option<usize> {
        let below = &self.slots[..self.high as usize];
        let slot = below.iter().position(|slot| slot.pid == 0).unwrap_or(below.len());
        if slot == SLOTS {
            return None;
        }
        self.slots[slot] = Slot { pid, started, attached_ns: self.now_ns, slice_ns: SLICE_NS, ..Slot::default() };
        self.high = self.high.max(slot as u64 + 1);
        Some(slot)
    }

    /// Frees a slot; its queue and its memory are gone.
    pub fn vacate(&mut self, slot: usize) -> Slot {
        let left = std::mem::take(&mut self.slots[slot]);
        while self.high > 0 && self.slots[self.high as usize - 1].pid == 0 {
            self.high -= 1;
        }
        left
    }

    /// The slots that are occupied.
    pub fn occupied(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots[..self.high as usize].iter().enumerate().filter(|(_, slot)| slot.pid != 0)
    }

    /// Device memory held by everybody together.
    pub fn used_bytes(&self) -> u64 {
        self.occupied().map(|(_, slot)| slot.used_bytes).sum()
    }

    /// Percent of the last whole window during which the GPU was given to somebody.
    pub fn utilization(&self) -> u64 {
        self.utilization
    }

    /// Gives out the time until `now_ns`, and tells of every turn that began.
    pub fn advance(&mut self, now_ns: u64, mut began: impl FnMut(Turn)) {
        while self.now_ns < now_ns && self.step(now_ns, &mut began) {}
        self.now_ns = self.now_ns.max(now_ns);
        if self.now_ns >= self.window_began_ns + WINDOW_NS {
            let busy = self.busy_ns - self.window_busy_ns;
            self.utilization = busy * 100 / (self.now_ns - self.window_began_ns);
            self.window_began_ns = self.now_ns;
            self.window_busy_ns = self.busy_ns;
        }
    }

    /// When `slot` will have been given `position_ns`, if nobody submits more and nobody leaves.
    pub fn predict(&self, slot: usize, position_ns: u64) -> Option<u64> {
        let mut future = self.clone();
        // A wait that long is looked at again before it is over.
        for _ in 0..1_000 {
            if future.slots[slot].given_ns >= position_ns {
                let beyond = future.slots[slot].given_ns - position_ns;
                return Some(future.now_ns - beyond);
            }
            if !future.step(u64::MAX, &mut |_| {}) {
                return None;
            }
        }
        Some(future.now_ns)
    }

    /// Ends the turn of `slot`, if it has the GPU.
    pub fn preempt(&mut self, slot: usize) {
        if self.current == slot as u64 {
            self.slice_left_ns = 0;
        }
    }

    /// Gives out one turn, or the part of it before `limit_ns`. `false` when nobody has work.
    fn step(&mut self, limit_ns: u64, began: &mut impl FnMut(Turn)) -> bool {
        let current = self.current as usize;
        if self.slice_left_ns == 0 || self.current >= self.high || !runnable(&self.slots[current]) {
            let Some(next) = self.after(current) else { return false };
            self.current = next as u64;
            self.slice_left_ns = self.slots[next].slice_ns;
        }
        let current = self.current as usize;
        let alone = self.after(current) == Some(current);
        let slot = &mut self.slots[current];
        let pending = slot.submitted_ns - slot.given_ns;
        let longest = if alone { u64::MAX } else { self.slice_left_ns };
        let run = pending.min(longest).min(limit_ns - self.now_ns);
        if slot.turns == 0 || slot.given_until_ns != self.now_ns {
            began(Turn { slot: current, number: slot.turns, began_ns: self.now_ns, given_ns: slot.given_ns });
            slot.turns += 1;
        }
        self.now_ns += run;
        self.busy_ns += run;
        slot.given_ns += run;
        slot.given_until_ns = self.now_ns;
        // Alone, one slice follows another; whoever comes next waits for the end of the one that runs.
        self.slice_left_ns = match run.checked_sub(self.slice_left_ns) {
            None => self.slice_left_ns - run,
            Some(0) => 0,
            Some(beyond) => slot.slice_ns - beyond % slot.slice_ns,
        };
        true
    }

    /// The next slot with work after `slot`, which comes last itself.
    fn after(&self, slot: usize) -> Option<usize> {
        let high = self.high as usize;
        (slot + 1..high).chain(0..(slot + 1).min(high)).find(|index| runnable(&self.slots[*index]))
    }
}

fn runnable(slot: &Slot) -> bool {
    slot.pid != 0 && slot.held == 0 && slot.submitted_ns > slot.given_ns
}

#[cfg(test)]
mod tests;
