//! What a program knows of its kernels from one run to the next.
//!
//! The daemon fills the page with what earlier runs of the program left, hands it out to be read and written, and reads
//! it again when the process is gone. A note is found by an identity that is the same in every run. There is one writer
//! at a time, the process; a note that is torn, or rubbish, is a wrong estimate and nothing more, and is soon corrected.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::page::PAGE_BYTES;

/// Notes in a page.
pub const NOTES: usize = if cfg!(loom) { PROBES } else { 4096 };
/// Places that a note may be in.
const PROBES: usize = 8;

/// A hash that is the same in every run and every build (FNV-1a).
pub fn stable_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What is known of one kernel or graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its identity, never 0.
    pub key: u64,
    /// How long it takes.
    pub duration_ns: u32,
    /// How long nothing is launched after it.
    pub gap_ns: u32,
}

#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
struct Place {
    key: AtomicU64,
    duration_ns: AtomicU32,
    gap_ns: AtomicU32,
}

/// Notes of one program, in sixteen pages.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct NotesPage {
    places: [Place; NOTES],
}

impl NotesPage {
    /// What is known of an identity.
    pub fn find(&self, key: u64) -> Option<Note> {
        self.candidates(key).map(Place::read).find(|note| key != 0 && note.key == key)
    }

    /// Writes a note, in the place of what it was before, or of another where there is no room.
    pub fn put(&self, note: Note) {
        let has = |key: u64| self.candidates(note.key).find(|place| place.key.load(Ordering::Relaxed) == key);
        let place = has(note.key).or_else(|| has(0)).or_else(|| self.candidates(note.key).next());
        if let Some(place) = place.filter(|_| note.key != 0) {
            place.key.store(0, Ordering::Relaxed);
            place.duration_ns.store(note.duration_ns, Ordering::Relaxed);
            place.gap_ns.store(note.gap_ns, Ordering::Relaxed);
            place.key.store(note.key, Ordering::Release);
        }
    }

    /// All that there is.
    pub fn read(&self) -> Vec<Note> {
        self.places.iter().map(Place::read).filter(|note| note.key != 0).collect()
    }

    /// Nothing is known any more.
    pub fn clear(&self) {
        for place in &self.places {
            place.key.store(0, Ordering::Relaxed);
        }
    }

    fn candidates(&self, key: u64) -> impl Iterator<Item = &Place> {
        (0..PROBES).map(move |probe| &self.places[((key >> 20) as usize).wrapping_add(probe) % NOTES])
    }
}

impl Place {
    fn read(&self) -> Note {
        Note {
            key: self.key.load(Ordering::Acquire),
            duration_ns: self.duration_ns.load(Ordering::Relaxed),
            gap_ns: self.gap_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<NotesPage>() == 16 * PAGE_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::OwnPage;

    #[test]
    #[cfg(not(miri))]
    fn what_is_written_is_found_and_the_latest_counts() {
        let (page, file) = OwnPage::<NotesPage>::create("notes", true).unwrap();
        let process = OwnPage::<NotesPage>::open(std::os::fd::AsFd::as_fd(&file)).unwrap();
        let note = |key: u64, duration_ns| Note { key: key << 20, duration_ns, gap_ns: 7 };
        for key in 1..=3_000 {
            process.put(note(key, 10));
        }
        process.put(note(5, 20));
        assert_eq!(page.find(5 << 20), Some(note(5, 20)));
        assert_eq!(page.read().len(), 3_000);
        assert_eq!(page.find(3_001 << 20), None);
        process.put(Note { key: 0, duration_ns: 1, gap_ns: 1 });
        assert_eq!(page.find(0), None);
        page.clear();
        assert!(process.read().is_empty());
    }

    #[test]
    #[cfg(not(miri))]
    fn a_full_page_forgets_others() {
        let (page, _file) = OwnPage::<NotesPage>::create("notes", true).unwrap();
        for key in 1..=10_000u64 {
            page.put(Note { key: key << 20, duration_ns: 1, gap_ns: 0 });
            assert!(page.find(key << 20).is_some());
        }
        assert!(page.read().len() <= NOTES);
    }
}
