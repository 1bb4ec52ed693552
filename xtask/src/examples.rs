//! The examples: each can be checked and run.
//!
//! That they print what is written beside them is tested in `tests/`; this is about the release binary.

use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Scenario files of the examples, in order.
pub(crate) fn scenarios(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root.join("examples");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let scenario = entry.with_context(|| format!("list {}", folder.display()))?.path().join("scenario.toml");
        if scenario.is_file() {
            found.push(scenario);
        }
    }
    found.sort();
    Ok(found)
}

/// Checks and runs every example.
pub(crate) fn run_all(workspace: &Workspace) -> Result<()> {
    let scenarios = scenarios(workspace)?;
    if scenarios.is_empty() {
        bail!("find examples: expected examples/NN-name/scenario.toml");
    }
    for scenario in &scenarios {
        let path = workspace.relative(scenario).to_string();
        for verb in ["check", "run"] {
            let program = workspace.weft(["sim", verb, &path]);
            let shown = program.shown().to_owned();
            let (status, printed) = program.try_quietly()?;
            if status != Some(0) {
                bail!("run `{shown}`, which printed:\n{printed}");
            }
        }
        eprintln!("  ran     {path}");
    }
    Ok(())
}
