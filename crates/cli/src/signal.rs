//! The second Ctrl-C or SIGTERM.

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
