//! What must hold before a change goes in.

use crate::program::Program;
use crate::setup;
use crate::steps::Steps;
use crate::workspace::Workspace;
use crate::{browser, clients, deny, dist, docs, examples, faults, leaks, openapi, soak};
use anyhow::Result;
use std::time::Duration;

/// Run every check that a change must pass, stopping at the first that fails.
///
/// Sets up what is missing (rustfmt, clippy), then: format, dependencies, clippy, tests, documentation, the first use of the
/// wheel, the commands in the documentation, the examples, models of the pages that processes share, a longer fuzz smoke, a look for machine
/// paths, NVIDIA's clients, a fuzzer of the API, the dashboard in a browser, deaths under shares on a stand-in GPU and a
/// short soak. Ends with a table of how long each step took.
///
/// Example: cargo xtask ci
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {}

/// Cases of the fuzz smoke, which an ordinary `cargo test` runs with a tenth of them.
const FUZZ_CASES: &str = "20000";

/// Try what processes do with shared pages in every order that the memory model allows.
///
/// Example: cargo xtask loom
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct LoomArguments {}

/// The models of the pages that processes share, with an atomic that tries every order.
pub(crate) fn loom(workspace: &Workspace) -> Result<()> {
    // A folder of its own: the flag is another build of everything.
    let folder = workspace.target.join("loom").display().to_string();
    let models = ["test", "--package", "weft-shm", "--lib", "model", "--target-dir", &folder];
    workspace.cargo(models).variable("RUSTFLAGS", "--cfg loom").run().map(drop)
}

pub(crate) fn ci(workspace: &Workspace, _: &Arguments) -> Result<()> {
    let mut steps = Steps::default();
    let cargo = |arguments: &[&str]| workspace.cargo(arguments.iter().copied());
    let run = |program: Program| program.run().map(drop);

    steps.step("set-up", "see above; the rest needs it", || setup::toolchain(workspace))?;
    steps.step("format", "run `cargo fmt --all`", || run(cargo(&["fmt", "--all", "--check"])))?;
    steps.step("no machine paths", "take them out of the files named", || leaks::check(workspace))?;
    steps.step("dependencies", "run `cargo xtask deny`; deny.toml says what is allowed", || deny::check(workspace))?;
    steps.step("clippy", "fix what it says; do not silence it without a reason in the code", || {
        run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    steps.step("tests", "run the failing test alone: `cargo test --package NAME TEST`", || {
        run(cargo(&["test", "--workspace"]))
    })?;
    steps
        .step("shared pages in every order", "the message has the order; run `cargo xtask loom`", || loom(workspace))?;
    steps.step("fuzz smoke", "the message has the input and the command that runs it again", || {
        // The whole workspace, though only one package has it: another choice of packages is another build.
        let smoke = cargo(&["test", "--workspace", "--test", "fuzz_smoke"]);
        run(smoke.variable("WEFT_FUZZ_CASES", FUZZ_CASES).variable("WEFT_FUZZ_SEED", "2"))
    })?;
    steps.step("documentation builds", "fix the comment it names", || {
        run(cargo(&["doc", "--workspace", "--no-deps"]).variable("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.step("weft builds", "fix what it says", || setup::build_weft(workspace).map(drop))?;
    steps.step("first use of the wheel", "run `cargo xtask first-use`", || dist::first_use::check(workspace))?;
    steps.step("documented commands", "run `cargo xtask docs` and fix the command or the text", || {
        docs::run_all(workspace, false)
    })?;
    steps.step("restarts between them", "run `cargo xtask docs --restart-each-step`: it names the command", || {
        docs::restart_each_step(workspace)
    })?;
    steps.step("examples", "run the command it names", || examples::run_all(workspace))?;
    steps.step("NVIDIA's clients", "run `cargo xtask clients weft` and compare", || clients::ask_weft(workspace))?;
    steps.step("a fuzzer of the API", "run `cargo xtask openapi`: it prints how to ask again", || {
        openapi::check(workspace)
    })?;
    steps.step("dashboard in a browser", "look at the pictures in target/browser", || browser::check(workspace))?;
    steps.step("preemptions", "run `cargo xtask preemptions --runs 50`", || faults::preemptions::check(workspace))?;
    steps.step("deaths and shares", "run `cargo xtask faults` and look at what is off", || faults::check(workspace))?;
    steps.step("soak for two minutes", "look at the logs in target/soak", || {
        soak::run(workspace, Duration::from_secs(120))
    })?;
    steps.print();
    eprintln!("\nall checks passed");
    Ok(())
}
