//! Which streams have work that the program has not waited for.
//!
//! A sync says that the GPU is done when it covers everything that was launched, and programs use several streams: what
//! one of them did long ago, or what the one that is waited for waited for itself, is covered, too.
//!
//! The stream that was launched to last is kept apart, so that a launch to the same one costs a comparison. Several
//! threads may launch at once; then one of them may be missed, which costs an estimate.

#![deny(unsafe_code)]

use share_core::Patience;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Streams that are kept beside the last one. Of more, the oldest is forgotten.
const OTHERS: usize = 8;
/// Work that a stream got so long ago is done, though nobody waited for it. Nobody believes a wait for twice as long.
const FORGOTTEN_NS: u64 = Patience::USUAL.sync_ns / 2;
/// No stream.
const NONE: u64 = u64::MAX;

/// The streams of one GPU in one process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Streams {
    last: AtomicU64,
    others: [Launched; OTHERS],
}

/// What was last launched to a stream: how many launches to all streams there were by then, and when it was.
#[derive(Debug)]
struct Launched {
    stream: AtomicU64,
    sequence: AtomicU64,
    at_ns: AtomicU64,
}

impl Streams {
    /// Nothing was launched.
    pub(crate) const fn new() -> Streams {
        let nothing = [const {
            Launched { stream: AtomicU64::new(NONE), sequence: AtomicU64::new(0), at_ns: AtomicU64::new(0) }
        }; OTHERS];
        Streams { last: AtomicU64::new(NONE), others: nothing }
    }

    /// Something is launched to a stream; the launch before it was the `sequence`th, `at_ns`.
    #[inline]
    pub(crate) fn launch(&self, stream: u64, sequence: u64, at_ns: u64) {
        if self.last.load(Relaxed) != stream {
            self.turn_to(stream, sequence, at_ns);
        }
    }

    /// Whether it is the one that was launched to last.
    #[inline(always)]
    pub(crate) fn is_last(&self, stream: u64) -> bool {
        self.last.load(Relaxed) == stream
    }

    #[cold]
    fn turn_to(&self, stream: u64, sequence: u64, at_ns: u64) {
        let before = self.last.swap(stream, Relaxed);
        self.drop_other(stream);
        if before != NONE {
            self.keep(before, sequence, at_ns);
        }
    }

    fn keep(&self, stream: u64, sequence: u64, at_ns: u64) {
        let free = self.others.iter().find(|other| other.stream.load(Relaxed) == NONE);
        let oldest = || self.others.iter().min_by_key(|other| other.at_ns.load(Relaxed));
        if let Some(other) = free.or_else(oldest) {
            other.sequence.store(sequence, Relaxed);
            other.at_ns.store(at_ns, Relaxed);
            other.stream.store(stream, Relaxed);
        }
    }

    fn other(&self, stream: u64) -> Option<&Launched> {
        self.others.iter().find(|other| is_same(other.stream.load(Relaxed), stream))
    }

    fn drop_other(&self, stream: u64) {
        if let Some(other) = self.other(stream) {
            other.stream.store(NONE, Relaxed);
        }
    }

    /// Whether to wait for a stream is to wait for everything.
    pub(crate) fn are_covered_by(&self, stream: u64, now_ns: u64) -> bool {
        let last = self.last.load(Relaxed);
        let mut others = self.others.iter().filter(|other| !is_same(other.stream.load(Relaxed), stream));
        (last == NONE || is_same(last, stream)) && !others.any(|other| other.counts(now_ns))
    }

    /// What a stream was given before there had been more than `sequence` launches is done.
    pub(crate) fn done(&self, stream: u64, sequence: u64) {
        if let Some(other) = self.other(stream).filter(|other| other.sequence.load(Relaxed) <= sequence) {
            other.stream.store(NONE, Relaxed);
        }
    }

    /// A stream waits for another, for what it was given before there had been more than `sequence` launches. Whoever
    /// waits for the one waits for both.
    pub(crate) fn join(&self, waits: u64, for_stream: u64, sequence: u64, launches: u64) {
        if is_same(waits, for_stream) {
            return;
        }
        if is_same(self.last.load(Relaxed), for_stream) {
            if sequence >= launches {
                self.last.store(waits, Relaxed);
                self.drop_other(waits);
            }
        } else if let Some(other) = self.other(for_stream).filter(|other| other.sequence.load(Relaxed) <= sequence) {
            let (sequence, at_ns) = (other.sequence.load(Relaxed), other.at_ns.load(Relaxed));
            other.stream.store(NONE, Relaxed);
            if !is_same(self.last.load(Relaxed), waits) && self.other(waits).is_none() {
                self.keep(waits, sequence, at_ns);
            }
        }
    }

    /// The GPU has nothing to do.
    pub(crate) fn idle(&self) {
        self.last.store(NONE, Relaxed);
        for other in &self.others {
            other.stream.store(NONE, Relaxed);
        }
    }
}

impl Launched {
    fn counts(&self, now_ns: u64) -> bool {
        self.stream.load(Relaxed) != NONE && self.at_ns.load(Relaxed).saturating_add(FORGOTTEN_NS) > now_ns
    }
}

/// The default stream has two names.
fn is_same(one: u64, other: u64) -> bool {
    one == other || one < 2 && other < 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = 1_000_000;

    #[test]
    fn a_wait_for_the_only_stream_is_a_wait_for_all() {
        let streams = Streams::new();
        let covered = |stream| streams.are_covered_by(stream, LATER);
        assert!(covered(7), "there is nothing to wait for");
        streams.launch(7, 0, 0);
        streams.launch(7, 1, 0);
        assert!(covered(7) && !covered(8));
        streams.launch(8, 2, LATER);
        assert!(!covered(8) && !covered(7), "each has something");
        streams.done(7, 1);
        assert!(!covered(8), "7 was given more than that");
        streams.done(7, 2);
        assert!(covered(8));
        streams.launch(0, 3, LATER);
        streams.done(8, u64::MAX);
        assert!(covered(0) && covered(1) && !covered(2), "the default stream has two names");
        streams.idle();
        assert!(covered(9));
    }

    #[test]
    fn what_was_long_ago_is_done() {
        let streams = Streams::new();
        streams.launch(7, 0, 0);
        streams.launch(0, 1, LATER);
        assert!(!streams.are_covered_by(0, LATER + FORGOTTEN_NS - 1));
        assert!(streams.are_covered_by(0, LATER + FORGOTTEN_NS));
    }

    #[test]
    fn who_waits_for_a_stream_waits_for_what_that_waited_for() {
        let streams = Streams::new();
        // Two launches to 7, then 8 waits for them, and is launched to.
        streams.launch(7, 0, 0);
        streams.launch(7, 1, 0);
        streams.join(8, 7, 2, 2);
        streams.launch(8, 2, 0);
        assert!(streams.are_covered_by(8, LATER));
        // A launch that came after the event is not waited for.
        streams.launch(7, 3, LATER);
        streams.join(8, 7, 3, 4);
        assert!(!streams.are_covered_by(8, LATER));
        // The other way round: the last one is launched to first.
        streams.idle();
        streams.launch(7, 0, LATER);
        streams.launch(8, 1, LATER);
        streams.join(8, 7, 1, 2);
        assert!(streams.are_covered_by(8, LATER));
        streams.launch(9, 2, LATER);
        streams.join(0, 8, 2, 3);
        streams.join(0, 9, 3, 3);
        assert!(streams.are_covered_by(0, LATER), "it waited for both");
    }

    #[test]
    fn more_streams_than_are_kept_are_no_harm() {
        let streams = Streams::new();
        for stream in 0..1_000 {
            streams.launch(stream, stream, stream);
        }
        assert!(!streams.are_covered_by(999, LATER));
        assert!(streams.are_covered_by(999, LATER + FORGOTTEN_NS));
    }
}
