//! The Python environment of a project: an interpreter with `numpy`, and ONNX Runtime's library.
//!
//! There are two. The one that `weft` itself was installed into, where it came as a wheel, has what `pip` put there
//! ([`installed`]). The other lies in a folder of its own and touches no other Python ([`setup`]): setting it up again is a
//! glance at a file. Packages come from wherever the user's `pip` gets them, and a set-up that takes longer than
//! `PATIENCE` fails.

use anyhow::{Context, Result, bail};
use std::fs::{DirBuilder, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

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

/// How long a set-up may take: 2 GB, which is what GPUs need, at 10 megabits a second.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// The library of ONNX Runtime's builds for GPUs, beside the main one.
pub(crate) const CUDA_PROVIDER: &str = "libonnxruntime_providers_cuda.so";

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

/// The Python that this program was installed into, and what `pip` put beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The interpreter.
    pub python: PathBuf,
    /// Whether numpy is beside it.
    pub numpy: bool,
    /// ONNX Runtime's library and which build it is, where it is installed.
    pub onnxruntime: Option<(PathBuf, Onnx)>,
}

/// Finds the Python that `program` was installed into: there is one where an interpreter lies beside the program and has
/// Weft's package.
pub fn installed(program: &Path) -> Option<Installed> {
    let folder = program.parent()?;
    let python = folder.join("python3");
    let packages = packages(folder.parent()?).find(|packages| packages.join("weft/worker.py").is_file())?;
    let numpy = packages.join("numpy").is_dir();
    python.exists().then(|| Installed { python, numpy, onnxruntime: library_in(&packages) })
}

/// Makes the environment in `directory`/environment, or finds it there, with any build of ONNX Runtime. Safe to call
/// from several processes at once.
pub fn setup(directory: &Path) -> Result<Environment> {
    setup_with(directory, None, &mut |_| {})
}

/// The same with this build of ONNX Runtime; an environment that has another is made anew. `progress` hears what is being
/// done.
pub fn setup_with(directory: &Path, onnx: Option<Onnx>, progress: &mut dyn FnMut(&str)) -> Result<Environment> {
    let find = || find_environment(directory).filter(|found| onnx.is_none_or(|onnx| found.onnx == onnx));
    if let Some(environment) = find() {
        return Ok(environment);
    }
    // What a server keeps there besides is for its user alone.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("create {}", directory.display()))?;
    let lock_path = directory.join("environment.lock");
    let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    progress("wait for another set-up of this folder");
    lock.lock().with_context(|| format!("wait for {}", lock_path.display()))?;
    // Whoever held the lock may have done it.
    if let Some(environment) = find() {
        return Ok(environment);
    }
    let until = Instant::now() + PATIENCE;
    let onnx = onnx.unwrap_or(Onnx::Cpu);
    let folder = directory.join("environment");
    progress("make a Python environment");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), until, progress)
        .context("make a Python environment (Debian and Ubuntu need the package python3-venv for that)")?;
    let python = python_in(&folder);
    let install = ["-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check"];
    run(Command::new(&python).args(install).args(onnx.requirements()), until, progress)
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
    let (onnxruntime, _) = packages(&folder).find_map(|packages| library_in(&packages))?;
    python.exists().then_some(Environment { python, onnxruntime, onnx })
}

fn python_in(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

/// Where the packages of an environment are: one folder for each version of Python.
fn packages(environment: &Path) -> impl Iterator<Item = PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("site-packages"))
}

/// ONNX Runtime's library among these packages.
fn library_in(packages: &Path) -> Option<(PathBuf, Onnx)> {
    let capi = packages.join("onnxruntime/capi");
    let mut files = std::fs::read_dir(&capi).ok()?.flatten().map(|entry| entry.path());
    let is_library =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"));
    let onnx = if capi.join(CUDA_PROVIDER).exists() { Onnx::Gpu } else { Onnx::Cpu };
    Some((files.find(is_library)?, onnx))
}

/// What a command said, a line at a time.
enum Said {
    Output(String),
    Error(String),
}

/// Runs a command to its end, and kills it when that does not come in time. The last of what it said is the error.
fn run(command: &mut Command, until: Instant, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("run {program}: it is not installed, or not on the path"),
        _ => anyhow::Error::new(error).context(format!("run {program}")),
    })?;
    let (send, said) = channel();
    let readers = [
        child.stdout.take().map(|output| listen(output, Said::Output, send.clone())),
        child.stderr.take().map(|errors| listen(errors, Said::Error, send)),
    ];
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    loop {
        match said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Said::Output(line)) => {
                progress(line.trim());
                output.push(line);
            }
            Ok(Said::Error(line)) => errors.push(line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("run {program}: it took more than {} minutes and was stopped", PATIENCE.as_secs() / 60);
            }
        }
    }
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let status = child.wait().with_context(|| format!("wait for {program}"))?;
    if status.success() {
        return Ok(());
    }
    let said = if errors.iter().all(|line| line.trim().is_empty()) { output } else { errors };
    let last: Vec<&str> =
        said.iter().rev().map(String::as_str).filter(|line| !line.trim().is_empty()).take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    bail!("run {program}: {status}: {}", last.join("; "))
}

/// Sends each line on. Ends with the stream.
fn listen(
    stream: impl Read + Send + 'static,
    said: fn(String) -> Said,
    to: Sender<Said>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut line) {
            // Nobody listens once the command was given up.
            if to.send(said(String::from_utf8_lossy(&line).trim_end().to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_that_weft_was_installed_into_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let touch = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let (weft, python) = (touch("bin/weft"), touch("bin/python3"));
        assert_eq!(installed(&weft), None, "an interpreter beside it may have nothing to do with Weft");

        touch("lib/python3.11/site-packages/weft/worker.py");
        let bare = Installed { python: python.clone(), numpy: false, onnxruntime: None };
        assert_eq!(installed(&weft), Some(bare.clone()));
        touch("lib/python3.11/site-packages/numpy/__init__.py");
        assert_eq!(installed(&weft), Some(Installed { numpy: true, ..bare }));

        let library = touch("lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.23.2");
        assert_eq!(installed(&weft).unwrap().onnxruntime, Some((library.clone(), Onnx::Cpu)));
        touch("lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so");
        assert_eq!(installed(&weft).unwrap().onnxruntime, Some((library, Onnx::Gpu)));

        std::fs::remove_file(python).unwrap();
        assert_eq!(installed(&weft), None);
    }

    #[test]
    fn a_command_that_takes_too_long_is_stopped() {
        let stopped = run(Command::new("sleep").arg("600"), Instant::now(), &mut |_| {});
        assert_eq!(stopped.unwrap_err().to_string(), "run sleep: it took more than 30 minutes and was stopped");
    }

    #[test]
    fn a_command_says_why_it_failed() {
        let until = Instant::now() + PATIENCE;
        let failed = run(Command::new("sh").args(["-c", "echo no room >&2; exit 3"]), until, &mut |_| {});
        assert_eq!(failed.unwrap_err().to_string(), "run sh: exit status: 3: no room");
        let missing = run(&mut Command::new("no-such-program"), until, &mut |_| {});
        assert_eq!(missing.unwrap_err().to_string(), "run no-such-program: it is not installed, or not on the path");
    }
}
