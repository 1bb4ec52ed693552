//! The Python environment of a project: an interpreter with `numpy`, and ONNX Runtime's library.
//!
//! It lies in a folder of its own and touches no other Python. Setting it up again is a glance at a file. Packages come
//! from wherever the user's `pip` gets them.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages. The last release for each Python where there is no newer one.
const REQUIREMENTS: [&str; 6] = [
    "numpy==2.0.2; python_version < '3.10'",
    "numpy==2.2.6; python_version == '3.10'",
    "numpy==2.4.6; python_version >= '3.11'",
    "onnxruntime==1.19.2; python_version < '3.10'",
    "onnxruntime==1.23.2; python_version == '3.10'",
    "onnxruntime==1.31.1; python_version >= '3.11'",
];

/// Written last; says which packages are installed, so that a set-up that was broken off is done again.
const STAMP: &str = "weft-requirements.txt";

/// What workers need that is not in the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The interpreter.
    pub python: PathBuf,
    /// ONNX Runtime's library.
    pub onnxruntime: PathBuf,
}

/// Makes the environment in `directory`/environment, or finds it there. Safe to call from several processes at once.
pub fn setup(directory: &Path) -> Result<Environment> {
    if let Some(environment) = find_environment(directory) {
        return Ok(environment);
    }
    std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let lock_path = directory.join("environment.lock");
    let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("wait for {}", lock_path.display()))?;
    // Whoever held the lock may have done it.
    if let Some(environment) = find_environment(directory) {
        return Ok(environment);
    }
    let folder = directory.join("environment");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        .context("make a Python environment (Debian and Ubuntu need the package python3-venv for that)")?;
    let python = python_in(&folder);
    let quietly = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(&python).args(quietly).args(REQUIREMENTS)).context("install numpy and onnxruntime with pip")?;
    let stamp = folder.join(STAMP);
    std::fs::write(&stamp, stamp_text()).with_context(|| format!("write {}", stamp.display()))?;
    find_environment(directory)
        .with_context(|| format!("find libonnxruntime.so in {}: the package has none", folder.display()))
}

/// Finds the environment that [`setup`] made in this directory.
pub fn find_environment(directory: &Path) -> Option<Environment> {
    // Workers may run in another folder than the one this path counts from.
    let folder = std::path::absolute(directory.join("environment")).ok()?;
    if std::fs::read_to_string(folder.join(STAMP)).ok()? != stamp_text() {
        return None;
    }
    let python = python_in(&folder);
    let libraries = std::fs::read_dir(folder.join("lib")).ok()?.flatten().flat_map(|version| {
        let capi = version.path().join("site-packages/onnxruntime/capi");
        std::fs::read_dir(capi).into_iter().flatten().flatten().map(|entry| entry.path())
    });
    let is_library =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"));
    let onnxruntime = libraries.into_iter().find(is_library)?;
    python.exists().then_some(Environment { python, onnxruntime })
}

fn python_in(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn stamp_text() -> String {
    REQUIREMENTS.join("\n") + "\n"
}

/// Runs a command to its end; the last of what it said is the error.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("run {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = if said.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { said };
    let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    bail!("run {program}: {}: {}", output.status, last.join("; "))
}
