//! The metrics port: numbers for Prometheus, the dashboard, a health check, and whatever the administrator may do.
//!
//! | path | what |
//! |---|---|
//! | `/metrics` | all counters as text, for Prometheus or as OpenMetrics |
//! | `/health` | `ok` while the process answers |
//! | `/ui`, `/ui/data` | the dashboard and its data, see `ui/README.md`; `/` leads there |
//! | `/admin/...` | handed to whoever was given in [`MetricsConfig`] |
//!
//! Everything but `/admin/` only reads, and needs no key. Requests on behalf of pages of other sites, and for names that
//! are not the server's, are refused: see `origin`. `/health` alone answers everybody.

pub(crate) mod answer;
mod connections;
pub(crate) mod scrape;
mod text;
pub(crate) mod weft;
mod triton;
mod process;
pub(crate) mod gpu;
pub(crate) mod accept;

pub use connections::Caller;
pub use gpu::{GpuSource, GpuView};

use self::text::{Exposition, Format};
use crate::Gateway;
use crate::origin::Hosts;
use crate::ui::Dashboard;
use answer::{pack, problem, text};
use bytes::Bytes;
use connections::Doors;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY};
use hyper::{Method, Request, Response, StatusCode};
use scrape::Scrape;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::rustls::ServerConfig;

/// For answers that are no pages: a browser that takes one for a page shows text and does nothing.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'";

/// Answers requests under `/admin/`, which are given to it as they are; checking a key is a part of that.
pub type AdminHandler = Arc<dyn Fn(Request<Incoming>, Caller) -> AdminAnswer + Send + Sync>;
/// What an [`AdminHandler`] will answer.
pub type AdminAnswer = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;

/// What the metrics port is told.
#[derive(Default)]
pub struct MetricsConfig {
    /// What the dashboard calls the cluster; `weft` where it is empty.
    pub cluster: String,
    /// Answers requests under `/admin/`; without one there is nothing there.
    pub admin: Option<AdminHandler>,
    /// Knows the GPUs; without one there are none.
    pub gpus: Option<Arc<dyn GpuSource>>,
    /// What the server is called, besides its addresses.
    pub hosts: Hosts,
    /// TLS; plain where there is none.
    pub tls: Option<Arc<ServerConfig>>,
    /// A socket for the user that runs the server. What comes there needs no key.
    pub local: Option<UnixListener>,
}

/// Serves metrics and the dashboard until `shutdown` is there, and then finishes what it has.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    config: MetricsConfig,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let MetricsConfig { cluster, admin, gpus, hosts, tls, local } = config;
    // The port speaks HTTP/1.1 and nothing else.
    let tls = tls.map(|tls| {
        let mut tls = ServerConfig::clone(&tls);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(tls)
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started = now.saturating_sub(gateway.started.elapsed()).as_millis() as f64 / 1e3;
    let dashboard = Arc::new(Dashboard::new(gateway.clone(), cluster, gpus)?);
    let port = Arc::new(Port { gateway, dashboard: dashboard.clone(), admin, hosts, started });
    let answer = move |request, caller| {
        let port = port.clone();
        async move { port.answer(request, caller).await }
    };
    let doors = Doors { network: listener, tls, local };
    tokio::select! {
        () = connections::run(doors, answer, shutdown) => Ok(()),
        error = dashboard.sample_every_second() => Err(error),
    }
}

struct Port {
    gateway: Arc<Gateway>,
    dashboard: Arc<Dashboard>,
    admin: Option<AdminHandler>,
    hosts: Hosts,
    /// Unix time in seconds.
    started: f64,
}

impl Port {
    async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        let mut answer = self.decide(request, caller).await;
        let headers = answer.headers_mut();
        // Pages of other sites may not read what is here, not even as a picture or a script.
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
        headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NO_PAGE));
        answer
    }

    async fn decide(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        // A click on a link to the dashboard is a request from another site, and its answer is the reader's to see.
        let is_visit = ["/", "/ui", "/ui/"].contains(&path)
            && request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
            && !request.headers().contains_key(ORIGIN);
        if caller == Caller::Network && path != "/health" {
            let checked = if is_visit { self.hosts.check_name(&request) } else { self.hosts.check(&request) };
            if let Err(why) = checked {
                return problem(StatusCode::FORBIDDEN, &why);
            }
        }
        if let (Some(admin), true) = (&self.admin, path.starts_with("/admin/")) {
            return admin(request, caller).await;
        }
        if !["/", "/metrics", "/health", "/ui", "/ui/", "/ui/data"].contains(&path) {
            return problem(StatusCode::NOT_FOUND, "there is /metrics, /health and /ui");
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/metrics" => self.metrics(&request).await,
            "/ui/data" => self.dashboard.data(&request).await,
            "/health" => text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"),
            "/" => {
                let mut answer = text(StatusCode::FOUND, "text/plain; charset=utf-8", "");
                answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui"));
                answer
            }
            _ => self.dashboard.page(request.headers()),
        }
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (format, gzip) = (accept::format(request.headers()), accept::gzip(request.headers()));
        let (gateway, started, gpus) = (self.gateway.clone(), self.started, self.dashboard.gpus());
        // Hundreds of models are a megabyte of text: not for a thread on which requests wait.
        let written = tokio::task::spawn_blocking(move || {
            let text = write(&Scrape::new(&gateway, started, gpus), format);
            pack(text.into_bytes(), gzip)
        });
        match written.await {
            Ok(body) => body.answer(format.content_type(), |body| body),
            Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "metrics could not be written"),
        }
    }
}

/// The text of a scrape.
fn write(scrape: &Scrape, format: Format) -> String {
    let mut out = Exposition::new(format);
    weft::write(scrape, &mut out);
    triton::write(scrape, &mut out);
    out.finish()
}

#[cfg(test)]
mod tests;
