//! The MPS server of spatial mode: starting it, watching it, starting it again.
//!
//! The daemon runs one of NVIDIA's control programs in a folder of its own. The control program starts the server when the
//! first program comes. It outlives the daemon, because programs that use it would end with it: the next daemon finds it by
//! its process number, in a file that it writes. A thread watches it, so that it never delays a tick.
//!
//! Invariants:
//! 1. What [`Mps::ready`] says was true a moment ago: the control program ran and answered, and no server of it was broken.
//! 2. A control program that dies is started again, with growing pauses if it keeps dying. Programs under it fail, which is
//!    how NVIDIA's server works; programs that come meanwhile run in temporal mode.
//! 3. A server that has a fault, as after a program of it was killed in the middle of a kernel, is ended: its programs have
//!    failed with it, and until it ends those that come wait for it without an end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is checked.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How long it may take to start, or to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before it is started again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// As much of an answer as is read.
const ANSWER_MAX: u64 = 4 << 10;

/// Where a program finds the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    pub(crate) pipe: PathBuf,
    pub(crate) log: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    /// With the reason.
    Unavailable(String),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<(State, bool)>,
    changed: Condvar,
}

/// The server of one daemon.
#[derive(Debug)]
pub(crate) struct Mps {
    pub(crate) folders: Folders,
    program: OsString,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mps {
    /// The control program: NVIDIA's, or what `WEFT_MPS_CONTROL` names, which is none when it is empty.
    pub(crate) fn program() -> OsString {
        std::env::var_os("WEFT_MPS_CONTROL").unwrap_or_else(|| "nvidia-cuda-mps-control".into())
    }

    /// Starts a control program whose files are in this folder, and the thread that watches it.
    pub(crate) fn start(folder: &Path, program: OsString) -> Mps {
        let folders = Folders { pipe: folder.join("pipe"), log: folder.join("log") };
        let shared = Arc::new(Shared { state: Mutex::new((State::Starting, false)), changed: Condvar::new() });
        let mut mps = Mps { folders, program, shared, thread: None };
        if mps.program.is_empty() {
            mps.shared.set(State::Unavailable("MPS is switched off (WEFT_MPS_CONTROL)".into()));
            return mps;
        }
        let watcher =
            Watcher { program: mps.program.clone(), folders: mps.folders.clone(), shared: mps.shared.clone() };
        match std::thread::Builder::new().name("weft-mps".into()).spawn(move || watcher.run()) {
            Ok(thread) => mps.thread = Some(thread),
            Err(error) => mps.shared.set(State::Unavailable(format!("no thread could be started: {error}"))),
        }
        mps
    }

    /// Waits until it is known whether it runs.
    pub(crate) fn settle(&self) {
        let until = Instant::now() + TIMEOUT;
        let mut state = self.shared.lock();
        while state.0 == State::Starting && Instant::now() < until {
            state = self.shared.changed.wait_timeout(state, CHECK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The folders for programs; an error says why it is not available.
    pub(crate) fn ready(&self) -> Result<&Folders, String> {
        match &self.shared.lock().0 {
            State::Ready => Ok(&self.folders),
            State::Starting => Err("MPS is starting".into()),
            State::Unavailable(problem) => Err(problem.clone()),
        }
    }

    /// Stops watching it. `end` also ends it, because no program needs it.
    pub(crate) fn stop(mut self, end: bool) {
        {
            let mut state = self.shared.lock();
            state.1 = true;
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if end && running(&self.folders).is_some() {
            let _ = ask(&self.program, &self.folders, "quit");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (State, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        let mut now = self.lock();
        if now.0 != state {
            match &state {
                State::Unavailable(problem) => tracing::info!("spatial mode is not available: {problem}"),
                State::Ready => tracing::info!("spatial mode is available, under MPS"),
                State::Starting => {}
            }
            now.0 = state;
        }
        self.changed.notify_all();
    }

    /// Sleeps. Returns whether it is time to end.
    fn sleep(&self, length: Duration) -> bool {
        let until = Instant::now() + length;
        let mut state = self.lock();
        while !state.1 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// The thread that watches the control program.
struct Watcher {
    program: OsString,
    folders: Folders,
    shared: Arc<Shared>,
}

impl Watcher {
    fn run(self) {
        let mut again = RETRY_FIRST;
        loop {
            let state = match self.check() {
                Ok(()) => State::Ready,
                Err(problem) => State::Unavailable(problem),
            };
            let wait = if state == State::Ready { CHECK_EVERY } else { again };
            again = if state == State::Ready { RETRY_FIRST } else { (again * 2).min(RETRY_MAX) };
            self.shared.set(state);
            if self.shared.sleep(wait) {
                return;
            }
        }
    }

    /// Checks that it runs and answers, or starts it.
    fn check(&self) -> Result<(), String> {
        if let Some(process) = running(&self.folders) {
            if let Ok(servers) = ask(&self.program, &self.folders, "get_server_list") {
                servers.split_whitespace().for_each(|server| self.end_if_broken(server));
                return Ok(());
            }
            tracing::warn!(process, "MPS does not answer and is restarted");
            if let Some(process) = rustix::process::Pid::from_raw(process) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            std::thread::sleep(RETRY_FIRST);
        }
        for folder in [&self.folders.pipe, &self.folders.log] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
            made.map_err(|error| format!("make the folder {}: {error}", folder.display()))?;
        }
        let name = self.program.display();
        let mut command = command(&self.program, &self.folders);
        let said = File::create(self.folders.log.join("start.log")).map_err(|error| format!("write a log: {error}"))?;
        let other = said.try_clone().map_err(|error| format!("write a log: {error}"))?;
        let child = command.arg("-d").stdin(Stdio::null()).stdout(said).stderr(other).spawn();
        let child = child.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("`{name}` is not installed"),
            _ => format!("`{name}` cannot be started: {error}"),
        })?;
        wait(child).map_err(|problem| {
            let said = fs::read_to_string(self.folders.log.join("start.log")).unwrap_or_default();
            format!("`{name} -d` {problem}: {}", said.lines().last().unwrap_or("it printed nothing"))
        })?;
        ask(&self.program, &self.folders, "get_server_list").map(drop)
    }

    /// Ends a server that has a fault.
    fn end_if_broken(&self, server: &str) {
        let status = ask(&self.program, &self.folders, &format!("get_server_status {server}"));
        if status.is_ok_and(|status| status.trim() == "FAULT") {
            tracing::warn!(
                server,
                "the MPS server has a fault and is ended; programs in spatial mode have failed with it"
            );
            let _ = ask(&self.program, &self.folders, &format!("shutdown_server {server} -f"));
        }
    }
}

/// The control program's process, where one runs.
fn running(folders: &Folders) -> Option<i32> {
    let text = fs::read_to_string(folders.pipe.join("nvidia-cuda-mps-control.pid")).ok()?;
    let process: i32 = text.trim().parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    // Its number may be another's by now.
    name.starts_with("nvidia-cuda-mps").then_some(process)
}

fn command(program: &OsString, folders: &Folders) -> Command {
    let mut command = Command::new(program);
    command.env("CUDA_MPS_PIPE_DIRECTORY", &folders.pipe).env("CUDA_MPS_LOG_DIRECTORY", &folders.log);
    command.env_remove("LD_PRELOAD").current_dir("/");
    command
}

/// Sends a command to the control program, and waits until it is done. What it answers is no more than a pipe holds.
fn ask(program: &OsString, folders: &Folders, words: &str) -> Result<String, String> {
    let mut command = command(program, folders);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("ask MPS: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        let _ = writeln!(input, "{words}");
    }
    let output = child.stdout.take();
    wait(child).map_err(|problem| format!("asking MPS {problem}"))?;
    let mut answer = String::new();
    let read = output.map(|output| output.take(ANSWER_MAX).read_to_string(&mut answer)).transpose();
    read.map_err(|error| format!("read what MPS answers: {error}"))?;
    Ok(answer)
}

/// Waits for a program that is to end soon.
fn wait(mut child: Child) -> Result<(), String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("took too long".into());
            }
            Err(error) => return Err(format!("was lost: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A control program that can be told to refuse, by a file beside it.
    const CONTROL: &str = r#"#!/bin/sh
here=$(dirname "$0")
pid="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
    [ -e "$here/refuses" ] && { echo "no MPS on this GPU"; exit 1; }
    "$here/nvidia-cuda-mps" 1000 &
    echo $! > "$pid"
    exit 0
fi
read words
kill -0 "$(cat "$pid")" || exit 1
case "$words" in
quit) kill "$(cat "$pid")" ;;
get_server_list) cat "$here/servers" ;;
get_server_status*) cat "$here/status" ;;
shutdown_server*) echo "$words" > "$here/ended"; : > "$here/servers" ;;
esac
exit 0
"#;

    fn control(folder: &Path) -> OsString {
        let program = folder.join("control");
        fs::write(&program, CONTROL).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy("/bin/sleep", folder.join("nvidia-cuda-mps")).unwrap();
        fs::write(folder.join("servers"), "").unwrap();
        fs::write(folder.join("status"), "ACTIVE\n").unwrap();
        program.into()
    }

    fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(process: i32) {
        let process = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_server_that_dies_is_started_again_and_one_that_runs_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let program = control(folder.path());
        let mps = Mps::start(&folder.path().join("mps"), program.clone());
        mps.settle();
        let folders = mps.ready().unwrap().clone();
        let first = running(&folders).unwrap();
        kill(first);
        let second = until("it was not started again", || running(&folders).filter(|process| *process != first));
        until("it is not said to be there", || mps.ready().ok());
        mps.stop(false);
        assert_eq!(running(&folders), Some(second), "programs may still use it");

        let next = Mps::start(&folder.path().join("mps"), program);
        next.settle();
        assert_eq!(running(&folders), Some(second), "the next daemon has it");
        next.stop(true);
        until("it does not end", || running(&folders).is_none().then_some(()));
    }

    #[test]
    fn a_server_with_a_fault_is_ended_and_one_without_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let program = control(folder.path());
        fs::write(folder.path().join("servers"), "1185\n").unwrap();
        let folders = Folders { pipe: folder.path().join("pipe"), log: folder.path().join("log") };
        let shared = Arc::new(Shared { state: Mutex::new((State::Starting, false)), changed: Condvar::new() });
        let watcher = Watcher { program: program.clone(), folders: folders.clone(), shared };
        let ended = || fs::read_to_string(folder.path().join("ended")).ok();
        for _ in 0..2 {
            watcher.check().unwrap();
        }
        assert_eq!(ended(), None, "it has no fault");
        fs::write(folder.path().join("status"), "FAULT\n").unwrap();
        watcher.check().unwrap();
        assert_eq!(ended().as_deref(), Some("shutdown_server 1185 -f\n"));
        ask(&program, &folders, "quit").unwrap();
    }

    #[test]
    fn a_control_program_that_fails_is_quoted_and_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let program = control(folder.path());
        fs::write(folder.path().join("refuses"), "").unwrap();
        let mps = Mps::start(&folder.path().join("mps"), program);
        mps.settle();
        assert!(mps.ready().unwrap_err().contains("no MPS on this GPU"), "{:?}", mps.ready());
        fs::remove_file(folder.path().join("refuses")).unwrap();
        until("it was not asked again", || mps.ready().ok());
        mps.stop(true);

        let none = Mps::start(&folder.path().join("mps"), "no-such-program-anywhere".into());
        none.settle();
        assert_eq!(none.ready().unwrap_err(), "`no-such-program-anywhere` is not installed");
        none.stop(true);
        let off = Mps::start(&folder.path().join("mps"), OsString::new());
        assert!(off.ready().unwrap_err().contains("switched off"));
        off.stop(true);
    }
}
