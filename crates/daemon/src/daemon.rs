//! A running daemon: starting it, stopping it, waiting for its end.

use crate::config::Config;
use crate::event_loop;
use crate::state::DaemonState;
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use shm::Listener;
use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A daemon that runs. Dropping it leaves it running.
#[derive(Debug)]
pub struct Daemon {
    thread: JoinHandle<()>,
    stop: Arc<OwnedFd>,
}

impl Daemon {
    /// Starts a daemon, unless one listens there already.
    ///
    /// Each GPU in use needs some two hundred open files; the caller raises the process's limit.
    pub fn start(config: Config) -> Result<Daemon> {
        config.paths.prepare()?;
        let lock = config.paths.lock()?;
        let path = &config.paths.socket;
        let listener = Listener::bind(path).with_context(|| format!("listen at {}", path.display()))?;
        // Other users may connect: the kernel says who each of them is, and that decides what they may do.
        std::fs::set_permissions(path, Permissions::from_mode(0o666))
            .with_context(|| format!("open {} to other users", path.display()))?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("make an event")?);
        let state = DaemonState::new(config, listener, lock, stop.clone());
        let thread = std::thread::Builder::new().name("weft-sharing".into()).spawn(move || event_loop::run(state));
        Ok(Daemon { thread: thread.context("start a thread")?, stop })
    }

    /// Asks the daemon to end. Programs go on without it.
    pub fn stop(&self) {
        request_stop(&self.stop);
    }

    /// A function that stops the daemon from another thread.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let stop = self.stop.clone();
        move || request_stop(&stop)
    }

    /// Waits until the daemon has ended.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the sharing daemon broke; programs go on without it");
        }
    }
}

fn request_stop(stop: &OwnedFd) {
    // The write fails only when the counter is full, and then the event is set already.
    let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
}
