//! Sleeping until a word in shared memory changes.
//!
//! Whoever waits passes what it last saw; if the word has changed since, it does not sleep. Nobody has to be woken for
//! that to hold: a wait ends by its timeout at the latest, so a waker that dies costs one timeout.

use rustix::thread::futex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word is `seen`, until somebody [wakes](wake) its sleepers, a signal comes or the time is up. The
/// caller looks again in any case.
pub fn wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // By the C library, as the clock is, so that a test can stand in for both. Every outcome means the same to the
    // caller: look again.
    // SAFETY: both references are valid for the call, which reads the word and the timeout and writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
}

/// Wakes all that sleep on a word, in all processes.
pub fn wake(word: &AtomicU32) {
    // Without sleepers, or under Miri, there is nobody to wake.
    if !cfg!(miri) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn a_change_is_never_slept_over() {
        let word = AtomicU32::new(0);
        let began = Instant::now();
        wait(&word, 1, Duration::from_secs(100));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                word.store(1, Ordering::Release);
                wake(&word);
            });
            while word.load(Ordering::Acquire) == 0 {
                wait(&word, 0, Duration::from_secs(100));
            }
        });
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn a_wait_that_nobody_ends_ends() {
        wait(&AtomicU32::new(7), 7, Duration::from_millis(1));
    }
}
