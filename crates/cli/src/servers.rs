//! The servers of a gateway: HTTP, gRPC, and metrics with dashboard and admin.

use crate::up::settings::Settings;
use anyhow::{Context, Result};
use gateway::Gateway;
use gateway::admin::{Admin, Logs};
use gateway::grpc::{self, GrpcConfig};
use gateway::http::{self, HttpConfig};
use gateway::keys::Keys;
use gateway::metrics::{self, MetricsConfig};
use gateway::traces::Traces;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Sockets that were bound before anything was started.
pub(crate) struct Listeners {
    http: TcpListener,
    grpc: TcpListener,
    metrics: TcpListener,
}

impl Listeners {
    pub(crate) async fn bind(settings: &Settings) -> Result<Listeners> {
        Ok(Listeners {
            http: listen("http", settings.listen.http).await?,
            grpc: listen("grpc", settings.listen.grpc).await?,
            metrics: listen("metrics", settings.listen.metrics).await?,
        })
    }
}

/// Binds an address, or says what to do about it.
pub(crate) async fn listen(what: &str, address: SocketAddr) -> Result<TcpListener> {
    let problem = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("listen for {what} on {address}: something else does already; choose another with --{what}")
        }
        _ => format!("listen for {what} on {address}: {error}"),
    };
    Ok(TcpListener::bind(address).await.map_err(|error| crate::output::Misuse(problem(error)))?)
}

/// Servers that run.
pub(crate) struct Servers {
    /// Those that take requests, which are answered before the rest ends.
    serving: JoinSet<Result<()>>,
    watching: JoinSet<Result<()>>,
    stop: watch::Sender<Stage>,
    gateway: Arc<Gateway>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    Draining,
    Over,
}

impl Servers {
    /// Starts all three.
    pub(crate) fn start(
        settings: &Settings,
        gateway: &Arc<Gateway>,
        logs: Logs,
        listeners: Listeners,
    ) -> Result<Servers> {
        let (stop, stage) = watch::channel(Stage::Serving);
        let until = |wanted: Stage| {
            let mut stage = stage.clone();
            async move { drop(stage.wait_for(|stage| *stage >= wanted).await) }
        };
        let (clients, admin) = (keys(&settings.keys.clients)?, keys(&settings.keys.admin)?);
        let mut limits = http::Limits::default();
        limits.body_bytes = settings.limits.body.map_or(limits.body_bytes, |bytes| bytes.0 as usize);
        limits.memory_bytes = settings.limits.memory.map_or(limits.memory_bytes, |bytes| bytes.0 as usize);
        limits.connections = settings.limits.connections.unwrap_or(limits.connections);
        let mut grpc_config = GrpcConfig { keys: clients.clone(), ..GrpcConfig::default() };
        grpc_config.message_bytes_max =
            settings.limits.body.map_or(grpc_config.message_bytes_max, |bytes| bytes.0 as usize);
        grpc_config.connections_max = settings.limits.connections.unwrap_or(grpc_config.connections_max);
        let mut http_config = HttpConfig { limits, keys: clients, admin_keys: admin.clone(), tls: None };
        if let Some(tls) = &settings.tls {
            let read = |path: &std::path::Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
            http_config.tls = Some(http::tls::load(&tls.certificate, &tls.key)?);
            let (certificates, key) = (read(&tls.certificate)?, read(&tls.key)?);
            grpc_config.tls = Some(grpc::Tls { certificates, key, client_authorities: None });
        }
        let door = Arc::new(Admin { gateway: gateway.clone(), logs, keys: admin });
        let metrics_config = MetricsConfig {
            cluster: settings.name.clone(),
            admin: Some(Arc::new(move |request| Box::pin(door.clone().answer(request)))),
            gpus: None,
        };
        if let Some(traces) = &settings.traces {
            // Nobody else sets it.
            let _ = gateway.traces.set(Traces::start(&traces.endpoint, traces.part, &settings.name)?);
        }
        let mut serving = JoinSet::new();
        serving.spawn(http::serve(gateway.clone(), listeners.http, http_config, until(Stage::Draining)));
        serving.spawn(grpc::serve(gateway.clone(), listeners.grpc, grpc_config, until(Stage::Draining)));
        let mut watching = JoinSet::new();
        watching.spawn(metrics::serve(gateway.clone(), listeners.metrics, metrics_config, until(Stage::Over)));
        Ok(Servers { serving, watching, stop, gateway: gateway.clone() })
    }

    /// A server that ended by itself; it does not happen while all is well.
    pub(crate) async fn broke(&mut self) -> Result<()> {
        let ended = tokio::select! {
            Some(ended) = self.serving.join_next() => ended,
            Some(ended) = self.watching.join_next() => ended,
            else => return Ok(()),
        };
        ended.context("run a server")?
    }

    /// Takes no more requests, answers those that were accepted, and ends.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.stop.send_replace(Stage::Draining);
        while let Some(ended) = self.serving.join_next().await {
            ended.context("end a server")??;
        }
        self.stop.send_replace(Stage::Over);
        while let Some(ended) = self.watching.join_next().await {
            ended.context("end a server")??;
        }
        let gateway = self.gateway;
        tokio::task::spawn_blocking(move || gateway.traces.get().map(Traces::finish)).await.context("end traces")?;
        Ok(())
    }
}

fn keys(hashes: &[String]) -> Result<Option<Arc<Keys>>> {
    if hashes.is_empty() {
        return Ok(None);
    }
    let keys = Keys::from_hashes(hashes.iter().map(String::as_str));
    Ok(Some(Arc::new(keys.map_err(|hash| anyhow::anyhow!("understand the hash of a key, {hash}"))?)))
}
