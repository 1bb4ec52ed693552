//! The operator's door: deploy, undeploy, load, unload, look, read logs. JSON over HTTP, under `/admin/` on the metrics
//! port, behind a key of its own.

use crate::Gateway;
use crate::keys::Keys;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use rpc::{ModelSpec, Order, OrderError, State};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// A deployment is a page of text at most.
const LARGEST_BODY: usize = 1 << 20;
/// Lines of a log that are given when nobody says how many.
const LINES: usize = 100;

/// Gives the last lines that workers of a model printed, with the worker's number before each.
pub type Logs = Arc<dyn Fn(&str, usize) -> Vec<String> + Send + Sync>;

/// What answers under `/admin/`.
pub struct Admin {
    /// The front door.
    pub gateway: Arc<Gateway>,
    /// Where workers' words are.
    pub logs: Logs,
    /// Who may; everybody who gets here where there are none.
    pub keys: Option<Arc<Keys>>,
}

impl Admin {
    /// Answers a request.
    pub async fn answer(self: Arc<Admin>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if self.keys.as_ref().is_some_and(|keys| !keys.admit(request.headers())) {
            let text = "the admin key is missing or wrong; send it as `Authorization: Bearer KEY`";
            return reply(StatusCode::UNAUTHORIZED, &json!({ "error": text }));
        }
        match self.act(request).await {
            Ok(value) => reply(StatusCode::OK, &value),
            Err((status, text)) => reply(status, &json!({ "error": text })),
        }
    }

    async fn act(&self, request: Request<Incoming>) -> Result<Value, (StatusCode, String)> {
        let (parts, body) = request.into_parts();
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
                Ok(json!({ "lines": (self.logs)(name, lines) }))
            }
            (&Method::POST, ["models"]) => {
                let spec: ModelSpec = read_json(body, "the deployment").await?;
                self.order(Order::Deploy(Box::new(spec))).await
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
        let models = catalog.entries.iter().map(|entry| {
            let (state, reason) = match &entry.state {
                State::Ready => ("ready", ""),
                State::Loading => ("loading", ""),
                State::Unavailable(reason) => ("unavailable", reason.as_str()),
            };
            json!({
                "name": entry.spec.name,
                "version": entry.spec.version,
                "kind": entry.spec.kind.name(),
                "state": state,
                "reason": reason,
                "slo_ms": entry.spec.slo.millis(),
                "max_batch": entry.info.as_ref().map_or(entry.spec.max_batch, |info| info.max_batch),
                "workers_ready": entry.workers_ready,
                "workers_wanted": if entry.spec.kind.name() == "virtual" { 0 } else { entry.workers_wanted },
                "spec": *entry.spec,
            })
        });
        json!({ "models": models.collect::<Vec<_>>() })
    }

    /// How the versions of a model are scaled, and where their workers are.
    fn scaling(&self, name: &str) -> Value {
        let (catalog, overview) = (self.gateway.catalog(), self.gateway.overview());
        let versions = catalog.versions(name).iter().map(|entry| {
            let label = format!("{name}:{}", entry.spec.version);
            let workers = overview.workers.iter().filter(|view| view.model == label);
            let workers = workers.map(|view| {
                json!({ "worker": view.worker.0, "node": view.node, "state": view.state.name(), "batches": view.batches })
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
                "worker": view.worker.0,
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

async fn read_json<T: DeserializeOwned>(body: Incoming, what: &str) -> Result<T, (StatusCode, String)> {
    let bad = |text: String| (StatusCode::BAD_REQUEST, text);
    let body =
        Limited::new(body, LARGEST_BODY).collect().await.map_err(|error| bad(format!("read the body: {error}")))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| bad(format!("{what} makes no sense: {error}")))
}

fn query(text: &str, name: &str) -> Option<String> {
    let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    text.split('&').filter_map(pair).find(|(key, _)| key == name).map(|(_, value)| value)
}

fn reply(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string() + "\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
