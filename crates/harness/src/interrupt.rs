//! The way to end a measurement early: Ctrl-C, or a polite kill.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants to stop. Everything that waits looks at it many times a second.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on; signals end this process no longer.
    pub fn listen() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let flag = interrupt.0.clone();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("listen for signals")?;
        // Made here, so that no signal falls between this and the thread.
        let signal = {
            let _entered = runtime.enter();
            crate::signal::wait_for_signal()
        };
        let watch = move || {
            if runtime.block_on(signal).is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("interrupt".into()).spawn(watch).context("listen for signals")?;
        Ok(interrupt)
    }

    /// Whether somebody asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
