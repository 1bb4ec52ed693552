//! The daemons that worlds need: Weft's own and that of MPS. All are ours alone, in a temporary folder, and are started
//! when the first program needs them. Weft chooses by who else is there, so those who take turns whatever it would choose
//! have a daemon to themselves.

use crate::pairs::Group;
use crate::settings::World;
use anyhow::{Context, Result};
use harness::Process;
use policy::sharing::Class;
use share_client::{Client, DaemonPaths};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a daemon may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
const GLANCE: Duration = Duration::from_millis(20);

/// Our daemon ends by itself some time after we were killed, and no sooner than anything here takes.
const IDLE_EXIT: &str = "900s";

/// The program that starts MPS and talks to it, unless `WEFT_MPS_CONTROL` names another, as for Weft's daemon.
const MPS_CONTROL: &str = "nvidia-cuda-mps-control";
const MPS_PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const MPS_LOGS: &str = "CUDA_MPS_LOG_DIRECTORY";
const MPS_PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";
const MPS_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// A daemon, with its input held open.
type Running = (Process, ChildStdin);

/// What worlds are made of.
#[derive(Debug)]
pub(super) struct Daemons {
    /// By the names of their sockets.
    weft: BTreeMap<&'static str, Result<Running, String>>,
    mps: Option<Result<Running, String>>,
    program: PathBuf,
    /// Last, so that it goes when nobody uses it.
    folder: TempDir,
}

impl Daemons {
    pub(super) fn new() -> Result<Daemons> {
        let folder = tempfile::Builder::new().prefix("weft-bench-").tempdir().context("make a temporary folder")?;
        let program = std::env::current_exe().context("find this program")?;
        Ok(Daemons { weft: BTreeMap::new(), mps: None, program, folder })
    }

    /// The command that runs a program in a world. Starts what the world needs.
    pub(super) fn command(
        &mut self,
        world: World,
        class: Class,
        group: &Group,
        workloads: &str,
    ) -> Result<Command, String> {
        self.prepare(world)?;
        let words = &group.words(workloads);
        let mut command = match world.needs_weft() {
            true => {
                let mut command = self.weft_command(world);
                command.arg("run").args(["--class", config::share::class_name(class)]).args(run_flags(world));
                command.args(group.slo.iter().flat_map(|slo| ["--slo", slo]));
                command.args(group.request.iter().flat_map(|request| ["--request", request]));
                // A pair meets on the GPU that both take by themselves, as it does without Weft.
                command.args(["--gpu", "all", "--"]);
                command.args(words);
                command
            }
            false => {
                let (name, arguments) = words.split_first().ok_or("there is no command")?;
                let mut command = Command::new(name);
                command.args(arguments);
                command
            }
        };
        for variable in [MPS_PIPES, MPS_LOGS, MPS_PRIORITY, MPS_PERCENTAGE] {
            command.env_remove(variable);
        }
        match world {
            // Weft says itself what its programs need.
            World::Weft => {}
            World::Native | World::WeftTime | World::WeftFirst => {
                command.env(MPS_PIPES, self.folder.path().join("no-mps"));
            }
            World::Mps | World::MpsLow | World::MpsLowShare(_) => self.mps_variables(&mut command),
        }
        if world != World::Mps && world.needs_mps() {
            command.env(MPS_PRIORITY, "1");
        }
        if let World::MpsLowShare(percent) = world {
            command.env(MPS_PERCENTAGE, percent.to_string());
        }
        Ok(command)
    }

    /// Has GPUs shared by this policy from now on in a world.
    pub(super) fn set_sharing(&mut self, world: World, policy: &str) -> Result<(), String> {
        self.prepare(world)?;
        let mut command = self.weft_command(world);
        command.args(["set", "--sharing", policy]);
        ask(command, "").map(drop)
    }

    /// What a program under Weft launched so far, and how many nanoseconds of GPU time it was charged.
    pub(super) fn used_by(&self, world: World, process: u32) -> Result<(u64, u64), String> {
        let status = Client::connect(&self.place(world)).map(|client| client.map(|client| client.status()));
        let gpus = match status {
            Ok(Some(Ok(status))) => status.gpus,
            Ok(Some(Err(error))) | Err(error) => return Err(format!("the daemon of Weft did not answer: {error}")),
            Ok(None) => return Err("the daemon of Weft is gone".into()),
        };
        let tenant = gpus.into_iter().flat_map(|gpu| gpu.tenants).find(|tenant| tenant.processes.contains(&process));
        let tenant = tenant.ok_or_else(|| format!("process {process} is no tenant of the daemon of Weft"))?;
        Ok((tenant.launches, tenant.charged_ns))
    }

    fn prepare(&mut self, world: World) -> Result<(), String> {
        let (what, daemon) = if world.needs_weft() {
            let name = socket_name(world);
            if !self.weft.contains_key(name) {
                let started = self.start_weft(world);
                self.weft.insert(name, started);
            }
            ("the daemon of Weft", self.weft.get_mut(name))
        } else if world.needs_mps() {
            if self.mps.is_none() {
                self.mps = Some(self.start_mps());
            }
            ("the daemon of MPS", self.mps.as_mut())
        } else {
            return Ok(());
        };
        let (process, _) = match daemon {
            Some(Ok(running)) => running,
            Some(Err(reason)) => return Err(reason.clone()),
            None => return Ok(()),
        };
        match process.ended() {
            Some(status) => Err(format!("{what} ended ({status}); {}", process.last_words())),
            None => Ok(()),
        }
    }

    fn weft_command(&self, world: World) -> Command {
        let mut command = Command::new(&self.program);
        command.env("WEFT_SOCKET", self.socket(socket_name(world)));
        command
    }

    /// Where Weft's own is in a world.
    pub(super) fn place(&self, world: World) -> DaemonPaths {
        DaemonPaths::at(self.socket(socket_name(world)))
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mps_variables(&self, command: &mut Command) {
        command.env(MPS_PIPES, self.folder.path().join("mps")).env(MPS_LOGS, self.folder.path().join("mps-log"));
    }

    fn start_weft(&self, world: World) -> Result<Running, String> {
        let mut command = self.weft_command(world);
        command.args(["node", "--idle-exit", IDLE_EXIT]);
        let place = self.place(world);
        start("the daemon of Weft", command, || matches!(Client::connect(&place), Ok(Some(_))))
    }

    fn start_mps(&self) -> Result<Running, String> {
        if std::env::var_os("WEFT_MPS_CONTROL").is_some_and(|program| program.is_empty()) {
            return Err("MPS is switched off (WEFT_MPS_CONTROL)".into());
        }
        for name in ["mps", "mps-log"] {
            let folder = self.folder.path().join(name);
            std::fs::create_dir_all(&folder).map_err(|error| format!("make a folder for MPS: {error}"))?;
        }
        let mut command = self.mps_command();
        command.arg("-f");
        start("the daemon of MPS", command, || self.ask_mps("get_server_list").is_ok())
    }

    fn ask_mps(&self, question: &str) -> Result<String, String> {
        ask(self.mps_command(), question)
    }

    fn mps_command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("WEFT_MPS_CONTROL").unwrap_or_else(|| MPS_CONTROL.into()));
        self.mps_variables(&mut command);
        command
    }

    /// Waits until a daemon of Weft knows that every program has ended: it keeps what programs still need.
    fn wait_for_no_tenant(&self, name: &str) {
        let until = Instant::now() + PATIENCE;
        let left = || {
            let status = Client::connect(&DaemonPaths::at(self.socket(name))).ok()??.status().ok()?;
            Some(status.idle.len() + status.gpus.iter().map(|gpu| gpu.tenants.len()).sum::<usize>())
        };
        while left().is_some_and(|tenants| tenants > 0) && Instant::now() < until {
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        // The programs have ended before: MPS waits for them.
        if matches!(self.mps, Some(Ok(_))) {
            // One that does not listen is killed.
            let _ = self.ask_mps("quit -t 5");
        }
        if let Some(Ok((mps, _))) = &mut self.mps {
            mps.wait(Instant::now() + PATIENCE);
        }
        for (name, weft) in std::mem::take(&mut self.weft) {
            let Ok((mut weft, _input)) = weft else { continue };
            self.wait_for_no_tenant(name);
            weft.ask_to_end();
            weft.wait(Instant::now() + PATIENCE);
        }
    }
}

/// How `weft run` is told which world is meant.
fn run_flags(world: World) -> &'static [&'static str] {
    match world {
        World::WeftTime | World::WeftFirst => &["--share", "time"],
        _ => &[],
    }
}

/// The socket of a world's daemon of Weft.
fn socket_name(world: World) -> &'static str {
    if world == World::WeftTime { "time.sock" } else { "node.sock" }
}

/// Starts a daemon and waits until it answers.
fn start(what: &str, command: Command, mut answers: impl FnMut() -> bool) -> Result<Running, String> {
    let file = command.get_program().to_string_lossy().into_owned();
    let started = Process::start(command);
    let (process, input, output) =
        started.map_err(|error| format!("{what} cannot be started: {file}: {}", harness::reason(&error)))?;
    process.keep(output);
    let mut running = (process, input);
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = running.0.wait(Instant::now() + GLANCE) {
            return Err(format!("{what} ended ({status}); {}", running.0.last_words()));
        }
        if answers() {
            return Ok(running);
        }
        if Instant::now() > until {
            return Err(format!("{what} does not answer; {}", running.0.last_words()));
        }
    }
}

/// Runs a command that ends soon, for what it prints.
fn ask(command: Command, input: &str) -> Result<String, String> {
    let shown = shown(&command);
    let (mut process, mut stdin, mut stdout) =
        Process::start(command).map_err(|error| format!("`{shown}` cannot be run: {}", harness::reason(&error)))?;
    // One that does not read has said why by its status.
    let _ = writeln!(stdin, "{input}");
    drop(stdin);
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut stdout, &mut text);
        text
    });
    let status = process.wait(Instant::now() + PATIENCE);
    match status {
        Some(status) if status.success() => {}
        Some(status) => return Err(format!("`{shown}` failed ({status}); {}", process.last_words())),
        None => return Err(format!("`{shown}` does not end; {}", process.last_words())),
    }
    drop(process);
    Ok(read.join().unwrap_or_default())
}

/// What a person would type, without where the program is.
fn shown(command: &Command) -> String {
    let file = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(file).chain(command.get_args()).map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fail_say_why() {
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        assert_eq!(ask(shell("read line; echo got $line"), "this"), Ok("got this\n".into()));
        let failed = ask(shell("echo oh >&2; exit 3"), "").unwrap_err();
        assert_eq!(failed, "`sh -c echo oh >&2; exit 3` failed (exit status: 3); it said last: oh");
        let never = start("it", shell("echo no GPU >&2; exit 1"), || false).unwrap_err();
        assert_eq!(never, "it ended (exit status: 1); it said last: no GPU");
        let missing = start("it", Command::new("/nothing/of/this/name"), || false).unwrap_err();
        assert_eq!(missing, "it cannot be started: /nothing/of/this/name: no such file or folder");
    }

    #[test]
    fn worlds_differ_by_variables_and_flags() {
        let mut daemons = Daemons::new().unwrap();
        let group =
            Group { copies: 1, command: "python3 {workloads}/a.py".into(), slo: Some("3ms".into()), request: None };
        let native = daemons.command(World::Native, Class::Latency, &group, ".").unwrap();
        assert_eq!(shown(&native), "python3 ./a.py");
        let variable = |name: &str| {
            let mut set = native.get_envs().filter(|(key, _)| *key == name);
            set.next().and_then(|(_, value)| value.map(|value| value.to_string_lossy().into_owned()))
        };
        let pipes = variable(MPS_PIPES).unwrap();
        assert!(!Path::new(&pipes).exists(), "{pipes}");
        assert_eq!(variable(MPS_PRIORITY), None);
        assert_eq!((run_flags(World::WeftTime), run_flags(World::Weft).len()), (&["--share", "time"][..], 0));
    }
}
