//! Time that all processes of the machine agree on, and waiting for it.
//!
//! Waiting sleeps to within [`SPIN_NS`] of the time and yields the processor for the rest: precise to a few microseconds
//! where a core is free, and cheap where none is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local!(static STAND_IN: Cell<Option<&'static AtomicU64>> = const { Cell::new(None) });

/// How much of a wait is spent awake.
const SPIN_NS: u64 = 30_000;

/// Has this thread see another clock, that of a test.
pub(crate) fn stand_in(clock: Option<&'static AtomicU64>) {
    STAND_IN.set(clock);
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    if let Some(clock) = STAND_IN.get() {
        return clock.load(Ordering::SeqCst);
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer, and this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns at `until_ns` or a little later.
pub(crate) fn wait_until(until_ns: u64) {
    let now = now_ns();
    if until_ns > now + SPIN_NS {
        sleep_until(until_ns - SPIN_NS);
    }
    while now_ns() < until_ns {
        std::thread::yield_now();
    }
}

fn sleep_until(until_ns: u64) {
    thread_local!(static PRECISE: Cell<bool> = const { Cell::new(false) });
    if !PRECISE.replace(true) {
        // SAFETY: sets this thread's timer slack, a number; it reads or writes no memory of ours.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    }
    let time = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is a valid time to read; no place is given for the rest, which absolute sleeps do not report. A
    // signal ends it early, and the caller looks at the clock again.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, std::ptr::null_mut()) };
}
