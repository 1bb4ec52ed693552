//! What a daemon must be told.

use policy::sharing::SharingConfig;
use share_client::{DaemonPaths, Gpus};
use std::path::PathBuf;
use std::time::Duration;

/// What a daemon must be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub paths: DaemonPaths,
    /// The GPUs that it shares.
    pub gpus: Gpus,
    /// After how long without tenants it ends by itself; `None` for never.
    pub idle_exit: Option<Duration>,
    /// Where to keep a journal of each GPU.
    pub record: Option<PathBuf>,
    /// How GPUs are shared.
    pub sharing: SharingConfig,
}
