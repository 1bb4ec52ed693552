//! The main job, from nothing: which policy gets how much out of the same GPUs.

use crate::program::seconds;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// Build Weft and compare all policies on a built-in scenario; ends with the path of an HTML report.
///
/// Needs a Rust toolchain and nothing else. The comparison takes less than two minutes after the build.
///
/// Example: cargo xtask demo
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {}

const SCENARIO: &str = "examples/03-eleven-a100-models/scenario.toml";

#[allow(clippy::print_stdout, reason = "the path of the report is the result")]
pub(crate) fn demo(workspace: &Workspace, _: &Arguments) -> Result<()> {
    eprintln!("== build (the first time, minutes)");
    setup::build_weft(workspace)?;
    let start = Instant::now();
    let report = workspace.output("demo")?.join("report.html");
    let path = report.to_str().context("write the report: its path is not text")?;

    eprintln!("\n== goodput of every policy: eleven models on eight GPUs, {SCENARIO}");
    workspace.weft(["sim", "goodput", SCENARIO, "--seeds", "1"]).run()?;
    eprintln!("\n== the same with bad requests, batch sizes and GPU use against the rate, as a page");
    workspace.weft(["sim", "report", SCENARIO, "--seeds", "1", "-o", path]).run()?;
    ensure!(report.is_file(), "write the report: weft said it did, but {path} is not there");

    eprintln!("\ncompared in {}. The report:", seconds(start.elapsed()));
    println!("{path}");
    Ok(())
}
