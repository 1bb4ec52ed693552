//! Reaching the daemon, and starting one where there is none.
//!
//! A daemon that is started on demand is nobody's child: `weft run` becomes the program that was asked for, which must
//! not find a child that it did not start. So a process in between starts it and ends.

use crate::output::Misuse;
use anyhow::{Context, Result};
use daemon::{Config, Daemon};
use policy::sharing::SharingConfig;
use share_client::{Client, DaemonPaths, Gpus};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a daemon may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a daemon that was started on demand stays without tenants.
const IDLE_EXIT: &str = "60s";

/// The daemon, or an error that says how to start one.
pub(crate) fn reach() -> Result<Client> {
    Client::find()?.ok_or_else(|| {
        let place = DaemonPaths::own();
        let text = "no daemon shares GPUs here; `weft run` and `weft node` start one";
        Misuse(format!("reach {}: {text}", place.socket.display())).into()
    })
}

/// The daemon, started if need be.
pub(crate) fn reach_or_start() -> Result<Client> {
    if let Some(client) = Client::find()? {
        return Ok(client);
    }
    let place = DaemonPaths::own();
    let begun = Instant::now();
    start(&place).with_context(|| "start a daemon that shares GPUs")?;
    loop {
        if let Some(client) = Client::connect(&place)? {
            return Ok(client);
        }
        if begun.elapsed() > PATIENCE {
            let said = std::fs::read_to_string(place.log()).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it printed nothing").to_owned();
            let log = place.log();
            return Err(Misuse(format!("start a daemon that shares GPUs: {last} (see {})", log.display())).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(place: &DaemonPaths) -> Result<()> {
    place.prepare()?;
    let log = place.log();
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let file = file.with_context(|| format!("open {}", log.display()))?;
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.args(["node", "--detach", "--idle-exit", IDLE_EXIT]).env("WEFT_SOCKET", &place.socket);
    // The daemon is no program under a share, even where the command that starts it is.
    for variable in ["LD_PRELOAD", "WEFT_TENANT"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir("/");
    let status = command.status().context("run it")?;
    anyhow::ensure!(status.success(), "{status}; see {}", log.display());
    Ok(())
}

/// Starts the daemon itself in a session of its own, from the process in between.
pub(crate) fn detach(arguments: &[String]) -> Result<()> {
    // A process that leads no group yet may lead a session; what it starts is in it and has no terminal.
    rustix::process::setsid().context("leave the terminal")?;
    let program = std::env::current_exe().context("find this program")?;
    Command::new(program).arg("node").args(arguments).spawn().context("start the daemon")?;
    Ok(())
}

/// Shares GPUs until somebody ends this process, or until nobody shared one for a while.
pub(crate) fn share_only(
    idle_exit: Option<policy::Span>,
    record: Option<PathBuf>,
    sharing: SharingConfig,
) -> Result<()> {
    crate::logging::start();
    // Two daemons would give the same GPU away twice.
    if let Some(client) = Client::find()? {
        anyhow::bail!("share GPUs at {}: a daemon is there already", client.paths.socket.display());
    }
    let gpus = Gpus::find();
    if let Some(problem) = &gpus.problem {
        tracing::warn!("{problem}");
    }
    if let Some(folder) = &record {
        std::fs::create_dir_all(folder).with_context(|| format!("record to {}", folder.display()))?;
    }
    let idle_exit = idle_exit.map(|idle| Duration::from_nanos(idle.nanos()));
    crate::runtime::runtime()?.block_on(async {
        let daemon = Daemon::start(Config { paths: DaemonPaths::own(), gpus, idle_exit, record, sharing })?;
        let stop = daemon.stopper();
        let signal = harness::wait_for_signal();
        let mut ended = tokio::task::spawn_blocking(move || daemon.join());
        tokio::select! {
            signal = signal => signal?,
            _ = &mut ended => return Ok(()),
        }
        stop();
        ended.await.context("end the daemon")
    })
}

/// Shares GPUs beside whatever else this process does, where there are any and nobody shares them yet.
pub(crate) fn share_beside(sharing: SharingConfig) -> Option<Daemon> {
    let gpus = Gpus::find();
    if gpus.gpus.is_empty() {
        tracing::debug!(problem = gpus.problem, "no GPU to share");
        return None;
    }
    if let Ok(Some(client)) = Client::find() {
        tracing::info!(socket = %client.paths.socket.display(), "another daemon shares the GPUs here");
        return None;
    }
    match Daemon::start(Config { paths: DaemonPaths::own(), gpus, idle_exit: None, record: None, sharing }) {
        Ok(daemon) => Some(daemon),
        Err(error) => {
            tracing::info!("not sharing GPUs here: {error:#}");
            None
        }
    }
}

/// Ends what was started beside.
pub(crate) fn end(daemon: Option<Daemon>) {
    if let Some(daemon) = daemon {
        daemon.stop();
        daemon.join();
    }
}
