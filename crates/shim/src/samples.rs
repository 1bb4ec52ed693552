//! Measurements that are going on, and what one says of a kernel's duration; [`sample`](crate::sample) makes them.

#![deny(unsafe_code)]

use share_core::Patience;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Measurements that may be going on.
const SLOTS: usize = 16;
/// How much later than expected something may be done before it is late: little beside what a waiter waits anyway.
const LATE_NS: u64 = Patience::USUAL.recheck_busy_ns / 4;
/// A lead that is longer than this, and than a quarter of what was measured, says more about the thread than the GPU.
const LEAD_MAX_NS: u64 = 10_000;
/// Empty launches between two events take about this long.
const LEAST_NS: u64 = 500;

/// The measurements of one GPU.
pub(crate) struct Samples {
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) pending: AtomicU32,
    /// What had been charged at the last measurement.
    pub(crate) charged_ns: AtomicU64,
}

pub(crate) struct Slot {
    pub(crate) taken: AtomicBool,
    pub(crate) pending: AtomicBool,
    /// The context that the events belong to; 0 when there are none.
    pub(crate) context: AtomicUsize,
    pub(crate) start: AtomicUsize,
    pub(crate) end: AtomicUsize,
    /// What was launched.
    pub(crate) number: AtomicU32,
    /// How long the GPU had nothing to do between the first event and the launch.
    pub(crate) lead_ns: AtomicU64,
    /// The slices of others that had work on the GPU.
    pub(crate) others_ns: AtomicU64,
    /// When the virtual clock expects it to be done.
    pub(crate) expected_ns: AtomicU64,
    /// What had been charged before it, and with it.
    pub(crate) charged_before_ns: AtomicU64,
    pub(crate) charged_ns: AtomicU64,
    /// How long the process's work had been off the GPU until then, all in all.
    pub(crate) off_ns: AtomicU64,
}

impl Samples {
    pub(crate) const fn new() -> Samples {
        let slots = [const {
            Slot {
                taken: AtomicBool::new(false),
                pending: AtomicBool::new(false),
                context: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                number: AtomicU32::new(0),
                lead_ns: AtomicU64::new(0),
                others_ns: AtomicU64::new(0),
                expected_ns: AtomicU64::new(0),
                charged_before_ns: AtomicU64::new(0),
                charged_ns: AtomicU64::new(0),
                off_ns: AtomicU64::new(0),
            }
        }; SLOTS];
        Samples { slots, pending: AtomicU32::new(0), charged_ns: AtomicU64::new(0) }
    }

    /// Forgets the events of a context that is gone. Those of others stay: their measurements may be going on.
    pub(crate) fn forget_context(&self, context: usize) {
        for slot in self.slots.iter().filter(|slot| slot.context.load(Ordering::Relaxed) == context) {
            slot.context.store(0, Ordering::Relaxed);
            // Whoever takes `pending` away has the slot to himself.
            if slot.pending.swap(false, Ordering::AcqRel) {
                self.pending.fetch_sub(1, Ordering::Relaxed);
                slot.taken.store(false, Ordering::Release);
            }
        }
    }

    /// Forgets all events: they are another process's.
    pub(crate) fn forget(&self) {
        for slot in &self.slots {
            slot.context.store(0, Ordering::Relaxed);
            slot.pending.store(false, Ordering::Relaxed);
            slot.taken.store(false, Ordering::Release);
        }
        self.pending.store(0, Ordering::Relaxed);
    }

    /// Whether so much was charged since the last measurement that another is due, to know how far the GPU really is.
    #[inline]
    pub(crate) fn due(&self, charged_ns: u64, budget_ns: u64) -> bool {
        charged_ns.wrapping_sub(self.charged_ns.load(Ordering::Relaxed)) >= budget_ns
    }

    /// The work behind something that is not done and should have been by now, where both are more than may be outstanding:
    /// others have the GPU, and the virtual clock is ahead.
    pub(crate) fn behind_late(&self, now_ns: u64, charged_ns: u64, budget_ns: u64) -> Option<u64> {
        if !self.pending() {
            return None;
        }
        let late = self.slots.iter().filter(|slot| {
            slot.pending.load(Ordering::Acquire)
                && slot.expected_ns.load(Ordering::Relaxed).saturating_add(LATE_NS) < now_ns
                && charged_ns.saturating_sub(slot.charged_before_ns.load(Ordering::Relaxed)) > budget_ns
        });
        late.map(|slot| charged_ns.saturating_sub(slot.charged_ns.load(Ordering::Relaxed))).max()
    }

    /// Whether any are going on.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }
}

/// Between what a kernel took that was done `elapsed` after an event, when the GPU had nothing to do for `lead` of that,
/// and others with work had slices of `others` together between ours of `slice`. `None` when that cannot be told.
pub(crate) fn duration(elapsed: u64, lead: u64, slice: u64, others: u64) -> Option<(u64, u64)> {
    if lead > LEAD_MAX_NS && lead > elapsed / 4 {
        return None;
    }
    let elapsed = elapsed.saturating_sub(lead).max(elapsed / 4).max(LEAST_NS);
    if others == 0 || elapsed <= slice {
        return Some((0, elapsed));
    }
    // Between our slices, theirs: a kernel of length d is interrupted as often as there are ends of our slices in it.
    let mut rounds = 0;
    loop {
        let left = elapsed.checked_sub(others.checked_mul(rounds)?)?;
        if left / slice <= rounds {
            // They may have had nothing to do in one of their slices, or less than all of it.
            let at_most = elapsed.min(left.saturating_add(others));
            return (rounds <= left.div_ceil(slice)).then_some((left.max(LEAST_NS), at_most));
        }
        rounds += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KernelRecord;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_other_contexts_measure_goes_on_when_one_is_gone() {
        let samples = Samples::new();
        for (slot, context) in samples.slots.iter().zip([7, 8]) {
            slot.taken.store(true, Ordering::Relaxed);
            slot.context.store(context, Ordering::Relaxed);
            slot.pending.store(true, Ordering::Relaxed);
            samples.pending.fetch_add(1, Ordering::Relaxed);
        }
        for _ in 0..2 {
            samples.forget_context(7);
            let owners = [0, 1].map(|slot| samples.slots[slot].context.load(Ordering::Relaxed));
            let taken = [0, 1].map(|slot| samples.slots[slot].taken.load(Ordering::Relaxed));
            assert_eq!((owners, taken), ([0, 8], [false, true]));
            assert_eq!(samples.pending.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn what_is_late_holds_when_it_makes_for_too_much_work() {
        let samples = Samples::new();
        let late = |now, charged, depth| samples.behind_late(now, charged, depth);
        assert_eq!(late(9 * MS, 9 * MS, 0), None, "nothing is measured");
        for (slot, (expected, before, with)) in
            samples.slots.iter().zip([(3 * MS, MS, 2 * MS), (5 * MS, 2 * MS, 3 * MS)])
        {
            slot.expected_ns.store(expected, Ordering::Relaxed);
            slot.charged_before_ns.store(before, Ordering::Relaxed);
            slot.charged_ns.store(with, Ordering::Relaxed);
            slot.pending.store(true, Ordering::Relaxed);
            samples.pending.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(late(3 * MS, 6 * MS, 4 * MS), None, "it is in time");
        assert_eq!(late(4 * MS, 5 * MS, 4 * MS), None, "so much may be outstanding");
        assert_eq!(late(4 * MS, 6 * MS, 4 * MS), Some(4 * MS));
        assert_eq!(late(6 * MS, 9 * MS, 6 * MS), Some(7 * MS));
        assert_eq!(late(6 * MS, 9 * MS, u64::MAX), None, "anything may be");
        samples.slots[0].pending.store(false, Ordering::Relaxed);
        assert_eq!(late(6 * MS, 9 * MS, 6 * MS), Some(6 * MS));
    }

    #[test]
    fn slices_of_others_are_taken_out() {
        let exactly = |nanos| Some((0, nanos));
        assert_eq!(duration(100_000, 3_000, 2 * MS, 0), exactly(97_000));
        assert_eq!(duration(100_000, 60_000, 2 * MS, 0), None, "the thread did not run between event and launch");
        assert_eq!(duration(MS, 0, 2 * MS, 2 * MS), exactly(MS));
        assert_eq!(duration(51 * MS, 0, 2 * MS, 0), exactly(51 * MS));
        assert_eq!(duration(5 * MS, 0, 2 * MS, 2 * MS), Some((3 * MS, 5 * MS)));
        assert_eq!(duration(7 * MS, 0, 2 * MS, 2 * MS), Some((3 * MS, 5 * MS)));
        assert_eq!(duration(51 * MS + 25 * 2 * MS, 0, 2 * MS, 2 * MS), Some((51 * MS, 53 * MS)));
    }

    /// Beside a neighbour that always has work, from any moment of our slice on.
    #[test]
    fn whatever_length_it_has_is_found() {
        let slice = 2 * MS;
        let mut phase = 1;
        for length in (1..60).map(|step| step * 137_000).chain([slice, slice + 3_000, slice - 3_000, 50 * MS]) {
            let place = KernelRecord::EMPTY;
            for _ in 0..64 {
                phase = (phase * 48_271) % 2_147_483_647_u64;
                let left_of_slice = phase % slice;
                let interrupted = length.saturating_sub(left_of_slice).div_ceil(slice);
                if let Some((at_least, at_most)) = duration(length + interrupted * slice, 0, slice, slice) {
                    place.measure_between(at_least, at_most, slice);
                }
            }
            let found = place.duration_ns();
            assert!(found.abs_diff(length) <= length / 10 + 50_000, "{length} taken for {found}");
        }
    }

    /// Beside a neighbour whose slices end early, as often late as soon.
    #[test]
    fn a_neighbour_that_pauses_makes_nothing_shorter() {
        let slice = 2 * MS;
        let mut chance = 1;
        for length in [slice, slice + 100_000, 2 * slice, 3 * slice + 500_000] {
            let (place, mut sum) = (KernelRecord::EMPTY, 0);
            for _ in 0..64 {
                for _ in 0..8 {
                    chance = (chance * 48_271) % 2_147_483_647_u64;
                    let interrupted = length / slice;
                    let elapsed = length + (interrupted - 1) * slice + chance % slice;
                    if let Some((at_least, at_most)) = duration(elapsed, 0, slice, slice) {
                        place.measure_between(at_least, at_most, slice);
                    }
                }
                sum += place.duration_ns();
            }
            let found = sum / 64;
            assert!(found.abs_diff(length) <= length / 25, "{length} taken for {found}");
        }
    }

    #[test]
    fn any_numbers_have_an_end() {
        for (elapsed, slice, others) in
            [(u64::MAX, 1000, 1), (u64::MAX / 2, 2 * MS, u64::MAX), (0, 1000, 7), (9, 1000, 0)]
        {
            let _ = duration(elapsed.min(1 << 45), 0, slice, others.max(1000));
        }
    }
}
