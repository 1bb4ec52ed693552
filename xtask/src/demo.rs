//! The main job, from nothing: build Weft and run `weft demo`.

use crate::workspace::Workspace;
use crate::{peers, setup};
use anyhow::{Context, Result};
use std::io::IsTerminal;

/// Build Weft and run `weft demo` with an ONNX model besides.
///
/// Serves a real ONNX model (magika, from its PyPI wheel), models in Python and a virtual one on emulated GPUs, with a
/// training beside them on a stand-in GPU where there is none. Prints the dashboard's address and a summary of each model,
/// and, in a terminal, goes on until Ctrl-C.
///
/// Example: cargo xtask demo
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Stop after the summary, even in a terminal.
    #[arg(long)]
    once: bool,
}

pub(crate) fn demo(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    eprintln!("== build (the first time, minutes)");
    setup::build_weft(workspace)?;
    let state = workspace.output("demo")?.join("state");
    let state = state.to_str().context("write the state: its path is not text")?;
    eprintln!("\n== set up what workers need, in {state}");
    workspace.weft(["setup", "--state", state]).run()?;
    let magika = peers::magika(workspace)?;
    let magika = magika.to_str().context("serve magika: its path is not text")?;

    eprintln!("\n== serve");
    // Ctrl-C reaches `weft demo` as well; it answers what it has accepted, and this program waits for that.
    ctrlc::set_handler(|| {}).context("listen for Ctrl-C")?;
    let once = arguments.once || !std::io::stderr().is_terminal();
    let words = ["demo", "--state", state, "--magika", magika];
    workspace.weft(words.into_iter().chain(once.then_some("--once"))).run().map(drop)
}
