//! `weft up`: gateway, scheduler and node in one process, workers as its children.

pub(crate) mod check;
pub(crate) mod settings;

use crate::runtime::runtime;
use crate::servers::{Listeners, Servers};
use crate::signal::{end_at_second_signal, wait_for_signal};
use anyhow::{Context, Result};
use clap::Args;
use gateway::admin::Logs;
use gateway::{Gateway, Links};
use node::Node;
use rpc::{NodeHello, WorkerId};
use scheduler::{GatewayLink, NodeLink, Scheduler, Store};
use settings::Settings;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The numbers of the only gateway and the only node.
const GATEWAY: u32 = 0;
const NODE: u32 = 0;

/// Serve models: gateway, scheduler and workers on this machine.
///
/// Speaks the Open Inference Protocol as Triton's clients know it: HTTP on port 8000, gRPC on 8001, metrics, dashboard
/// and admin on 8002. Without a configuration file it starts empty; `weft deploy` adds models while it runs. Ctrl-C or
/// SIGTERM stops it after the requests it has accepted are answered.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to serve and how; `weft.toml` in this folder when there is one.
    config: Option<PathBuf>,
    #[command(flatten)]
    addresses: Addresses,
    /// Where to keep the database of deployments, journals and run-time files.
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Write down every event and decision, for `weft sim replay`.
    #[arg(long)]
    journal: bool,
    /// Read the configuration, say whether it makes sense and what it names is there, and stop.
    #[arg(long)]
    check: bool,
    /// End when whoever started this ends, however that happens.
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Where a gateway listens.
#[derive(Debug, Args)]
pub(crate) struct Addresses {
    /// Where to listen for HTTP [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Where to listen for gRPC [default: 127.0.0.1:8001]
    #[arg(long, value_name = "ADDRESS")]
    grpc: Option<SocketAddr>,
    /// Where to listen for metrics, dashboard and admin [default: 127.0.0.1:8002]
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
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal).context("hear of the parent's end")?;
    }
    crate::logging::start();
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
    let news = scheduler.clone();
    let node = Arc::new(Node::start(crate::setup::node_config(&settings)?, Handle::current(), move |news_of| {
        news.news(NODE, news_of)
    })?);
    let gateway = connect(&settings, &scheduler, &node);
    gateway.set_strict_readiness(settings.strict_readiness);

    let logs = logs(&node);
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
    let withdrawals = scheduler.clone();
    let (arrivals, orders, undelivered, runner) =
        (scheduler.clone(), scheduler.clone(), scheduler.clone(), node.clone());
    let links = Links {
        arrival: Box::new(move |arrival| {
            arrivals.arrival(arrival);
            true
        }),
        part: Box::new(move |part| runner.run(part)),
        withdrawn: Box::new(move |request, model| withdrawals.withdrawn(request, model)),
        undelivered: Box::new(move |worker, batch, nobody| undelivered.undelivered(worker, batch, nobody)),
        order: Box::new(move |order| {
            let (tell, told) = oneshot::channel();
            orders.order(order, move |outcome| drop(tell.send(outcome)));
            told
        }),
    };
    let gateway = Gateway::new(GATEWAY, links);
    let (tell, publish, look) = (gateway.clone(), gateway.clone(), gateway.clone());
    scheduler.gateway_joined(
        GATEWAY,
        GatewayLink {
            tell: Box::new(move |message| tell.tell(message)),
            publish: Box::new(move |catalog| publish.publish(catalog)),
            look: Box::new(move |overview| look.look(overview)),
            close: Box::new(|_| {}),
            leased: false,
        },
    );
    let orders = node.clone();
    scheduler.node_joined(
        NODE,
        NodeHello { name: settings.name.clone(), virtual_gpus: settings.node.virtual_gpus, ..NodeHello::default() },
        NodeLink { tell: Box::new(move |order| orders.order(order)), close: Box::new(|_| {}), leased: false },
    );
    gateway
}

/// What the workers of a model printed, each line with its worker's number.
fn logs(node: &Arc<Node>) -> Logs {
    let node = Arc::downgrade(node);
    Arc::new(move |name, lines| {
        let Some(node) = node.upgrade() else { return Vec::new() };
        // The node knows its workers; what the scheduler last said of them may be a second old.
        let lines_of = |worker: WorkerId| {
            node.logs(worker, lines).into_iter().map(move |line| format!("{}: {line}", worker.number()))
        };
        node.workers_of(name).into_iter().flat_map(lines_of).collect()
    })
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
