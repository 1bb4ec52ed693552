//! The threads of whatever serves until it is told to end.

use anyhow::{Context, Result};

/// The threads that speak to clients and decide: half as many as there are cores. The other half is for the models,
/// and requests that meet on few threads are cheaper than those that meet on many.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    node::raise_file_limit();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 2).max(1))
        .enable_all()
        .thread_name("weft")
        .build()
        .context("start threads")
}
