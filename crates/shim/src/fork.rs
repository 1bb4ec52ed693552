//! A child made by `fork` begins with nothing of its parent's.
//!
//! The child has the parent's memory and files, but is another process to the daemon. It closes its copy of the
//! connection, so that the daemon sees the parent's end, maps zeros over the parent's pages, and attaches anew if it ever
//! uses a GPU. A program started with `exec` begins with nothing anyway: all our files are closed on exec.

use crate::allocations::{ALLOCATIONS, AllocationTracker};
use crate::gpu::{self, Gpu};
use crate::hot::{HOT, NO_GPU};
use crate::{capture, fast_path, preempt};
use std::sync::Once;
use std::sync::atomic::Ordering;

/// Makes sure that children forget. Called before anything is made that they must forget.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `forgotten` is a function of this library, which is never unloaded.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forgotten)) };
    });
}

/// Runs in the child before `fork` returns there; it has one thread. System calls and atomics alone.
extern "C" fn forgotten() {
    let _ = std::panic::catch_unwind(|| {
        capture::forget();
        preempt::forget();
        forget_gpus();
    });
}

/// No GPU is in use, nor about to be.
fn forget_gpus() {
    gpu::all().for_each(Gpu::forget);
    HOT.only.store(NO_GPU, Ordering::Release);
    fast_path::end();
    ALLOCATIONS.force_open();
    // The parent may have been in the middle of a change; what the entries refer to is the parent's.
    std::mem::forget(std::mem::replace(&mut *ALLOCATIONS.lock(), AllocationTracker::new()));
}
