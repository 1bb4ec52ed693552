//! How a worker process is started: the one place where that is written.
//!
//! The process gets the control socket as its standard input and nothing else of ours: every other file of the node is
//! closed when it starts, and the shared memory comes over the socket. It leads a process group of its own, so that a
//! key pressed in the node's terminal does not reach it, and so that whatever it starts ends with it.
//!
//! Its environment is the node's without what could change which code an interpreter runs and without secrets of Weft,
//! see [`config::env`], and with what its deployment adds. Python is started isolated: it takes nothing from its environment
//! and imports Weft's package, what is installed for it, and what is in the model's folder.
//!
//! A worker whose model asks for a share of a GPU is a tenant of the daemon that shares GPUs here: it is registered
//! before it starts, and stays so until its process is dropped. Without a daemon, which means without a GPU, it runs as
//! any other.

use crate::Config;
use crate::connection::Connection;
use crate::protocol::{Setup, Weights};
use crate::{gpu, python, weights};
use anyhow::{Context, Result, anyhow, bail};
use config::{Kind, ModelSpec, Percent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use share_client::{Answer, Boost, Client, Question, Register, environment};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker waits for somebody to make room, and how often it asks.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);
const ROOM_AGAIN: Duration = Duration::from_millis(200);
/// Variables that numeric libraries take their number of threads from.
const THREAD_VARIABLES: [&str; 5] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"];

/// What an isolated Python does: find our package in the folder that it is told, and be a worker.
const START: &str = "\
import importlib.util, runpy, sys
if not importlib.util.find_spec('numpy'):
    sys.exit(f'{sys.executable} has no numpy, which models in Python need; install it with `{sys.executable} -m pip install '
             'numpy`, run `weft setup`, or name another Python as `python` under [node]')
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module('weft.worker', run_name='__main__', alter_sys=True)
";

/// A worker's process. It is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    ended: Option<String>,
    /// Keeps its tenant, and its name.
    tenant: Option<(Client, String)>,
    /// The process, as a file that is ready when it has ended.
    pub(crate) handle: Arc<OwnedFd>,
}

/// A process that was just started.
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// Starts a worker process for a model.
pub(crate) fn spawn(config: &Config, spec: &ModelSpec) -> Result<Started> {
    let (mut connection, their_socket) = Connection::new(&spec.name)?;
    let mut command = command(config, spec)?;
    for (name, _) in std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(config::env::is_inherited)) {
        command.env_remove(name);
    }
    for variable in THREAD_VARIABLES {
        command.env(variable, spec.threads.to_string());
    }
    command.env("WEFT_MODEL", &spec.name);
    // What a deployment says goes over what is set here.
    command.envs(&spec.env);
    if matches!(spec.kind, Kind::Onnx { .. }) {
        command.envs(gpu::libraries(config, spec));
    }
    let tenant = enter(config, spec, &mut command)?;
    let gpu = gpu::grant(config, spec, tenant.is_some());
    command.process_group(0);
    command.stdin(Stdio::from(their_socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.get_program().to_owned();
    let child = command.spawn().map_err(|error| match (error.kind(), &spec.kind) {
        (ErrorKind::NotFound, Kind::Python { .. }) => anyhow!(
            "start {}: it is not there; install Python 3.9 or newer with numpy, run `weft setup`, or name another Python \
             as `python` under [node]",
            program.display()
        ),
        _ => anyhow::Error::new(error).context(format!("start {}", program.display())),
    })?;
    // The command holds our copy of the worker's socket; while it is open, the worker's end is not noticed.
    drop(command);

    let pid = Pid::from_child(&child);
    let mut process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => Process { child, ended: None, tenant, handle: Arc::new(handle) },
        Err(error) => {
            let mut child = child;
            let _ = child.kill();
            let _ = child.wait();
            return Err(error).context("watch a worker");
        }
    };
    connection.set_up(&Setup {
        max_batch: spec.max_batch,
        threads: spec.threads,
        inputs: spec.inputs.clone(),
        outputs: spec.outputs.clone(),
        weights: matches!(spec.kind, Kind::Python { .. }).then(|| Weights {
            folder: weights::folder(&config.directory),
            model: spec.name.clone(),
            version: spec.version,
            env: spec.env.keys().cloned().collect(),
            patience_ms: u64::try_from(config.load_timeout.as_millis() * 9 / 10).unwrap_or(u64::MAX),
        }),
        device: spec.device,
        gpu,
    })?;
    let (stdout, stderr) = (process.child.stdout.take(), process.child.stderr.take());
    let (stdout, stderr) = stdout.zip(stderr).ok_or_else(|| anyhow!("read what a worker prints"))?;
    Ok(Started { process, connection, stdout, stderr })
}

/// Registers the worker as a tenant with the share that its model asks for, and tells it so in its environment.
fn enter(config: &Config, spec: &ModelSpec, command: &mut Command) -> Result<Option<(Client, String)>> {
    let Some(share) = spec.worker_share() else { return Ok(None) };
    let (Some(client), Some(library)) = (Client::find()?, &config.library) else {
        tracing::warn!(model = spec.name, "runs without its share: no GPU is shared here, or libweft.so is missing");
        return Ok(None);
    };
    let register = Register {
        name: spec.name.clone(),
        rename: true,
        process: false,
        share: share.into(),
        command: Some(shm::stable_hash(spec.name.as_bytes())),
        wait: false,
        leaves: false,
    };
    let question = Question::Register(register);
    let until = Instant::now() + ROOM_PATIENCE;
    let tenant = loop {
        match client.ask(&question)? {
            Answer::Registered(tenant) => break tenant,
            Answer::Later(_) if Instant::now() < until => std::thread::sleep(ROOM_AGAIN),
            // It is tried again, as after any other failure.
            Answer::Later(reason) | Answer::Error(reason) => bail!("share a GPU: {reason}"),
            _ => bail!("share a GPU: the daemon answered something else"),
        }
    };
    command.envs(environment(&client.paths, &tenant, library, std::env::var_os("LD_PRELOAD")));
    Ok(Some((client, tenant.name)))
}

/// What is typed to start a worker by hand.
fn command(config: &Config, spec: &ModelSpec) -> Result<Command> {
    match &spec.kind {
        Kind::Onnx { path } => {
            let Some(library) = &config.onnxruntime else {
                bail!(
                    "find ONNX Runtime: run `weft setup`, or set `onnxruntime` to its library; where Weft was installed \
                     with pip, `pip install onnxruntime` does as well"
                );
            };
            let mut command = Command::new(&config.program);
            command.args(["worker", "onnx"]).arg("--model").arg(path).arg("--library").arg(library);
            Ok(command)
        }
        Kind::Python { path, class } => {
            let mut command = Command::new(&config.python);
            // Nothing is compiled into files: one that a full disk cut off would break every worker from then on.
            command.args(["-I", "-B", "-c", START]).arg(python::folder(&config.directory)).arg("--model").arg(path);
            if let Some(class) = class {
                command.arg("--class").arg(class);
            }
            Ok(command)
        }
        Kind::Virtual { .. } => bail!("start a process for a virtual model: it has none"),
    }
}

impl Process {
    /// Waits until it has ended; says whether it has.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let mut file = [PollFd::new(&*self.handle, PollFlags::IN)];
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        matches!(poll(&mut file, Some(&patience)), Ok(1))
    }

    /// Lets it have this much of its GPU, where it has a share of one.
    pub(crate) fn stretch(&self, to: Percent) {
        let Some((client, name)) = &self.tenant else { return };
        match client.ask(&Question::Boost(Boost { name: name.clone(), to })) {
            Ok(Answer::Boosted(_)) => {}
            Ok(answer) => tracing::warn!(tenant = name, ?answer, "its share does not follow its load"),
            // A daemon that comes back knows what it had.
            Err(error) => tracing::debug!(tenant = name, "its share does not follow its load: {error:#}"),
        }
    }

    /// Ends it and all it started, and says how it ended.
    pub(crate) fn end(&mut self) -> String {
        // Its number may belong to another process once it was waited for.
        if let Some(how) = &self.ended {
            return how.clone();
        }
        kill(&self.handle);
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let how = match self.child.wait() {
            Err(error) => format!("is gone: {error}"),
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (None, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
                (None, None) => "is gone".to_owned(),
            },
        };
        self.ended.insert(how).clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills a process; whoever waits for it sees it end.
pub(crate) fn kill(handle: &OwnedFd) {
    // It may have ended already.
    let _ = pidfd_send_signal(handle, Signal::KILL);
}

/// The signals that end processes in practice.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL; the kernel does this when memory runs out)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
