//! A machine with a stand-in GPU and a daemon of its own, and programs under shares on it.

use crate::program::Program;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct StandIn<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    daemon: Option<Child>,
}

/// A process that ends with this.
pub(super) struct Running {
    child: Child,
    /// What it logged, where it was told to.
    pub(super) log: PathBuf,
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill a program")?;
        self.child.wait().context("wait for a program that was killed")?;
        Ok(())
    }

    pub(super) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl<'a> StandIn<'a> {
    /// Builds what is needed, and starts a daemon.
    pub(super) fn start(workspace: &'a Workspace) -> Result<StandIn<'a>> {
        setup::build_weft(workspace)?;
        let folder = workspace.output("faults")?;
        std::fs::remove_dir_all(&folder).context("clear what an earlier run left")?;
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let stand_in = StandIn { workspace, folder, daemon: None };
        let gpu = stand_in.path("gpu");
        Program::new(stand_in.built("fakecuda-state")).arguments(["install", &gpu]).run()?;
        let source = workspace.root.join("tests/programs/closedloop.c").display().to_string();
        let words = ["-O2", "-rdynamic", "-D_GNU_SOURCE", "-o", &stand_in.path("closedloop"), &source, "-ldl"];
        Program::new("gcc").arguments(words.into_iter().chain(["-lpthread", "-lm"])).run()?;
        let mut stand_in = stand_in;
        stand_in.start_daemon()?;
        Ok(stand_in)
    }

    fn built(&self, name: &str) -> PathBuf {
        self.workspace.target.join("release").join(name)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn command(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command.env("LD_LIBRARY_PATH", self.folder.join("gpu")).env("FAKECUDA_STATE", self.folder.join("state"));
        command.env("FAKECUDA_MEMORY", "1GiB").env("WEFT_SOCKET", self.folder.join("node.sock"));
        command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts a daemon and waits until it answers.
    pub(super) fn start_daemon(&mut self) -> Result<()> {
        let mut command = self.command(&self.workspace.weft_path());
        self.daemon = Some(command.arg("node").spawn().context("start the daemon")?);
        self.wait("the daemon to answer", |stand_in| stand_in.status())?;
        Ok(())
    }

    /// Kills the daemon and starts another at once; does not wait for it.
    pub(super) fn replace_daemon(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().context("kill the daemon")?;
            daemon.wait().context("wait for the daemon")?;
        }
        let mut command = self.command(&self.workspace.weft_path());
        self.daemon = Some(command.arg("node").spawn().context("start the daemon")?);
        Ok(())
    }

    pub(super) fn daemon_pid(&self) -> Result<u32> {
        self.daemon.as_ref().map(Child::id).context("find the daemon: there is none")
    }

    /// How many files the daemon has open.
    pub(super) fn daemon_files(&self) -> Result<usize> {
        let pid = self.daemon_pid()?;
        Ok(std::fs::read_dir(format!("/proc/{pid}/fd")).context("count the daemon's files")?.count())
    }

    /// Starts a program that keeps the GPU busy, under a share.
    pub(super) fn run(&self, name: &str, share: &[&str], words: &[&str]) -> Result<Running> {
        let log = self.folder.join(format!("{name}.log"));
        let mut command = self.command(&self.workspace.weft_path());
        command.args(["run", "--name", name]).args(share).arg("--").arg(self.folder.join("closedloop"));
        command.args(words).args(["--seconds", "3600"]).env("CLOSEDLOOP_LOG", &log);
        Ok(Running { child: command.spawn().context("start a program under a share")?, log })
    }

    /// Asks `weft` for something and gives what it printed, if it could.
    fn ask(&self, words: &[&str]) -> Option<String> {
        let output = self.command(&self.workspace.weft_path()).args(words).stdout(Stdio::piped()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn set(&self, name: &str, words: &[&str]) -> Result<()> {
        self.ask(&[&["set", name], words].concat()).map(drop).with_context(|| format!("set {words:?} for {name}"))
    }

    /// What `weft top --json` says.
    pub(super) fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.ask(&["top", "--json"])?).ok()
    }

    /// The tenants on the GPU.
    pub(super) fn tenants(&self) -> Option<Vec<Value>> {
        self.status()?["gpus"][0]["tenants"].as_array().cloned()
    }

    /// GPU time that processes were given since they started, by the stand-in's own books, in nanoseconds.
    pub(super) fn given(&self, pids: [u32; 2]) -> Result<[u64; 2]> {
        let output = self.command(&self.built("fakecuda-state")).stdout(Stdio::piped()).output();
        let printed = String::from_utf8(output.context("ask the stand-in")?.stdout).context("read its books")?;
        let number = |line: &str, name: &str| -> Option<u64> {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let given = |pid: u32| {
            let line = printed.lines().find(|line| number(line, "pid") == Some(pid.into()));
            line.and_then(|line| number(line, "given_ns")).unwrap_or(0)
        };
        Ok(pids.map(given))
    }

    /// Tries until something is there.
    pub(super) fn wait<T>(&self, what: &str, mut ready: impl FnMut(&Self) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ready(self) {
                return Ok(found);
            }
            if Instant::now() > deadline {
                bail!("wait for {what}: not there after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
