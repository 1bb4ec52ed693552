//! Which launches are captured, and the time in which nothing may be asked of the driver, because a question in the wrong
//! place ends the program's capture.
//!
//! Which launches are captured is known without asking: those on a stream that captures, and those by a thread that
//! began a capture, which may have drawn other streams into it.

#![deny(unsafe_code)]

use crate::hot::HOT;
use crate::types::Stream;
use share_core::Patience;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Captures at a time that are told apart.
const CAPTURES: usize = 64;

/// Nobody waits longer for our own questions to be answered before a capture begins.
const SETTLE_NS: u64 = Patience::USUAL.late_ns;

struct Capture {
    /// The stream + 1; 0 for nobody.
    stream: AtomicU64,
    thread: AtomicU64,
}

static CAPTURING: [Capture; CAPTURES] =
    [const { Capture { stream: AtomicU64::new(0), thread: AtomicU64::new(0) } }; CAPTURES];
/// Questions of ours that the driver is answering.
static ASKING: AtomicU32 = AtomicU32::new(0);

/// Whether anything is captured.
#[inline]
pub(crate) fn active() -> bool {
    HOT.captures.load(Ordering::Relaxed) != 0
}

/// Whether a launch by this thread on this stream is captured.
#[cold]
pub(crate) fn covers(stream: Stream) -> bool {
    let thread = this_thread();
    CAPTURING.iter().any(|capture| {
        let captured = capture.stream.load(Ordering::Acquire);
        captured != 0 && (captured == stream.0 as u64 + 1 || capture.thread.load(Ordering::Relaxed) == thread)
    })
}

/// Leave to ask the driver something, as long as it is held; none while anything is captured.
pub(crate) struct Asking(());

pub(crate) fn ask() -> Option<Asking> {
    ASKING.fetch_add(1, Ordering::SeqCst);
    let asking = Asking(());
    (HOT.captures.load(Ordering::SeqCst) == 0).then_some(asking)
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until nobody asks the driver anything, for a while.
pub(crate) fn settle() {
    let began = shm::now_ns();
    while ASKING.load(Ordering::SeqCst) != 0 && shm::now_ns() - began < SETTLE_NS {
        std::thread::yield_now();
    }
}

/// Writes down that this thread captures a stream.
pub(crate) fn note(stream: Stream) {
    let place = CAPTURING.iter().find(|capture| {
        let taken = capture.stream.compare_exchange(0, stream.0 as u64 + 1, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    });
    if let Some(capture) = place {
        capture.thread.store(this_thread(), Ordering::Release);
    }
}

/// A stream is not captured any more.
pub(crate) fn over(stream: Stream) {
    for capture in &CAPTURING {
        let ended = capture.stream.compare_exchange(stream.0 as u64 + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
        if ended.is_ok() {
            HOT.captures.fetch_sub(1, Ordering::SeqCst);
            return;
        }
    }
}

/// In a child after `fork`: nothing is captured.
pub(crate) fn forget() {
    for capture in &CAPTURING {
        capture.stream.store(0, Ordering::Relaxed);
    }
    HOT.captures.store(0, Ordering::SeqCst);
    ASKING.store(0, Ordering::SeqCst);
}

fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    let number = NUMBER.try_with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    });
    number.unwrap_or(0)
}
