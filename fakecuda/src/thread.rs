//! A number for each thread.

use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static THREAD: u64 = {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed)
    };
}

/// A number for this thread that no other has or had.
pub(crate) fn thread_id() -> u64 {
    THREAD.with(|number| *number)
}
