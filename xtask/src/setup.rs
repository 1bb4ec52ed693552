//! What a fresh machine lacks. Only a Rust toolchain and Python 3 may be taken for granted.

use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;

/// Components of the toolchain that the checks need, and the command that shows that each is there.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "fmt"), ("clippy", "clippy")];

/// Makes sure that Cargo works and that the components are there, installing those that are not.
pub(crate) fn toolchain(workspace: &Workspace) -> Result<()> {
    let version = workspace.cargo(["--version"]).read().context(
        "find cargo. Install a Rust toolchain (https://rustup.rs), the version is `rust-version` in Cargo.toml",
    )?;
    eprintln!("  found   {}", version.trim());
    for (component, command) in COMPONENTS {
        if workspace.cargo([command, "--version"]).works() {
            continue;
        }
        eprintln!("  MISSING {component}; trying to install it");
        let install = Program::new("rustup").arguments(["component", "add", component]).folder(&workspace.root);
        let installed = install.run();
        if workspace.cargo([command, "--version"]).works() {
            continue;
        }
        let why = installed.err().map_or_else(|| "it still does not run".to_owned(), |error| format!("{error:#}"));
        eprintln!("\n  **** {component} IS MISSING AND COULD NOT BE INSTALLED: {why} ****\n");
        bail!(
            "set up {component}: install it (`rustup component add {component}`, or your distribution's package) and \
             run this again"
        );
    }
    Ok(())
}

/// What workers of the `weft` that was built need, as the `[node]` table of a configuration.
pub(crate) fn worker_settings(workspace: &Workspace) -> Result<String> {
    worker_settings_of(workspace, &workspace.weft_path())
}

/// The same for another `weft`.
pub(crate) fn worker_settings_of(workspace: &Workspace, weft: &Path) -> Result<String> {
    let state = workspace.output("environment")?.display().to_string();
    let printed = Program::new(weft).arguments(["setup", "--state", &state]).folder(&workspace.root).read()?;
    let path = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).with_context(|| format!("find {name} in what weft setup printed:\n{printed}"))
    };
    Ok(format!("[node]\npython = {:?}\nonnxruntime = {:?}\n", path("Python")?, path("ONNX Runtime")?))
}

/// Builds the `weft` binary as users run it, with the library and the stand-in GPU beside it: all that anything here
/// runs, because another choice of packages is another build.
pub(crate) fn build_weft(workspace: &Workspace) -> Result<Duration> {
    let packages = ["--package=weft", "--package=weft-shim", "--package=fakecuda"];
    let took = workspace.cargo(["build", "--release"].into_iter().chain(packages)).run()?;
    let weft = workspace.weft_path();
    if !weft.is_file() {
        bail!("find the weft binary: Cargo did not put it at {}", weft.display());
    }
    Ok(took)
}
