//! `weft scheduler`, `weft gateway`, `weft node`: the parts of `weft up` on machines of their own.

use crate::output::Misuse;
use crate::servers::{Listeners, Servers, listen, warn_if_exposed};
use crate::signal::end_at_second_signal;
use crate::up::Addresses;
use crate::up::check::{self, Models};
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use clap::Args;
use gateway::admin::LogSource;
use harness::wait_for_signal;
use policy::sharing::SharingConfig;
use scheduler::lead::{Engine, Lead};
use scheduler::lock_file::LockFile;
use scheduler::server::Office;
use scheduler::{Scheduler, Store};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run a scheduler for gateways and nodes on other machines.
///
/// The scheduler decides which requests run where and when, and stores deployments. Gateways and nodes join with the token
/// in `[cluster]` of the configuration, or in WEFT_TOKEN.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  WEFT_TOKEN=secret weft scheduler weft.toml --listen 10.0.0.1:8003\n  WEFT_TOKEN=secret weft scheduler weft.toml --listen 10.0.0.1:8013 --standby"
)]
pub(crate) struct SchedulerArguments {
    /// Configuration: models, limits, addresses [default: weft.toml in this folder, if there is one]
    config: Option<PathBuf>,
    /// Address to listen on for gateways and nodes
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// While another scheduler leads with the same state folder, wait until it ends, then take its place
    #[arg(long)]
    standby: bool,
    /// Check the configuration and the files that it names, and exit; model files are on the nodes and not checked
    #[arg(long)]
    check: bool,
}

/// Run a gateway whose scheduler is on another machine.
///
/// Clients use it like `weft up`. The gateway announces requests to the scheduler and sends tensors straight to the nodes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  WEFT_TOKEN=secret weft gateway --scheduler http://scheduler.example:8003 --http 0.0.0.0:8000"
)]
pub(crate) struct GatewayArguments {
    /// Configuration: limits, keys, addresses [default: weft.toml in this folder, if there is one]
    config: Option<PathBuf>,
    /// Address of the scheduler; if there are standbys, all addresses, separated by commas
    #[arg(long, value_name = "URL,...")]
    scheduler: Option<String>,
    #[command(flatten)]
    addresses: Addresses,
}

/// Share this machine's GPUs among programs, and run workers for a scheduler on another machine.
///
/// Without --scheduler the node only shares GPUs among the programs that `weft run` starts. With it the node also runs
/// workers. Nodes may join, leave and die at any time; requests of a lost node run again elsewhere if their deadline allows.
#[derive(Debug, Args)]
#[command(after_help = NODE_EXAMPLES)]
pub(crate) struct NodeArguments {
    /// Configuration of workers [default: weft.toml in this folder, if there is one]
    config: Option<PathBuf>,
    /// Address of the scheduler; if there are standbys, all addresses, separated by commas
    #[arg(long, value_name = "URL,...")]
    scheduler: Option<String>,
    /// Host and port at which gateways reach this node
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Address to listen on for gateways [default: --address]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Name of the node in `weft explain` and logs [default: its address]
    #[arg(long)]
    name: Option<String>,
    /// Folder for run-time files
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Folder for journals of all observations and actions on each GPU, for `weft sim replay`
    #[arg(long, value_name = "FOLDER", conflicts_with = "scheduler")]
    record: Option<PathBuf>,
    /// End after this time without a program that shares a GPU; `weft run` starts nodes with it
    #[arg(long, hide = true)]
    idle_exit: Option<policy::Span>,
    /// Detach from the terminal and from the parent process
    #[arg(long, hide = true, requires = "idle_exit")]
    detach: bool,
}

const NODE_EXAMPLES: &str = "\
Examples:
  weft node
  weft node --record journals
  WEFT_TOKEN=secret weft node --scheduler http://scheduler.example:8003 --address node-7.example:8004";

fn start(work: impl Future<Output = Result<()>>) -> Result<()> {
    crate::logging::start();
    crate::runtime::runtime()?.block_on(work)
}

/// Over at the first Ctrl-C or SIGTERM; the second ends the process.
async fn told_to_end() {
    drop(wait_for_signal().await);
    end_at_second_signal();
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

fn identity(settings: &Settings) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    settings.tls.as_ref().map(|tls| Ok((read(&tls.certificate)?, read(&tls.key)?))).transpose()
}

/// Where to listen so that a node is reached by this address, and by nothing else.
fn own(address: &str) -> Result<SocketAddr> {
    let misuse = |problem: String| Misuse(format!("listen on the address {address}: {problem}"));
    let named = address.to_socket_addrs().map_err(|error| misuse(format!("{error}; it is a host and a port")))?;
    // One that is this machine's can be bound.
    let mut found: Vec<SocketAddr> = named.collect();
    found.sort_by_key(|found| !found.is_ipv4());
    let bound = found.iter().find(|found| std::net::UdpSocket::bind((found.ip(), 0)).is_ok());
    let how = "it is not an address of this machine; say where to listen with --listen, such as --listen 0.0.0.0:8004";
    Ok(*bound.ok_or_else(|| misuse(how.into()))?)
}

pub(crate) fn scheduler(arguments: SchedulerArguments) -> Result<()> {
    let settings = Settings::find(arguments.config.as_deref())?;
    if arguments.check {
        return check::report(&settings, Models::OnNodes);
    }
    let address = arguments.listen.unwrap_or(settings.cluster.listen);
    let token = settings.cluster_token()?;
    scheduler::private_folder(&settings.state)?;
    start(async move {
        warn_if_exposed("the scheduler", address, &settings);
        let listener = listen("listen", address).await?;
        let config = scheduler::server::ServerConfig { token: Some(token), identity: identity(&settings)? };
        let office = Office::default();
        let serving = scheduler::server::serve(office.clone(), listener, config, told_to_end());
        let leading = async {
            let lead = lead(&settings.state, arguments.standby).await?;
            let scheduler_config = scheduler::Config {
                // Nodes outlive this scheduler, and their workers have the ids that it gave them.
                epoch: (rpc::Incarnation::random().0 as u32).max(1),
                settle: rpc::timing::SETTLE,
                term: lead.term(),
                ..settings.scheduler_config()
            };
            let (scheduler, thread) = Scheduler::start(scheduler_config, Store::led(&settings.state, lead)?)?;
            office.take(scheduler);
            tracing::info!(%address, "scheduling; gateways and nodes may join");
            Ok::<_, anyhow::Error>(thread)
        };
        tokio::pin!(serving);
        let thread = tokio::select! {
            served = &mut serving => return served,
            thread = leading => thread?,
        };
        let served = serving.await;
        drop(thread.join());
        served
    })
}

/// A gateway on a machine of its own has no worker's log.
struct LogsElsewhere;

impl LogSource for LogsElsewhere {
    fn last_lines(&self, _: &str, _: usize) -> Vec<String> {
        vec!["each node prints the logs of its own workers; read them on the nodes".to_owned()]
    }
}

/// Leads with this state folder: at once, or on standby as soon as nobody else does.
async fn lead(state: &Path, standby: bool) -> Result<Arc<dyn Lead>> {
    let mut engine = LockFile::of(state);
    match engine.try_lead()? {
        Some(lead) => return Ok(lead),
        None if standby => {
            tracing::info!("on standby: another scheduler leads with the state folder {}", state.display());
        }
        None => anyhow::bail!(
            "open the deployments in {}: another `weft` is running with them; start this one with --standby, stop the \
             other, or name another folder with `state` in the configuration",
            state.display()
        ),
    }
    // A thread of its own, which waits for as long as others lead and ends with the process.
    let (tell, told) = tokio::sync::oneshot::channel();
    let waiting = std::thread::Builder::new().name("standby".into());
    waiting.spawn(move || drop(tell.send(engine.lead()))).context("start the thread that waits to lead")?;
    told.await.context("wait to lead")
}

pub(crate) fn gateway(arguments: GatewayArguments) -> Result<()> {
    let mut settings = Settings::find(arguments.config.as_deref())?;
    arguments.addresses.apply(&mut settings);
    let remote = gateway::remote::Remote {
        schedulers: settings.scheduler_urls(arguments.scheduler)?,
        token: Some(settings.cluster_token()?),
        authority: settings.cluster.authority.as_deref().map(read).transpose()?,
    };
    start(async move {
        let listeners = Listeners::bind(&settings).await?;
        let gateway = gateway::remote::start(remote);
        gateway.set_strict_readiness(settings.strict_readiness);
        let mut servers = Servers::start(&settings, &gateway, Arc::new(LogsElsewhere), listeners)?;
        tracing::info!(http = %settings.listen.http, grpc = %settings.listen.grpc, "serving");
        tokio::select! {
            signal = wait_for_signal() => signal?,
            broke = servers.broke() => broke.context("serve")?,
        }
        end_at_second_signal();
        servers.finish().await
    })
}

pub(crate) fn node(arguments: NodeArguments) -> Result<()> {
    if let Some(idle_exit) = arguments.idle_exit {
        if arguments.detach {
            return crate::share::daemon::detach(&["--idle-exit".into(), idle_exit.to_string()]);
        }
        return crate::share::daemon::share_only(Some(idle_exit), None, SharingConfig::default());
    }
    let mut settings = Settings::find(arguments.config.as_deref())?;
    if let Some(state) = &arguments.state {
        settings.state = std::path::absolute(state)?;
    }
    if !settings.has_scheduler(arguments.scheduler.as_deref()) {
        return crate::share::daemon::share_only(None, arguments.record, settings.sharing.0);
    }
    if arguments.record.is_some() {
        return Err(
            Misuse("record: --record is for a node without a scheduler; leave it or the scheduler out".into()).into()
        );
    }
    let address = arguments.address.or(settings.cluster.address.clone()).unwrap_or_else(|| "127.0.0.1:8004".into());
    let bind = arguments.listen.map_or_else(|| own(&address), Ok)?;
    scheduler::private_folder(&settings.state)?;
    let remote = node::remote::Remote {
        schedulers: settings.scheduler_urls(arguments.scheduler)?,
        token: Some(settings.cluster_token()?),
        authority: settings.cluster.authority.as_deref().map(read).transpose()?,
        identity: identity(&settings)?,
        name: arguments.name.unwrap_or_else(|| address.clone()),
        virtual_gpus: settings.node.virtual_gpus,
        address,
    };
    let config = crate::setup::node_config(&settings)?;
    start(async move {
        warn_if_exposed("the node", bind, &settings);
        let listener = listen("listen", bind).await?;
        let sharing = crate::share::daemon::share_beside(settings.sharing.0.clone());
        let ran = node::remote::run(config, remote, listener, told_to_end()).await;
        crate::share::daemon::end(sharing);
        ran
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_listens_where_it_is_reached_and_nowhere_else() {
        let check = |address: &str, expected: &str| assert_eq!(own(address).unwrap().to_string(), expected);
        check("127.0.0.1:8004", "127.0.0.1:8004");
        check("localhost:8004", "127.0.0.1:8004");
        let wrong = |address: &str, expected: &str| {
            let message = own(address).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        wrong("127.0.0.1", "a host and a port");
        // An address for documentation, which no machine has.
        wrong("192.0.2.7:8004", "say where to listen with --listen");
    }
}
