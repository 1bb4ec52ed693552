//! What only a real GPU can show: the programs in `tests/gpu`.

use crate::program::Program;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};

/// Run real programs under shares on this machine's GPU, print a table and write docs/benchmarks/gpu.md.
///
/// Needs an NVIDIA GPU with its driver, gcc and PyTorch; without a GPU it says so and does nothing. tests/gpu/run.py is
/// the whole of it and runs where there is no Rust, too. Beside it, weights.py and serving.py are run by hand: shared
/// weights, and a trace that is served beside a training.
///
/// Example: cargo xtask gpu-test --quick
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn gpu_test(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    if !Program::new("nvidia-smi").arguments(["--list-gpus"]).works() {
        eprintln!("\n  **** SKIPPED: THERE IS NO NVIDIA GPU ON THIS MACHINE (nvidia-smi finds none) ****\n");
        return Ok(());
    }
    setup::build_weft(workspace)?;
    let weft = workspace.weft_path();
    let weft = weft.to_str().context("name weft")?;
    let words = ["tests/gpu/run.py", "--weft", weft, "--json", "docs/benchmarks/gpu.json"];
    let words =
        words.into_iter().chain(["--page", "docs/benchmarks/gpu.md"]).chain(arguments.quick.then_some("--quick"));
    Program::new("python3").arguments(words).folder(&workspace.root).run().map(drop)
}
