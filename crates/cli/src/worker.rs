//! `weft worker`: the process in which a model runs. Nodes start these; people do not.

use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What it runs: `onnx`.
    kind: String,
    /// What the node says to it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    anyhow::ensure!(arguments.kind == "onnx", "run a worker of kind `{}`: only `onnx` is known", arguments.kind);
    node::worker::onnx(arguments.arguments)
}
