//! Ctrl-C and SIGTERM.

use anyhow::{Context, Result};
use std::future::Future;

/// Waits for Ctrl-C or SIGTERM. Signals are caught from this call on, not only once the future is polled.
pub fn wait_for_signal() -> impl Future<Output = Result<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let streams = (|| Ok::<_, std::io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)))();
    async move {
        let (mut interrupt, mut terminate) = streams.context("listen for signals")?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    }
}
