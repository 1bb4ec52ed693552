//! A record of each kernel and graph that a process launches: its duration and the gap after it.
//!
//! An identity is the function's handle with its grid, block and shared memory, or a graph's handle; it is kept as a hash
//! of 64 bits, in a table of fixed size without locks. Two identities with one hash, or a table that is full, cost an
//! estimate, never more.
//!
//! Programs do much between two launches, so a launch finds nothing in the caches. Each record is therefore one cache line,
//! records of kernels that are launched one after the other for the first time are neighbours, and each names its last
//! successor, because programs launch the same kernels in the same order: a launch reads two lines.

#![deny(unsafe_code)]

use share_core::Patience;
use shm::Note;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Identities that are kept. A program that launches more shares the last record among the rest.
pub(crate) const RECORDS: usize = 4096;
/// Entries of the index, and those that an identity may be in.
const ENTRIES: usize = 2 * RECORDS;
const PROBES: usize = 16;
/// Samples that are believed together.
const ROUND: u32 = 8;
/// The assumed duration of a kernel without observations.
pub const UNKNOWN_NS: u32 = 5_000;
/// A run within this part of its predicted time, which is a sample's weight, confirms the prediction.
const KNOWN_WITHIN: u64 = ROUND as u64;
/// Durations and gaps recalled from earlier runs are capped at this.
const RECALLED_MAX_NS: u32 = Patience::USUAL.ahead_ns as u32;
/// [`KernelRecord::note`]: only this run knows it.
const NO_NOTE: u64 = 1;

/// The record of one identity.
#[derive(Debug)]
#[repr(align(64))]
pub struct KernelRecord {
    /// The identity; 0 for nobody, odd for a graph.
    key: AtomicU64,
    /// The record of its last successor.
    next: AtomicU32,
    duration_ns: AtomicU32,
    gap_ns: AtomicU32,
    /// Launches, counted for the choice of kernels to measure.
    launches: AtomicU32,
    /// Measurements that went into the duration, the least that it can be at most by this round of them, and the most
    /// that it must be at least.
    samples: AtomicU32,
    at_most_ns: AtomicU32,
    at_least_ns: AtomicU32,
    /// Kernels in a graph.
    kernels: AtomicU32,
    /// Syncs said how long it takes while nobody else had the GPU.
    alone: AtomicBool,
    /// The sync that corrected it last.
    corrected_by: AtomicU32,
    /// Its identity in every run; 0 until that was asked for, or [`NO_NOTE`].
    note: AtomicU64,
}

/// The kernels and graphs of this process, on all GPUs.
pub(crate) static KERNELS: KernelTable = KernelTable::new();

/// The records of all of them.
pub struct KernelTable {
    places: [KernelRecord; RECORDS + 1],
    /// Places by identity: the number + 1, or 0 for none.
    index: [AtomicU32; ENTRIES],
    /// Places before this one are taken, and none from that one on.
    taken: AtomicU32,
    end: AtomicU32,
}

/// The identity of a kernel's launch.
#[inline]
pub fn kernel_key(function: usize, grid: [u32; 3], block: [u32; 3], shared: u32) -> u64 {
    let first = u64::from(grid[0]) | u64::from(grid[1]) << 32;
    let second = u64::from(grid[2]) | u64::from(block[0]) << 32;
    let third = u64::from(block[1]) | u64::from(block[2]) << 16 | u64::from(shared) << 32;
    let hash = mix(mix(function as u64, first) ^ second, third);
    (hash | 2) & !1
}

/// The identity of a graph.
#[inline]
pub fn graph_key(graph: usize) -> u64 {
    mix(0x2545_f491_4f6c_dd1d, graph as u64) | 1
}

/// The duration that a round of samples is taken to mean, between its bounds, where our time slices have this length.
fn believed(least: u64, most: u64, slice_ns: u64) -> u64 {
    let slice = slice_ns.clamp(1, u64::from(u32::MAX));
    let (doubt, told) = (slice.saturating_sub(least), slice.saturating_sub(most - least));
    let part = doubt.max(told * 4 / 5);
    least + u64::try_from(u128::from(most - least) * u128::from(part) / u128::from(slice)).unwrap_or(0)
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word ^ 0xff51_afd7_ed55_8ccd);
    (product as u64) ^ (product >> 64) as u64
}

impl KernelTable {
    /// An empty table.
    #[allow(clippy::new_without_default, reason = "only made as a constant")]
    pub const fn new() -> KernelTable {
        KernelTable {
            places: [const { KernelRecord::EMPTY }; RECORDS + 1],
            index: [const { AtomicU32::new(0) }; ENTRIES],
            taken: AtomicU32::new(0),
            end: AtomicU32::new(0),
        }
    }

    /// The number of an identity's record, made if it is new; `last` is the record of the launch before it, and for the first
    /// launch the shared record of the rest.
    #[inline]
    pub fn find_after(&self, last: u32, key: u64) -> u32 {
        let last = self.record(last);
        let next = last.next.load(Ordering::Relaxed);
        if self.record(next).key.load(Ordering::Acquire) == key {
            return next;
        }
        let number = self.find(key);
        last.next.store(number, Ordering::Relaxed);
        number
    }

    /// The number of an identity's record, made if it is new.
    #[inline(never)]
    pub fn find(&self, key: u64) -> u32 {
        let mut made = None;
        for entry in self.entries(key) {
            let mut there = entry.load(Ordering::Acquire);
            if there == 0 {
                let Some(number) = made.or_else(|| self.make(key)) else { break };
                made = Some(number);
                match entry.compare_exchange(0, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return number,
                    Err(other) => there = other,
                }
            }
            if self.record(there - 1).key.load(Ordering::Acquire) == key && made != Some(there - 1) {
                self.unmake(made);
                return there - 1;
            }
        }
        self.unmake(made);
        RECORDS as u32
    }

    /// The entries of the index that an identity may be in.
    fn entries(&self, key: u64) -> impl Iterator<Item = &AtomicU32> {
        (0..PROBES).map(move |probe| &self.index[((key >> 20) as usize).wrapping_add(probe) % ENTRIES])
    }

    /// Takes the next record that is free.
    #[cold]
    fn make(&self, key: u64) -> Option<u32> {
        let first = self.taken.load(Ordering::Relaxed);
        let number = (first..RECORDS as u32).find(|number| self.record(*number).claim(key));
        let taken = number.map_or(RECORDS as u32, |number| number + 1);
        self.taken.store(taken, Ordering::Relaxed);
        self.end.fetch_max(taken, Ordering::Relaxed);
        number
    }

    #[cold]
    fn unmake(&self, made: Option<u32>) {
        if let Some(number) = made {
            self.record(number).key.store(0, Ordering::Release);
            self.taken.fetch_min(number, Ordering::Relaxed);
        }
    }

    /// The record with a number.
    #[inline]
    pub fn record(&self, number: u32) -> &KernelRecord {
        &self.places[(number as usize).min(RECORDS)]
    }

    /// How many places were ever taken, forgotten ones included.
    pub(crate) fn count(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    /// Forgets all kernels: handles of functions may mean others after a module is gone. Graphs are kept.
    pub fn forget_kernels(&self) {
        self.forget_in(self.index.iter(), |key| key & 1 == 0);
    }

    /// Forgets one identity.
    pub fn forget(&self, key: u64) {
        self.forget_in(self.entries(key), |there| there == key);
    }

    fn forget_in<'a>(&self, entries: impl Iterator<Item = &'a AtomicU32>, is_gone: impl Fn(u64) -> bool) {
        for entry in entries {
            let Some(number) = entry.load(Ordering::Acquire).checked_sub(1) else { continue };
            let record = self.record(number);
            if is_gone(record.key.load(Ordering::Relaxed)) {
                entry.store(0, Ordering::Release);
                record.key.store(0, Ordering::Release);
                self.taken.fetch_min(number, Ordering::Relaxed);
            }
        }
    }
}

impl KernelRecord {
    #[allow(clippy::declare_interior_mutable_const, reason = "what every record of a table begins as")]
    pub(crate) const EMPTY: KernelRecord = KernelRecord {
        key: AtomicU64::new(0),
        next: AtomicU32::new(0),
        duration_ns: AtomicU32::new(UNKNOWN_NS),
        gap_ns: AtomicU32::new(0),
        launches: AtomicU32::new(0),
        samples: AtomicU32::new(0),
        at_most_ns: AtomicU32::new(u32::MAX),
        at_least_ns: AtomicU32::new(0),
        kernels: AtomicU32::new(0),
        alone: AtomicBool::new(false),
        corrected_by: AtomicU32::new(0),
        note: AtomicU64::new(0),
    };

    /// Makes it one of this identity, of which nothing is known, if it is free.
    fn claim(&self, key: u64) -> bool {
        if self.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.duration_ns.store(UNKNOWN_NS, Ordering::Relaxed);
        self.at_most_ns.store(u32::MAX, Ordering::Relaxed);
        self.note.store(0, Ordering::Relaxed);
        self.alone.store(false, Ordering::Relaxed);
        for word in [&self.gap_ns, &self.launches, &self.samples, &self.at_least_ns, &self.kernels] {
            word.store(0, Ordering::Relaxed);
        }
        true
    }

    /// Whether it was not launched before.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        self.note.load(Ordering::Relaxed) == 0
    }

    /// Says how it is known in every run, if it is.
    pub(crate) fn set_note(&self, identity: Option<u64>) {
        self.note.store(identity.unwrap_or(NO_NOTE), Ordering::Relaxed);
    }

    /// The note for the next run.
    pub(crate) fn note(&self) -> Option<Note> {
        let (duration_ns, gap_ns) = (self.duration_ns.load(Ordering::Relaxed), self.gap_ns.load(Ordering::Relaxed));
        let is_known = self.measured() || duration_ns != UNKNOWN_NS;
        let key = self.note.load(Ordering::Relaxed);
        (key > NO_NOTE && is_known).then_some(Note { key, duration_ns, gap_ns })
    }

    /// Takes over an earlier run's note.
    pub(crate) fn recall(&self, duration_ns: u32, gap_ns: u32) {
        self.duration_ns.store(duration_ns.clamp(1, RECALLED_MAX_NS), Ordering::Relaxed);
        self.gap_ns.store(gap_ns.min(RECALLED_MAX_NS), Ordering::Relaxed);
    }

    /// How long it takes.
    #[inline]
    pub fn duration_ns(&self) -> u64 {
        u64::from(self.duration_ns.load(Ordering::Relaxed))
    }

    /// How long nothing is launched after it.
    #[inline]
    pub fn gap_ns(&self) -> u64 {
        u64::from(self.gap_ns.load(Ordering::Relaxed))
    }

    /// Kernels in it, if it is a graph.
    pub fn kernels(&self) -> u64 {
        u64::from(self.kernels.load(Ordering::Relaxed))
    }

    /// Says how many kernels a graph has; until it is measured, it is thought to take as long as they do.
    pub fn set_kernels(&self, kernels: u32) {
        self.kernels.store(kernels, Ordering::Relaxed);
        self.duration_ns.store(UNKNOWN_NS.saturating_mul(kernels.max(1)), Ordering::Relaxed);
        self.at_most_ns.store(u32::MAX, Ordering::Relaxed);
        self.alone.store(false, Ordering::Relaxed);
        for word in [&self.samples, &self.at_least_ns, &self.launches] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether this launch is one to measure: the first few and then one of many, or of a few where a measurement costs
    /// little beside it.
    #[inline]
    pub fn due(&self) -> bool {
        let launches = self.launches.load(Ordering::Relaxed);
        self.launches.store(launches.wrapping_add(1), Ordering::Relaxed);
        let every = if self.duration_ns() > 500_000 { 4 } else { 64 };
        launches < 4 || launches.is_multiple_of(every)
    }

    /// Whether its duration was measured.
    pub fn measured(&self) -> bool {
        self.samples.load(Ordering::Relaxed) > 0
    }

    /// A measured duration. Colocated programs may have lengthened it, so it is an upper bound.
    pub fn measure(&self, sample_ns: u64) {
        self.measure_between(0, sample_ns, 1);
    }

    /// A measurement with bounds, where our time slices have this length. Colocated programs lengthen the elapsed time, by an
    /// amount that is known to within one of their slices. The estimate is taken from the range that all samples of a round
    /// allow, or from the least bound where they disagree: it falls at once, and rises after a whole round of samples.
    ///
    /// The lower end of that range would be right if the others had used all of their slices. But a kernel much shorter than
    /// a slice is seldom interrupted, and hardly in every sample: the shorter it would have to be, the less likely that is.
    /// Where the range is narrow, the others used their slices by chance, seldom in full, and the upper end is nearer.
    pub fn measure_between(&self, at_least_ns: u64, at_most_ns: u64, slice_ns: u64) {
        let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
        let samples = self.samples.load(Ordering::Relaxed).wrapping_add(1);
        let at_most = self.at_most_ns.load(Ordering::Relaxed).min(word(at_most_ns));
        let at_least = self.at_least_ns.load(Ordering::Relaxed).max(u32::try_from(at_least_ns).unwrap_or(u32::MAX));
        if samples == 1 || word(at_most_ns) < self.duration_ns.load(Ordering::Relaxed) {
            self.duration_ns.store(word(at_most_ns), Ordering::Relaxed);
        }
        let round = samples.is_multiple_of(ROUND);
        if round {
            let (least, most) = (u64::from(at_least.min(at_most)), u64::from(at_most));
            self.duration_ns.store(word(believed(least, most, slice_ns)), Ordering::Relaxed);
        }
        self.at_most_ns.store(if round { u32::MAX } else { at_most }, Ordering::Relaxed);
        self.at_least_ns.store(if round { 0 } else { at_least }, Ordering::Relaxed);
        self.samples.store(samples.max(1), Ordering::Relaxed);
    }

    /// Whether this sync, known by a number, did not correct it yet.
    pub(crate) fn is_corrected_first_by(&self, sync: u32) -> bool {
        self.corrected_by.swap(sync, Ordering::Relaxed) != sync
    }

    /// A run of launches, this one among them, took `actual` instead of `predicted`. Runs beside other programs count only
    /// until the duration alone is known, because their delay would be taken for the kernel's own. It is known once a run
    /// alone took about as long as predicted.
    pub fn correct(&self, actual: u64, predicted: u64, others: bool) {
        if others && self.alone.load(Ordering::Relaxed) {
            return;
        }
        if !others && actual.abs_diff(predicted) <= predicted / KNOWN_WITHIN {
            self.alone.store(true, Ordering::Relaxed);
        }
        let known = self.duration_ns();
        let target = (u128::from(known) * u128::from(actual) / u128::from(predicted.max(1))).min(u128::from(u32::MAX));
        // A single sync may be late for many reasons; four times is as much as it says.
        let target = (target as u64).clamp(known / 4, known.saturating_mul(4));
        let (down, up) = if others { (8, 8) } else { (2, 4) };
        let next = if target < known { known - (known - target) / down } else { known + (target - known) / up };
        self.duration_ns.store(u32::try_from(next).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// How long nothing was launched after it, this time. Too long a prediction hurts somebody, so it falls fast.
    #[inline]
    pub fn followed_by_gap(&self, gap_ns: u64) {
        let gap = u32::try_from(gap_ns).unwrap_or(u32::MAX);
        let known = self.gap_ns.load(Ordering::Relaxed);
        let next = if gap < known { known - (known - gap).div_ceil(2) } else { known + (gap - known) / 8 };
        if next != known {
            self.gap_ns.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: KernelTable = KernelTable::new();

    #[test]
    fn identities_are_told_apart_and_kept_until_forgotten() {
        let key = |function, grid| kernel_key(function, [grid, 1, 1], [128, 1, 1], 0);
        let first = TABLE.find(key(1, 1));
        TABLE.record(first).measure(77_000);
        assert_ne!(TABLE.find(key(1, 2)), first);
        assert_ne!(TABLE.find(key(2, 1)), first);
        assert_eq!(TABLE.find(key(1, 1)), first);
        assert_eq!(TABLE.record(first).duration_ns(), 77_000);
        let graph = TABLE.find(graph_key(1));
        TABLE.record(graph).set_kernels(3);
        TABLE.forget_kernels();
        assert_eq!(TABLE.record(TABLE.find(key(1, 1))).duration_ns(), u64::from(UNKNOWN_NS));
        assert_eq!(TABLE.record(TABLE.find(graph_key(1))).kernels(), 3);
        TABLE.forget(graph_key(1));
        assert_eq!(TABLE.record(TABLE.find(graph_key(1))).kernels(), 0);
        for function in 0..100_000 {
            assert!(TABLE.find(key(function, 1)) as usize <= RECORDS);
        }
    }

    fn key(function: usize) -> u64 {
        kernel_key(function, [1; 3], [1; 3], 0)
    }

    #[test]
    fn what_follows_is_found_whatever_followed_before() {
        static TABLE: KernelTable = KernelTable::new();
        let numbers: Vec<u32> = (1..=3).map(|function| TABLE.find_after(u32::MAX, key(function))).collect();
        assert_eq!(numbers, [0, 1, 2], "those that come after each other are neighbours");
        for (last, function) in [(0, 2), (0, 2), (0, 3), (0, 2), (2, 2), (u32::MAX, 1), (u32::MAX, 1)] {
            assert_eq!(TABLE.find_after(last, key(function)), function as u32 - 1);
        }
        TABLE.forget_kernels();
        assert_eq!(TABLE.find_after(u32::MAX, key(7)), 0, "in the record of what was forgotten");
        assert_eq!(TABLE.find_after(0, key(1)), 1, "as something new");
    }

    #[test]
    fn a_table_that_is_full_has_room_for_what_comes_after_it_was_forgotten() {
        static TABLE: KernelTable = KernelTable::new();
        let graph = TABLE.find(graph_key(1));
        for round in 0..3 {
            let found = |function: usize| TABLE.find(key(round * 10_000 + function));
            let kept: Vec<u32> = (0..2_000).map(found).collect();
            assert!(kept.iter().all(|number| (*number as usize) < RECORDS), "round {round}");
            assert_eq!((0..2_000).map(found).collect::<Vec<_>>(), kept);
            let rest = (2_000..6_000).filter(|function| found(*function) as usize == RECORDS).count();
            assert!(rest > 1_000, "{rest} of them had no room");
            TABLE.forget_kernels();
        }
        assert_eq!(TABLE.find(graph_key(1)), graph);
    }

    #[test]
    fn threads_that_meet_the_same_at_once_agree() {
        static TABLE: KernelTable = KernelTable::new();
        let meet = || (0..2_000).map(|function| TABLE.find(key(function))).collect::<Vec<u32>>();
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..4).map(|_| scope.spawn(meet)).collect();
            let mine = meet();
            for other in others {
                assert_eq!(other.join().unwrap(), mine);
            }
        });
        let mut numbers = meet();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 2_000, "each has a record of its own");
    }

    #[test]
    fn a_busy_neighbour_hardly_moves_an_estimate() {
        let record = KernelRecord::EMPTY;
        record.measure(210_000);
        for round in 0..200 {
            record.measure(if round % 5 == 0 { 100_000 } else { 200_000 });
            assert!(record.duration_ns() == 100_000 || round < 8, "{round}: {}", record.duration_ns());
        }
        for _ in 0..16 {
            record.measure(150_000);
        }
        assert_eq!(record.duration_ns(), 150_000, "it really takes longer now");
    }

    #[test]
    fn what_all_of_a_round_allow_is_believed() {
        let (record, slice) = (KernelRecord::EMPTY, 2_000_000);
        for (at_least, at_most) in [(3_000, 2_003_000), (1_300_000, 3_300_000), (2_000_000, 4_020_000)] {
            record.measure_between(at_least, at_most, slice);
        }
        assert_eq!(record.duration_ns(), 2_003_000, "too long is better than too short until it is known");
        for _ in 3..ROUND {
            record.measure_between(1_900_000, 3_900_000, slice);
        }
        assert_eq!(record.duration_ns(), 2_002_396);
        for _ in 0..ROUND {
            record.measure_between(10_000, 2_010_000, slice);
        }
        assert_eq!(record.duration_ns(), 2_000_000, "a short one would not always have been interrupted");
    }

    #[test]
    fn syncs_teach_durations() {
        let record = KernelRecord::EMPTY;
        for _ in 0..60 {
            let predicted = record.duration_ns() * 10;
            record.correct(120_000, predicted, false);
        }
        assert!((11_000..13_000).contains(&record.duration_ns()), "{}", record.duration_ns());
        record.correct(u64::MAX, 0, true);
        record.correct(0, u64::MAX, false);
    }

    #[test]
    fn gaps_are_believed_slowly_and_doubted_at_once() {
        let record = KernelRecord::EMPTY;
        for _ in 0..50 {
            record.followed_by_gap(100_000);
        }
        assert!(record.gap_ns() > 90_000);
        record.followed_by_gap(0);
        record.followed_by_gap(0);
        assert!(record.gap_ns() < 30_000);
        for _ in 0..30 {
            record.followed_by_gap(0);
        }
        assert_eq!(record.gap_ns(), 0);
    }
}
