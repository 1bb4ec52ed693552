//! Notes about a program's kernels, from earlier runs and for later ones.
//!
//! Handles differ from run to run, so a kernel is known by its name and how it is launched, and a graph by how many
//! kernels it has and how many graphs were made before it. Names are those that the program asked the driver for; a
//! function whose name was never asked for is measured again in every run. The daemon keeps the notes, one page for a process.

#![deny(unsafe_code)]

use crate::identity::{KERNELS, KernelRecord, kernel_key};
use shm::{PageWindow, now_ns, stable_hash};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Functions whose names are kept, and the places that one may be in.
const FUNCTIONS: usize = 16_384;
const PROBES: usize = 16;
/// Places whose notes are written for each millisecond since the last time, and at least.
const PUBLISHED_PER_MS: u64 = 2;
const PUBLISHED_MIN: u64 = 8;

static NAMES: Names = Names::new();
static GRAPHS: AtomicU64 = AtomicU64::new(0);

/// Hashes of names by handle.
struct Names {
    entries: [(AtomicU64, AtomicU64); FUNCTIONS],
}

impl Names {
    const fn new() -> Names {
        Names { entries: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; FUNCTIONS] }
    }

    fn set(&self, handle: usize, hash: u64) {
        if let Some(name) = self.entry(handle as u64, true).filter(|_| handle != 0) {
            name.store(hash, Ordering::Release);
        }
    }

    fn entry(&self, handle: u64, may_be_new: bool) -> Option<&AtomicU64> {
        let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let candidates = (0..PROBES).map(|probe| &self.entries[first.wrapping_add(probe) % FUNCTIONS]);
        for (owner, name) in candidates {
            let there = owner.load(Ordering::Acquire);
            let claimed = || owner.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire);
            if there == handle || there == 0 && may_be_new && claimed().map_or_else(|is| is == handle, |_| true) {
                return Some(name);
            }
        }
        None
    }
}

/// The driver gave out this handle for a function of this name.
pub(crate) fn is_named(handle: usize, name: &[u8]) {
    NAMES.set(handle, stable_hash(name));
}

/// The driver gave out another handle for the same function.
pub(crate) fn is_also(handle: usize, other: usize) {
    if let Some(name) = NAMES.entry(other as u64, false) {
        NAMES.set(handle, name.load(Ordering::Acquire));
    }
}

/// The identity of a kernel's launch that is the same in every run, if its name is known.
pub(crate) fn of_kernel(function: usize, grid: [u32; 3], block: [u32; 3], shared: u32) -> Option<u64> {
    let name = NAMES.entry(function as u64, false)?.load(Ordering::Acquire);
    (name != 0).then(|| kernel_key(name as usize, grid, block, shared))
}

/// The identity of the next graph that is made, which has so many kernels.
pub(crate) fn of_next_graph(kernels: u32) -> u64 {
    let before = GRAPHS.fetch_add(1, Ordering::Relaxed);
    kernel_key(before as usize, [kernels, 0, 0], [0; 3], 0) | 1
}

/// Something new is launched: what is known of it from earlier runs is believed until it is measured.
#[cold]
pub(crate) fn introduce(window: &PageWindow, record: &KernelRecord, identity: Option<u64>) {
    record.set_note(identity);
    if let Some(note) = identity.and_then(|key| window.notes().find(key)) {
        record.recall(note.duration_ns, note.gap_ns);
    }
}

/// How far publishing has come.
pub(crate) struct Progress {
    next: AtomicU32,
    published_ns: AtomicU64,
}

impl Progress {
    pub(crate) const fn new() -> Progress {
        Progress { next: AtomicU32::new(0), published_ns: AtomicU64::new(0) }
    }
}

/// Writes some of what is known for the next run, as many as are due.
pub(crate) fn publish_some(progress: &Progress, window: &PageWindow) {
    let now_ns = now_ns();
    let passed = now_ns.saturating_sub(progress.published_ns.swap(now_ns, Ordering::Relaxed)) / 1_000_000;
    let count = passed.saturating_mul(PUBLISHED_PER_MS).max(PUBLISHED_MIN).min(u64::from(KERNELS.count())) as u32;
    let first = progress.next.fetch_add(count, Ordering::Relaxed);
    publish(window, first, count);
}

/// Writes all of it: the page is a new one.
pub(crate) fn publish_all(window: &PageWindow) {
    publish(window, 0, KERNELS.count());
}

fn publish(window: &PageWindow, first: u32, count: u32) {
    let all = KERNELS.count().max(1);
    for number in (0..count).map(|index| first.wrapping_add(index) % all) {
        if let Some(note) = KERNELS.record(number).note() {
            window.notes().put(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_name_whatever_its_handle() {
        let of = |handle, grid| of_kernel(handle, [grid, 1, 1], [128, 1, 1], 0);
        is_named(0x7000, b"gemm");
        is_named(0x8000, b"relu");
        is_named(0x9000, b"gemm");
        is_also(0xa000, 0x9000);
        assert!(of(0x7000, 4).is_some());
        assert_eq!(of(0x7000, 4), of(0x9000, 4));
        assert_eq!(of(0x7000, 4), of(0xa000, 4));
        assert_ne!(of(0x7000, 4), of(0x7000, 8));
        assert_ne!(of(0x7000, 4), of(0x8000, 4));
        assert_eq!(of(0xb000, 4), None);
        is_named(0x7000, b"relu");
        assert_eq!(of(0x7000, 4), of(0x8000, 4), "the handle was given to another");
    }

    #[test]
    fn notes_of_one_run_serve_the_next_until_it_measures() {
        let window = PageWindow::reserve().unwrap();
        let record = KERNELS.record(KERNELS.find(kernel_key(0xbeef, [1; 3], [1; 3], 0)));
        introduce(&window, record, Some(77 << 20));
        assert!(record.note().is_none(), "nothing is known yet");
        record.measure(1_000_000);
        publish_all(&window);
        let next = KernelRecord::EMPTY;
        introduce(&window, &next, Some(77 << 20));
        assert_eq!(next.duration_ns(), 1_000_000);
        next.measure(400_000);
        assert_eq!(next.duration_ns(), 400_000);
    }

    #[test]
    fn more_functions_than_fit_are_not_known() {
        static FULL: Names = Names::new();
        let handles = || (1..3 * FUNCTIONS).map(|handle| handle << 8);
        handles().for_each(|handle| FULL.set(handle, 7));
        let known = handles().filter(|handle| FULL.entry(*handle as u64, false).is_some()).count();
        assert!(known <= FUNCTIONS && known > FUNCTIONS / 2, "{known}");
    }
}
