//! `weft up`: gateway, scheduler and node in one process, workers as its children.

mod local;
pub(crate) mod check;
pub(crate) mod settings;

use crate::runtime::runtime;
use crate::servers::{Listeners, Servers};
use crate::signal::end_at_second_signal;
use anyhow::{Context, Result};
use clap::Args;
use gateway::Gateway;
use harness::wait_for_signal;
use local::{LocalGateway, LocalLinks, LocalNode, LocalScheduler, NODE, NodeLogs};
use node::Node;
use rpc::NodeHello;
use scheduler::{Scheduler, Store};
use settings::Settings;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The number of the only gateway.
const GATEWAY: u32 = 0;

/// Serve models on this machine.
///
/// Runs gateway, scheduler and workers. Serves the Open Inference Protocol for Triton's clients: HTTP on port 8000, gRPC on
/// 8001, and metrics, dashboard and admin on 8002. Without a configuration file the server starts without models; `weft
/// deploy` adds them. On Ctrl-C or SIGTERM the server answers the requests that it has accepted and then exits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Configuration: models, limits, addresses [default: weft.toml in this folder, if there is one]
    config: Option<PathBuf>,
    #[command(flatten)]
    addresses: Addresses,
    /// Folder for deployments, journals and run-time files [default: .weft]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Write a journal of every event and decision, for `weft sim replay`
    #[arg(long)]
    journal: bool,
    /// Check the configuration and the files that it names, and exit
    #[arg(long)]
    check: bool,
    /// End together with the parent process
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Where a gateway listens.
#[derive(Debug, Args)]
pub(crate) struct Addresses {
    /// Address for HTTP [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Address for gRPC [default: 127.0.0.1:8001]
    #[arg(long, value_name = "ADDRESS")]
    grpc: Option<SocketAddr>,
    /// Address for metrics, dashboard and admin [default: 127.0.0.1:8002]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

impl Addresses {
    /// What was typed wins over what was written.
    pub(crate) fn apply(&self, settings: &mut Settings) {
        let listen = &mut settings.listen;
        listen.http = self.http.unwrap_or(listen.http);
        listen.grpc = self.grpc.unwrap_or(listen.grpc);
        listen.metrics = self.metrics.unwrap_or(listen.metrics);
    }
}

const EXAMPLES: &str = "\
Examples:
  weft up
  weft up weft.toml --http 0.0.0.0:8000
  curl localhost:8000/v2/health/ready";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let settings = effective(&arguments)?;
    if arguments.check {
        return check::report(&settings, check::Models::Here);
    }
    if arguments.with_parent {
        crate::signal::end_with_parent()?;
    }
    crate::logging::start();
    crate::setup::prepare(&settings);
    runtime()?.block_on(serve(settings))
}

fn effective(arguments: &Arguments) -> Result<Settings> {
    let mut settings = Settings::find(arguments.config.as_deref())?;
    arguments.addresses.apply(&mut settings);
    settings.scheduler.journal |= arguments.journal;
    if let Some(state) = &arguments.state {
        settings.state = std::path::absolute(state)?;
    }
    Ok(settings)
}

async fn serve(settings: Settings) -> Result<()> {
    let listeners = Listeners::bind(&settings).await?;
    let store = Store::open(&settings.state)?;
    let (scheduler, scheduling) = Scheduler::start(settings.scheduler_config(), store)?;
    // Before the workers, which may be its tenants.
    let sharing = crate::share::daemon::share_beside(settings.sharing.0.clone());
    let config = crate::setup::node_config(&settings)?;
    let node = Arc::new(Node::start(config, Handle::current(), LocalScheduler(scheduler.clone()))?);
    let gateway = connect(&settings, &scheduler, &node);
    gateway.set_strict_readiness(settings.strict_readiness);

    let logs = Arc::new(NodeLogs(Arc::downgrade(&node)));
    let mut servers = Servers::start(&settings, &gateway, logs, listeners)?;
    tracing::info!(http = %settings.listen.http, grpc = %settings.listen.grpc, "serving");
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    tracing::info!("dashboard: {scheme}://{}/ui", settings.listen.metrics);
    tokio::spawn(shed(gateway.clone()));
    tokio::select! {
        signal = wait_for_signal() => signal?,
        broke = servers.broke() => broke.context("serve")?,
    }
    end_at_second_signal();
    tracing::info!(in_flight = gateway.in_flight(), "stopping: accepted requests are answered first");
    servers.finish().await?;
    scheduler.stop();
    let _ = scheduling.join();
    drop(gateway);
    end(node).await;
    crate::share::daemon::end(sharing);
    Ok(())
}

/// Gives back the memory of the code that was needed only to start, once every model has been loaded.
async fn shed(gateway: Arc<Gateway>) {
    while gateway.is_loading() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(gateway);
    if let Ok(program) = std::env::current_exe() {
        shm::give_back(&program.to_string_lossy());
    }
}

/// Joins gateway, scheduler and node by calls within this process.
fn connect(settings: &Settings, scheduler: &Scheduler, node: &Arc<Node>) -> Arc<Gateway> {
    let gateway = Gateway::new(GATEWAY, LocalLinks { scheduler: scheduler.clone(), node: node.clone() });
    scheduler.gateway_joined(GATEWAY, LocalGateway(gateway.clone()));
    let hello =
        NodeHello { name: settings.name.clone(), virtual_gpus: settings.node.virtual_gpus, ..NodeHello::default() };
    scheduler.node_joined(NODE, hello, LocalNode(node.clone()));
    gateway
}

/// Ends the workers, once nobody else holds the node.
async fn end(node: Arc<Node>) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut node = Some(node);
    while let Some(held) = node.take() {
        match Arc::try_unwrap(held) {
            Ok(node) => {
                let _ = tokio::task::spawn_blocking(move || node.stop()).await;
            }
            Err(held) if Instant::now() < deadline => {
                node = Some(held);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(_) => tracing::warn!("workers end with this process"),
        }
    }
}
