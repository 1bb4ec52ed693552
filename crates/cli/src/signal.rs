//! The second Ctrl-C or SIGTERM, and the end of the parent process.

use anyhow::{Context, Result};
use harness::{INTERRUPTED, wait_for_signal};

/// Ends this process at the next Ctrl-C or SIGTERM, whatever it is doing.
pub(crate) fn end_at_second_signal() {
    let signal = wait_for_signal();
    tokio::spawn(async move {
        if signal.await.is_ok() {
            tracing::warn!("told to end a second time: ending at once");
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Has the kernel send SIGTERM when the parent is gone: to this process, and to the program that it may become.
pub(crate) fn end_with_parent() -> Result<()> {
    let signal = Some(rustix::process::Signal::TERM);
    rustix::process::set_parent_process_death_signal(signal).context("hear of the parent's end")
}
