//! The operator's door: deploy, undeploy, load, unload, look, read logs. JSON over HTTP, under `/admin/` on the metrics
//! port, behind a key of its own. Whoever runs the server needs none on its own machine: the metrics server takes
//! connections on a socket for that user alone.

use crate::Gateway;
use crate::keys::Keys;
use crate::metrics::Caller;
use bytes::Bytes;
use config::ModelSpec;
use config::env::HIDDEN;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use rpc::catalog::without_secrets;
use rpc::{Entry, Order, OrderError, State};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A deployment is a page of text at most.
const LARGEST_BODY: usize = 1 << 20;
/// Lines of a log that are given when nobody says how many.
const LINES: usize = 100;

/// How long the body of a request may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);
const NO_KEY: &str = "the admin key is missing or wrong; send it as `Authorization: Bearer KEY`, where KEY is in the file \
    `admin.key` of the server's state folder, or the one that `admin` under [keys] is the hash of";

/// Where the words of workers are.
pub trait LogSource: Send + Sync {
    /// The last lines that workers of a model printed, with the worker's number before each.
    fn last_lines(&self, model: &str, lines: usize) -> Vec<String>;
}

/// What answers under `/admin/`.
pub struct Admin {
    /// The front door.
    pub gateway: Arc<Gateway>,
    /// Where workers' words are.
    pub logs: Arc<dyn LogSource>,
    /// Who may, besides the user that runs the server.
    pub keys: Arc<Keys>,
}

impl Admin {
    /// Answers a request.
    pub async fn answer(self: Arc<Admin>, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        if caller != Caller::Owner && !self.keys.admit(request.headers()) {
            tracing::warn!(method = %request.method(), path = request.uri().path(), "refused: the admin key is missing or wrong");
            let mut answer = reply(StatusCode::UNAUTHORIZED, &json!({ "error": NO_KEY }));
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            return answer;
        }
        match self.act(request).await {
            Ok(value) => reply(StatusCode::OK, &value),
            Err((status, text)) => reply(status, &json!({ "error": text })),
        }
    }

    async fn act(&self, request: Request<Incoming>) -> Result<Value, (StatusCode, String)> {
        let (parts, body) = request.into_parts();
        // A page of another site can send what looks like text or a form without asking; JSON it cannot.
        if !body.is_end_stream() && !is_json(&parts.headers) {
            let text = "the body must be JSON, with `Content-Type: application/json`";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text.to_owned()));
        }
        let path = parts.uri.path().trim_start_matches("/admin/").trim_end_matches('/').to_string();
        let asked = |name: &str| query(parts.uri.query().unwrap_or(""), name);
        let version = || match asked("version").map(|version| version.parse()) {
            None => Ok(None),
            Some(Ok(version)) => Ok(Some(version)),
            Some(Err(_)) => Err((StatusCode::BAD_REQUEST, "`version` is not a number".to_owned())),
        };
        let words: Vec<&str> = path.split('/').collect();
        match (&parts.method, words.as_slice()) {
            (&Method::GET, ["models"]) => Ok(self.models()),
            (&Method::GET, ["workers"]) => Ok(self.workers()),
            (&Method::GET, ["logs", name]) => {
                let lines = asked("lines").and_then(|lines| lines.parse().ok()).unwrap_or(LINES);
                self.known(name)?;
                Ok(json!({ "lines": self.logs.last_lines(name, lines) }))
            }
            (&Method::POST, ["models"]) => {
                let spec: ModelSpec = read_json(body, "the deployment").await?;
                if let Some((name, _)) = spec.env.iter().find(|(_, value)| *value == HIDDEN) {
                    let text = format!("`env` has `{name}` as `{HIDDEN}`, which stands for a value; send the value");
                    return Err((StatusCode::BAD_REQUEST, text));
                }
                let (name, version) = (spec.name.clone(), spec.version.to_string());
                self.order(Order::Deploy(Box::new(spec))).await?;
                Ok(self.gateway.catalog().find(&name, Some(&version)).map_or(json!({}), describe))
            }
            (&Method::DELETE, ["models", name]) => {
                self.order(Order::Undeploy { name: name.to_string(), version: version()? }).await
            }
            (&Method::POST, ["models", name, "load"]) => self.order(Order::Load { name: name.to_string() }).await,
            (&Method::POST, ["models", name, "unload"]) => self.order(Order::Unload { name: name.to_string() }).await,
            (&Method::POST, ["models", name, "workers"]) => {
                let workers = read_json(body, "the number of workers").await?;
                self.order(Order::Scale { name: name.to_string(), version: version()?, workers }).await
            }
            (&Method::GET, ["models", name, "scaling"]) => {
                self.known(name)?;
                Ok(self.scaling(name))
            }
            _ => Err((StatusCode::NOT_FOUND, format!("there is no {} /admin/{path}", parts.method))),
        }
    }

    async fn order(&self, order: Order) -> Result<Value, (StatusCode, String)> {
        let status = |error: &OrderError| match error {
            OrderError::NotFound(_) => StatusCode::NOT_FOUND,
            OrderError::Invalid(_) => StatusCode::BAD_REQUEST,
            OrderError::Storage(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        let outcome = self.gateway.order(order).await;
        outcome.map(|()| json!({})).map_err(|error| (status(&error), error.to_string()))
    }

    fn known(&self, name: &str) -> Result<(), (StatusCode, String)> {
        let found = self.gateway.catalog().find(name, None).map(|_| ());
        found.map_err(|error| (StatusCode::NOT_FOUND, error.to_string()))
    }

    fn models(&self) -> Value {
        let catalog = self.gateway.catalog();
        let models = catalog.entries.iter().map(describe);
        json!({ "models": models.collect::<Vec<_>>(), "scheduler": self.gateway.has_scheduler() })
    }

    /// How the versions of a model are scaled, and where their workers are.
    fn scaling(&self, name: &str) -> Value {
        let (catalog, overview) = (self.gateway.catalog(), self.gateway.overview());
        let versions = catalog.versions(name).iter().map(|entry| {
            let label = format!("{name}:{}", entry.spec.version);
            let workers = overview.workers.iter().filter(|view| view.model == label);
            let workers = workers.map(|view| {
                json!({ "worker": view.worker.number(), "node": view.node, "state": view.state.name(), "batches": view.batches, "why": view.why })
            });
            json!({
                "version": entry.spec.version,
                "workers": entry.spec.workers,
                "workers_ready": entry.workers_ready,
                "workers_wanted": entry.workers_wanted,
                "waiting": overview.queues.iter().find(|(model, _)| *model == entry.model).map_or(0, |(_, waiting)| *waiting),
                "placed": workers.collect::<Vec<_>>(),
                "scaling": overview.scaling.iter().find(|view| view.model == entry.model),
            })
        });
        json!({ "name": name, "versions": versions.collect::<Vec<_>>() })
    }

    fn workers(&self) -> Value {
        let overview = self.gateway.overview();
        let workers = overview.workers.iter().map(|view| {
            json!({
                "worker": view.worker.number(),
                "node": view.node,
                "model": view.model,
                "state": view.state.name(),
                "busy_s": view.busy.seconds(),
                "batches": view.batches,
                "restarts": view.restarts,
                "last_error": view.last_error,
            })
        });
        json!({ "workers": workers.collect::<Vec<_>>() })
    }
}

/// A model version and how it is.
fn describe(entry: &Entry) -> Value {
    let measured = entry.health.measured.iter();
    let measured = measured.map(|(batch, nanos)| json!({ "batch": batch, "ms": *nanos as f64 / 1e6 }));
    let shown = entry.shown();
    let (state, reason) = match &shown {
        State::Ready => ("ready", ""),
        State::Loading => ("loading", ""),
        State::Unavailable(reason) => ("unavailable", reason.as_str()),
    };
    let runs_on = entry.info.as_ref().and_then(|info| info.runs_on.as_ref());
    json!({
        "name": entry.spec.name,
        "version": entry.spec.version,
        "kind": entry.spec.kind.name(),
        "device": runs_on.map(|on| &on.device),
        "provider": runs_on.map(|on| &on.provider),
        "device_reason": runs_on.and_then(|on| on.reason.as_ref()),
        "state": state,
        "reason": reason,
        "slo_ms": entry.spec.slo.millis(),
        "max_batch": entry.info.as_ref().map_or(entry.spec.max_batch, |info| info.max_batch),
        "workers_ready": entry.workers_ready,
        "workers_wanted": if entry.spec.kind.name() == "virtual" { 0 } else { entry.workers_wanted },
        "measured": measured.collect::<Vec<_>>(),
        "source": entry.source.name(),
        "overrides_command": entry.source == rpc::Source::FileOverCommand,
        "spec": *without_secrets(&entry.spec),
    })
}

async fn read_json<T: DeserializeOwned>(body: Incoming, what: &str) -> Result<T, (StatusCode, String)> {
    let bad = |text: String| (StatusCode::BAD_REQUEST, text);
    let slow = |_| (StatusCode::REQUEST_TIMEOUT, format!("the body was not there after {BODY_WITHIN:?}"));
    let body = timeout(BODY_WITHIN, Limited::new(body, LARGEST_BODY).collect()).await.map_err(slow)?;
    let body = body.map_err(|error| bad(format!("read the body: {error}")))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| bad(format!("{what} makes no sense: {error}")))
}

fn is_json(headers: &header::HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json"))
}

fn query(text: &str, name: &str) -> Option<String> {
    let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    text.split('&').filter_map(pair).find(|(key, _)| key == name).map(|(_, value)| value)
}

fn reply(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string() + "\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}
