//! The three servers of a gateway, and the hidden command that is a worker.

use crate::up::settings::Settings;
use anyhow::Result;
use clap::Args;
use gateway::Gateway;
use node::Node;
use std::ffi::OsString;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A worker process.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// What it runs: `onnx`.
    kind: String,
    /// What the node says to it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Worker {
    pub(crate) fn main(self) -> Result<()> {
        anyhow::ensure!(self.kind == "onnx", "run a worker of kind `{}`: only `onnx` is known", self.kind);
        node::worker::onnx(self.arguments)
    }
}

/// Servers that run.
pub(crate) struct Servers {}

pub(crate) fn start(
    _settings: &Settings,
    _gateway: Arc<Gateway>,
    _node: Arc<Node>,
    _listeners: [TcpListener; 3],
    _stopping: watch::Receiver<bool>,
) -> Result<Servers> {
    Ok(Servers {})
}

impl Servers {
    pub(crate) async fn finish(self) -> Result<()> {
        Ok(())
    }
}
