//! What must hold before a change goes in.

use crate::program::Program;
use crate::setup;
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{docs, examples, leaks};
use anyhow::{Context, Result};

/// Run every check that a change must pass, stopping at the first that fails.
///
/// Sets up what is missing (rustfmt, clippy), then: format, clippy, tests, documentation, the commands in the
/// documentation, the examples, a longer fuzz smoke, a look for machine paths, and that benches compile. Ends with
/// a table of how long each step took.
///
/// Example: cargo xtask ci
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {}

/// Cases of the fuzz smoke, which an ordinary `cargo test` runs with a tenth of them.
const FUZZ_CASES: &str = "20000";

pub(crate) fn ci(workspace: &Workspace, _: &Arguments) -> Result<()> {
    let mut steps = Steps::default();
    let cargo = |arguments: &[&str]| workspace.cargo(arguments.iter().copied());
    let run = |program: Program| program.run().map(drop);

    steps.step("set-up", "see above; the rest needs it", || setup::toolchain(workspace))?;
    steps.step("format", "run `cargo fmt --all`", || run(cargo(&["fmt", "--all", "--check"])))?;
    steps.step("no machine paths", "take them out of the files named", || leaks::check(workspace))?;
    steps.step("clippy", "fix what it says; do not silence it without a reason in the code", || {
        run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    steps.step("tests", "run the failing test alone: `cargo test --package NAME TEST`", || {
        run(cargo(&["test", "--workspace"]))
    })?;
    steps.step("fuzz smoke", "the message has the input and the command that runs it again", || {
        // The whole workspace, though only one package has it: another choice of packages is another build.
        let smoke = cargo(&["test", "--workspace", "--test", "fuzz_smoke"]);
        run(smoke.variable("WEFT_FUZZ_CASES", FUZZ_CASES).variable("WEFT_FUZZ_SEED", "2"))
    })?;
    steps.step("documentation builds", "fix the comment it names", || {
        run(cargo(&["doc", "--workspace", "--no-deps"]).variable("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.step("weft builds", "fix what it says", || setup::build_weft(workspace).map(drop))?;
    steps.step("documented commands", "run `cargo xtask docs` and fix the command or the text", || {
        docs::run_all(workspace, false)
    })?;
    steps.step("examples", "run the command it names", || examples::run_all(workspace))?;
    steps.step("benches compile", "fix what it says", || benches(workspace))?;
    steps.print();
    eprintln!("\nall checks passed");
    Ok(())
}

fn benches(workspace: &Workspace) -> Result<()> {
    let packages = packages_with_benches(workspace)?;
    if packages.is_empty() {
        eprintln!("  no benches");
        return Ok(());
    }
    let mut arguments = vec!["bench", "--no-run", "--bench", "*"];
    for package in &packages {
        arguments.extend(["--package", package]);
    }
    workspace.cargo(arguments).run().map(drop)
}

/// Names of our packages that have a `benches` folder.
pub(crate) fn packages_with_benches(workspace: &Workspace) -> Result<Vec<String>> {
    let metadata = workspace.cargo(["metadata", "--no-deps", "--format-version", "1"]).read()?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("read what cargo metadata printed")?;
    let has_bench = |package: &&serde_json::Value| {
        let targets = package["targets"].as_array().into_iter().flatten();
        targets.flat_map(|target| target["kind"].as_array().into_iter().flatten()).any(|kind| kind == "bench")
    };
    let packages = metadata["packages"].as_array().context("read what cargo metadata printed: no packages")?;
    Ok(packages.iter().filter(has_bench).filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}
