//! A machine with a stand-in GPU, a daemon of its own, and programs under shares on it.

use crate::support::{cargo, root, weft};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything is waited for: longer than it takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Builds the library and the stand-in beside `weft`, once.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = weft().parent().expect("it is in a folder").to_owned();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is a folder in the target folder");
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--profile=test", "--package=weft-shim", "--package=fakecuda"]);
        let built = build.arg("--target-dir").arg(target).current_dir(root()).output().expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder
    })
}

/// A program of `tests/programs`, compiled once.
pub(crate) fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["allocations", "closedloop", "hello", "launches", "workload"] {
            let source = root().join("tests/programs").join(name).with_extension("c");
            let mut compile = Command::new("gcc");
            compile.args(["-O2", "-rdynamic", "-D_GNU_SOURCE", "-o"]).arg(folder.path().join(name)).arg(source);
            let compiled = compile.args(["-ldl", "-lpthread", "-lm"]).output().expect("gcc runs");
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        }
        folder
    });
    folder.path().join(name)
}

/// Starts something that sleeps, ends it, and says whether it is there.
const MPS_CONTROL: &str = r#"#!/bin/sh
pid="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
    "$(dirname "$0")/nvidia-cuda-mps" 600 &
    echo $! > "$pid"
    exit 0
fi
read words
[ "$words" = quit ] && exec kill "$(cat "$pid")"
exec kill -0 "$(cat "$pid")"
"#;

/// A machine with stand-in GPUs of 1 GiB.
pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    daemon: Option<Child>,
    /// How many GPUs it has.
    gpus: usize,
    /// What its driver refuses.
    pub(crate) refuses: String,
    /// What MPS is started with.
    mps: PathBuf,
}

/// A process that is ended when it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// Without a daemon.
    pub(crate) fn bare() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let gpu = folder.path().join("gpu");
        let installed = Command::new(built().join("fakecuda-state")).arg("install").arg(&gpu).status().unwrap();
        assert!(installed.success());
        Machine { folder, daemon: None, gpus: 1, refuses: String::new(), mps: "no-mps-here".into() }
    }

    pub(crate) fn new() -> Machine {
        Machine::with_gpus(1)
    }

    pub(crate) fn with_gpus(gpus: usize) -> Machine {
        let mut machine = Machine::bare();
        machine.gpus = gpus;
        machine.start_daemon();
        machine
    }

    pub(crate) fn start_daemon(&mut self) {
        self.start_daemon_with(&[]);
    }

    pub(crate) fn start_daemon_with(&mut self, flags: &[&str]) {
        let log = std::fs::File::create(self.folder.path().join("daemon.txt")).unwrap();
        self.daemon = Some(self.weft(&[&["node"], flags].concat()).stderr(log).spawn().unwrap());
        self.wait("the daemon", |machine| machine.try_status());
    }

    /// From now on there is an MPS control program, whose server does nothing.
    pub(crate) fn install_mps(&mut self) {
        let folder = self.folder.path();
        self.mps = folder.join("control");
        std::fs::write(&self.mps, MPS_CONTROL).unwrap();
        std::fs::set_permissions(&self.mps, Permissions::from_mode(0o755)).unwrap();
        std::fs::copy("/bin/sleep", folder.join("nvidia-cuda-mps")).unwrap();
    }

    pub(crate) fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    fn prepare(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.folder.path().join("gpu"));
        command.env("FAKECUDA_STATE", self.folder.path().join("state")).env("FAKECUDA_MEMORY", "1GiB");
        command.env("FAKECUDA_GPUS", self.gpus.to_string());
        command.env("FAKECUDA_REFUSES", &self.refuses).env("WEFT_MPS_CONTROL", &self.mps);
        command.env("WEFT_JOBS", self.folder.path().join("jobs"));
        command.env("WEFT_SOCKET", self.socket()).env_remove("LD_PRELOAD").current_dir(self.folder.path());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("node.sock")
    }

    pub(crate) fn weft(&self, arguments: &[&str]) -> Command {
        built();
        let mut command = Command::new(weft());
        command.args(arguments);
        self.prepare(&mut command);
        command
    }

    /// Runs `weft` and waits for it.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        self.weft(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a program of `tests/programs` under a share.
    pub(crate) fn start(&self, share: &[&str], name: &str, arguments: &[&str]) -> Running {
        let mut command = self.weft(&["run"]);
        command.args(share).arg("--").arg(program(name)).args(arguments);
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Runs one and returns what it printed.
    pub(crate) fn run(&self, share: &[&str], name: &str, arguments: &[&str]) -> Output {
        let mut command = self.weft(&["run"]);
        command.args(share).arg("--").arg(program(name)).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn try_status(&self) -> Option<Value> {
        let asked = self.ask(&["top", "--json"]);
        asked.status.success().then(|| serde_json::from_slice(&asked.stdout).unwrap())
    }

    /// A tenant on the GPU, as the daemon sees it.
    pub(crate) fn tenant(&self, name: &str) -> Option<Value> {
        let status = self.try_status()?;
        let tenants = status["gpus"][0]["tenants"].as_array()?;
        tenants.iter().find(|tenant| tenant["name"] == name).cloned()
    }

    /// What the stand-in really did for a process: its counters by name.
    pub(crate) fn truth(&self, pid: u32) -> BTreeMap<String, u64> {
        let mut command = Command::new(built().join("fakecuda-state"));
        self.prepare(&mut command);
        let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let pairs = |line: &str| -> BTreeMap<String, u64> {
            let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
        };
        printed.lines().map(pairs).find(|counters| counters.get("pid") == Some(&pid.into())).unwrap_or_default()
    }

    /// Tries until something is there.
    pub(crate) fn wait<T>(&self, what: &str, mut ready: impl FnMut(&Machine) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ready(self) {
                return found;
            }
            if Instant::now() > deadline {
                let talk = std::fs::read_to_string(self.folder.path().join("daemon.txt")).unwrap_or_default();
                let status = self.try_status().unwrap_or_default();
                panic!("waited in vain for {what}; at last: {status:#}\nthe daemon said:\n{talk}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // One that was started on demand is nobody's child.
        let pid = self.try_status().and_then(|status| status["pid"].as_u64());
        self.kill_daemon();
        if let Some(pid) = pid {
            let _ = Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
    }
}
