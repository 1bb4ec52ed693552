//! The servers of a gateway: HTTP, gRPC, and metrics with dashboard and admin.

use crate::access::{self, LocalSocket};
use crate::up::settings::{Administration, Settings};
use anyhow::{Context, Result};
use gateway::Gateway;
use gateway::admin::{Admin, LogSource};
use gateway::grpc::{self, GrpcConfig};
use gateway::http::{self, HttpConfig};
use gateway::keys::{self, Keys};
use gateway::metrics::{self, MetricsConfig};
use gateway::traces::Traces;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
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
        scheduler::private_folder(&settings.state)?;
        Ok(Listeners {
            http: listen("http", settings.listen.http).await?,
            grpc: listen("grpc", settings.listen.grpc).await?,
            metrics: listen("metrics", settings.listen.metrics).await?,
        })
    }
}

/// Says so where others may read and change what comes over a port.
pub(crate) fn warn_if_exposed(what: &str, address: SocketAddr, settings: &Settings) {
    if settings.tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "{what} listens for other machines WITHOUT TLS: keys, tokens and tensors can be read and changed on the way; \
             set `certificate` and `key` under [tls]"
        );
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

/// Files that clients' connections leave for the rest.
const FILES_KEPT: usize = 256;
/// How long accepted requests and open connections are waited for.
const DRAIN: Duration = Duration::from_nanos(rpc::timing::DRAIN.nanos());

/// Servers that run.
pub(crate) struct Servers {
    /// Those that take requests, which are answered before the rest ends.
    serving: JoinSet<Result<()>>,
    watching: JoinSet<Result<()>>,
    stop: watch::Sender<Stage>,
    gateway: Arc<Gateway>,
    /// Where commands of the same user come; its file is removed in the end.
    _local: Option<LocalSocket>,
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
        logs: Arc<dyn LogSource>,
        listeners: Listeners,
    ) -> Result<Servers> {
        let (stop, stage) = watch::channel(Stage::Serving);
        let until = |wanted: Stage| {
            let mut stage = stage.clone();
            async move { drop(stage.wait_for(|stage| *stage >= wanted).await) }
        };
        let listen = &settings.listen;
        for (what, address) in [("HTTP", listen.http), ("gRPC", listen.grpc), ("the metrics port", listen.metrics)] {
            warn_if_exposed(what, address, settings);
        }
        let clients = (!settings.keys.clients.is_empty()).then(|| hashed(&settings.keys.clients)).transpose()?;
        let admin = match settings.keys.admin.as_slice() {
            [] => hashed(&[Keys::hash(&access::admin_key(&settings.state)?)])?,
            hashes => hashed(hashes)?,
        };
        let administration = match settings.server.administration {
            Administration::Key => keys::Administration::Key,
            Administration::Open => keys::Administration::Open,
            Administration::Off => keys::Administration::Off,
        };
        let hosts = http::Hosts::new(listen.hosts.iter().cloned());
        gateway.regions.allow(settings.shared_memory.allow.iter().cloned());
        let mut limits = http::Limits::default();
        limits.body_bytes = settings.limits.body.map_or(limits.body_bytes, |bytes| bytes.0 as usize);
        limits.memory_bytes = settings.limits.memory.map_or(limits.memory_bytes, |bytes| bytes.0 as usize);
        // Clients leave files for administrators, workers and whatever else the server opens.
        let files = node::raise_file_limit().saturating_sub(FILES_KEPT).max(FILES_KEPT) / 2;
        limits.connections = settings.limits.connections.unwrap_or(limits.connections).min(files);
        let mut grpc_config = GrpcConfig {
            keys: clients.clone(),
            admin_keys: Some(admin.clone()),
            administration,
            ..GrpcConfig::default()
        };
        grpc_config.message_bytes_max =
            settings.limits.body.map_or(grpc_config.message_bytes_max, |bytes| bytes.0 as usize);
        grpc_config.connections_max = settings.limits.connections.unwrap_or(grpc_config.connections_max).min(files);
        let mut http_config = HttpConfig {
            limits,
            keys: clients,
            admin_keys: Some(admin.clone()),
            administration,
            hosts: hosts.clone(),
            tls: None,
        };
        if let Some(tls) = &settings.tls {
            let read = |path: &std::path::Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
            http_config.tls = Some(http::tls::load(&tls.certificate, &tls.key)?);
            let (certificates, key) = (read(&tls.certificate)?, read(&tls.key)?);
            grpc_config.tls = Some(grpc::Tls { certificates, key, client_authorities: None });
        }
        let port = listeners.metrics.local_addr().context("find out the metrics port")?.port();
        let (local, local_listener) = match access::listen(&settings.state, port) {
            Ok((local, listener)) => (Some(local), Some(UnixListener::from_std(listener)?)),
            Err(error) => {
                tracing::warn!("commands need the admin key, for there is no socket for them: {error:#}");
                (None, None)
            }
        };
        let door = Arc::new(Admin { gateway: gateway.clone(), logs, keys: admin });
        let metrics_config = MetricsConfig {
            cluster: settings.name.clone(),
            admin: Some(Arc::new(move |request, caller| Box::pin(door.clone().answer(request, caller)))),
            gpus: None,
            hosts,
            tls: http_config.tls.clone(),
            local: local_listener,
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
        Ok(Servers { serving, watching, stop, gateway: gateway.clone(), _local: local })
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
        let drained = async {
            while let Some(ended) = self.serving.join_next().await {
                ended.context("end a server")??;
            }
            anyhow::Ok(())
        };
        // A client that does not read its answer does not keep the server.
        match tokio::time::timeout(DRAIN, drained).await {
            Ok(ended) => ended?,
            Err(_) => tracing::warn!(after = ?DRAIN, "connections that were still open are closed"),
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

fn hashed(hashes: &[String]) -> Result<Arc<Keys>> {
    let keys = Keys::from_hashes(hashes.iter().map(String::as_str));
    Ok(Arc::new(keys.map_err(|hash| anyhow::anyhow!("understand the hash of a key, {hash}"))?))
}
