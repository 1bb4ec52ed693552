//! What the kernel promises of a futex: to look at the word and to go to sleep are one step to whoever wakes. There is no
//! timeout, so that a change that would be slept over is found.

use crate::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use std::time::Duration;

loom::lazy_static! {
    static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

/// Sleeps while the word is `seen`, until somebody wakes its sleepers.
pub fn wait(word: &AtomicU32, seen: u32, _: Duration) {
    let (step, sleepers) = &*SLEEPERS;
    let step = step.lock().unwrap();
    if word.load(Ordering::Relaxed) == seen {
        drop(sleepers.wait(step).unwrap());
    }
}

/// Wakes all that sleep.
pub fn wake(_: &AtomicU32) {
    let (step, sleepers) = &*SLEEPERS;
    drop(step.lock().unwrap());
    sleepers.notify_all();
}
