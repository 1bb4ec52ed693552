//! The Python environment of a project: an interpreter with `numpy`, and ONNX Runtime's library.
//!
//! It lies in a folder of its own and touches no other Python. Setting it up again is a glance at a file. Packages come
//! from wherever the user's `pip` gets them.

use anyhow::{Context, Result, bail};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last release of numpy for each Python where there is no newer one.
const NUMPY: [&str; 3] = [
    "numpy==2.0.2; python_version < '3.10'",
    "numpy==2.2.6; python_version == '3.10'",
    "numpy==2.4.6; python_version >= '3.11'",
];

/// ONNX Runtime for the CPU.
const ONNX_CPU: [&str; 3] = [
    "onnxruntime==1.19.2; python_version < '3.10'",
    "onnxruntime==1.23.2; python_version == '3.10'",
    "onnxruntime==1.31.1; python_version >= '3.11'",
];

/// ONNX Runtime for NVIDIA GPUs, with the CUDA and cuDNN libraries that it was built for. All of these are for CUDA 12,
/// which every driver since 525 runs; releases from 1.27 on are for CUDA 13 and need driver 580.
const ONNX_GPU: [&str; 9] = [
    "onnxruntime-gpu==1.19.2; python_version < '3.10'",
    // That one does not name them itself.
    "nvidia-cublas-cu12~=12.0; python_version < '3.10'",
    "nvidia-cuda-nvrtc-cu12~=12.0; python_version < '3.10'",
    "nvidia-cuda-runtime-cu12~=12.0; python_version < '3.10'",
    "nvidia-cudnn-cu12~=9.0; python_version < '3.10'",
    "nvidia-cufft-cu12~=11.0; python_version < '3.10'",
    "nvidia-curand-cu12~=10.0; python_version < '3.10'",
    "onnxruntime-gpu[cuda,cudnn]==1.23.2; python_version == '3.10'",
    "onnxruntime-gpu[cuda,cudnn]==1.26.0; python_version >= '3.11'",
];

/// Which build of ONNX Runtime an environment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onnx {
    /// For the CPU.
    Cpu,
    /// For NVIDIA GPUs, and the CPU.
    Gpu,
}

impl Onnx {
    /// What `pip` is to install.
    fn requirements(self) -> Vec<&'static str> {
        let onnx: &[&str] = match self {
            Onnx::Cpu => &ONNX_CPU,
            Onnx::Gpu => &ONNX_GPU,
        };
        NUMPY.iter().chain(onnx).copied().collect()
    }

    /// What an environment with it has in its stamp.
    fn stamp(self) -> String {
        self.requirements().join("\n") + "\n"
    }
}

/// Written last; says which packages are installed, so that a set-up that was broken off is done again.
const STAMP: &str = "weft-requirements.txt";

/// What workers need that is not in the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The interpreter.
    pub python: PathBuf,
    /// ONNX Runtime's library.
    pub onnxruntime: PathBuf,
    /// Which build that is.
    pub onnx: Onnx,
}

/// Makes the environment in `directory`/environment, or finds it there, with any build of ONNX Runtime. Safe to call
/// from several processes at once.
pub fn setup(directory: &Path) -> Result<Environment> {
    setup_with(directory, None)
}

/// The same with this build of ONNX Runtime; an environment that has another is made anew.
pub fn setup_with(directory: &Path, onnx: Option<Onnx>) -> Result<Environment> {
    let find = || find_environment(directory).filter(|found| onnx.is_none_or(|onnx| found.onnx == onnx));
    if let Some(environment) = find() {
        return Ok(environment);
    }
    // What a server keeps there besides is for its user alone.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("create {}", directory.display()))?;
    let lock_path = directory.join("environment.lock");
    let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    lock.lock().with_context(|| format!("wait for {}", lock_path.display()))?;
    // Whoever held the lock may have done it.
    if let Some(environment) = find() {
        return Ok(environment);
    }
    let onnx = onnx.unwrap_or(Onnx::Cpu);
    let folder = directory.join("environment");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        .context("make a Python environment (Debian and Ubuntu need the package python3-venv for that)")?;
    let python = python_in(&folder);
    let quietly = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(&python).args(quietly).args(onnx.requirements()))
        .context("install numpy and onnxruntime with pip")?;
    let stamp = folder.join(STAMP);
    std::fs::write(&stamp, onnx.stamp()).with_context(|| format!("write {}", stamp.display()))?;
    find_environment(directory)
        .with_context(|| format!("find libonnxruntime.so in {}: the package has none", folder.display()))
}

/// Finds the environment that [`setup`] made in this directory.
pub fn find_environment(directory: &Path) -> Option<Environment> {
    // Workers may run in another folder than the one this path counts from.
    let folder = std::path::absolute(directory.join("environment")).ok()?;
    let stamp = std::fs::read_to_string(folder.join(STAMP)).ok()?;
    let onnx = [Onnx::Cpu, Onnx::Gpu].into_iter().find(|onnx| onnx.stamp() == stamp)?;
    let python = python_in(&folder);
    let libraries = std::fs::read_dir(folder.join("lib")).ok()?.flatten().flat_map(|version| {
        let capi = version.path().join("site-packages/onnxruntime/capi");
        std::fs::read_dir(capi).into_iter().flatten().flatten().map(|entry| entry.path())
    });
    let is_library =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"));
    let onnxruntime = libraries.into_iter().find(is_library)?;
    python.exists().then_some(Environment { python, onnxruntime, onnx })
}

fn python_in(folder: &Path) -> PathBuf {
    folder.join("bin/python")
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
