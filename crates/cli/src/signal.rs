//! Ctrl-C and SIGTERM.

use anyhow::{Context, Result};
use std::future::Future;

/// Waits for Ctrl-C or SIGTERM.
pub(crate) fn wait_for_signal() -> impl Future<Output = Result<()>> {
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

/// Ends this process at the next Ctrl-C or SIGTERM, whatever it is doing.
pub(crate) fn end_at_second_signal() {
    let signal = wait_for_signal();
    tokio::spawn(async move {
        if signal.await.is_ok() {
            tracing::warn!("told to end a second time: ending at once");
            std::process::exit(crate::output::INTERRUPTED);
        }
    });
}
