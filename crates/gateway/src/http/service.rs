//! One request: who may make it, what it is about, and its answer.

use super::activity::Activity;
use super::answer::{Answer, Held, Problem, empty, json, value};
use super::route::{About, Route};
use super::server::Server;
use super::{body, infer, memory, models, setting};
use crate::keys::{ADMIN_KEY_NEEDED, ADMINISTRATION_OFF, Administration};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Version};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// This interface, for machines.
const OPENAPI: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/openapi.json"));

/// Answers a request.
pub(super) async fn answer(
    server: Arc<Server>,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let arrived = Instant::now();
    activity.start();
    let mut held = Held { activity, lease: None };
    let (parts, incoming) = request.into_parts();
    // Who answers a long body early must not close before the client has read the answer.
    let has_body = !incoming.is_end_stream();
    let mut answer = match handle(&server, &parts, incoming, &mut held, arrived).await {
        Ok(answer) => answer,
        Err(problem) => {
            if has_body {
                held.activity.set_linger();
            }
            problem.answer()
        }
    };
    if server.is_draining.load(Relaxed) && parts.version != Version::HTTP_2 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer.body_mut().hold(held);
    Ok(answer)
}

async fn handle(
    server: &Server,
    parts: &Parts,
    incoming: Incoming,
    held: &mut Held,
    arrived: Instant,
) -> Result<Answer, Problem> {
    let path = parts.uri.path();
    let Some(route) = Route::parse(path) else {
        return Err(Problem::not_found(format!("there is no path {path}")));
    };
    authorize(server, parts, &route)?;
    if !route.takes(&parts.method) {
        return Err(Problem::method(route.methods()));
    }
    if let Route::Model(model, version, About::Infer) = &route {
        return infer::infer(server, parts, incoming, (model, version.as_deref()), held, arrived).await;
    }
    let gateway = &server.gateway;
    let is_post = parts.method == Method::POST;
    let (body, lease) = body::read(incoming, parts.version, arrived, &server.config.limits, &server.budget).await?;
    held.lease = Some(lease);
    match &route {
        Route::Server => {
            let version = env!("CARGO_PKG_VERSION");
            Ok(value(&json!({"name": "weft", "version": version, "extensions": crate::config::EXTENSIONS})))
        }
        Route::Live => Ok(empty()),
        Route::Ready if server.is_ready() => Ok(empty()),
        Route::Ready => {
            let why = gateway.unready().unwrap_or_else(|| "it is stopping".into());
            Err(Problem::unavailable(format!("the server is not ready: {why}")))
        }
        Route::OpenApi => Ok(json(OPENAPI)),
        Route::Model(model, version, about) => {
            let version = version.as_deref();
            match about {
                About::Metadata => models::metadata(gateway, model, version),
                About::Ready => models::ready(gateway, model, version),
                About::Config => models::configuration(gateway, model, version),
                About::Statistics | About::Infer => models::statistics(gateway, Some(model), version),
            }
        }
        Route::AllStatistics => models::statistics(gateway, None, None),
        Route::Index => models::index(gateway, &body),
        Route::Load(model) => models::load(gateway, model, &body).await,
        Route::Unload(model) => models::unload(gateway, model, &body).await,
        Route::Memory(kind, region, deed) => memory::serve(gateway, *kind, region.as_deref(), *deed, &body),
        Route::Trace(model) => setting::trace(gateway, model.as_deref(), is_post.then_some(&body)),
        Route::Logging => setting::logging(gateway, is_post.then_some(&body)),
    }
}

fn authorize(server: &Server, parts: &Parts, route: &Route<'_>) -> Result<(), Problem> {
    let config = &server.config;
    let is_administration = route.takes(&parts.method) && route.is_administration(&parts.method);
    if is_administration {
        config.hosts.check_parts(&parts.uri, &parts.headers).map_err(Problem::forbidden)?;
    }
    match config.administration {
        Administration::Off if is_administration => {
            tracing::warn!(path = parts.uri.path(), "refused: administration is off on this port");
            return Err(Problem::forbidden(ADMINISTRATION_OFF));
        }
        Administration::Key if is_administration => {
            if config.admin_keys.as_ref().is_some_and(|keys| keys.admit(&parts.headers)) {
                return Ok(());
            }
            tracing::warn!(path = parts.uri.path(), "refused: the admin key is missing or wrong");
            return Err(Problem::unauthorized(ADMIN_KEY_NEEDED));
        }
        _ => {}
    }
    // Whoever may change models may ask them.
    let is_admin = || config.admin_keys.as_ref().is_some_and(|keys| keys.admit(&parts.headers));
    match &config.keys {
        Some(keys) if !route.is_open() && !keys.admit(&parts.headers) && !is_admin() => {
            Err(Problem::unauthorized("an API key is needed, as `Authorization: Bearer KEY` or `x-api-key: KEY`"))
        }
        _ => Ok(()),
    }
}
