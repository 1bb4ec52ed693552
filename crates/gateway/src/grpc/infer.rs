//! One inference over gRPC, from its request to its answer.

use super::decode::Wanted;
use super::door::Arrived;
use super::{deadline, decode, encode, status};
use crate::traces::Parent;
use crate::{Gateway, Inference};
use policy::Span;
use rpc::inference::{ModelInferRequest, ModelInferResponse};
use rpc::{Catalog, Entry};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tonic::{Request, Status};

/// The gateway as a service.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) gateway: Arc<Gateway>,
    /// The most requests of one stream that are worked on at a time.
    pub(super) stream_requests_max: usize,
    /// Whether the server is about to stop.
    pub(super) draining: watch::Receiver<bool>,
}

/// What the headers of a call say.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// When the request at hand came.
    pub(super) arrived: Instant,
    /// When the call began.
    pub(super) began: Instant,
    /// How long after that its client gives up.
    pub(super) gives_up: Option<Span>,
    /// Whether an error is to end the stream.
    pub(super) errors_end_stream: bool,
    /// The client's span that its requests belong to.
    pub(super) parent: Option<Parent>,
}

impl Call {
    pub(super) fn of<T>(request: &Request<T>) -> Call {
        let began = request.extensions().get::<Arrived>().map_or_else(Instant::now, |arrived| arrived.0);
        let asked = request.metadata().get("triton_grpc_error");
        Call {
            arrived: began,
            began,
            gives_up: deadline::of(request.metadata()),
            errors_end_stream: asked.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")),
            parent: request.metadata().get("traceparent").and_then(|value| Parent::read(value.to_str().ok()?)),
        }
    }

    /// How long the request at hand may take before its client gives up.
    fn left(&self) -> Option<Span> {
        let passed = self.arrived.saturating_duration_since(self.began).as_nanos();
        Some(self.gives_up? - Span::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX)))
    }
}

impl Service {
    /// Runs one request to its end.
    pub(super) async fn infer(&self, call: Call, mut request: ModelInferRequest) -> Result<ModelInferResponse, Status> {
        let catalog = self.gateway.catalog();
        let entry = catalog.find(&request.model_name, version(&request.model_version));
        let entry = entry.map_err(|error| status::not_found(&error))?;
        let invalid = |problem: String| status::invalid(format!("model `{}`: {problem}", entry.spec.name));
        let asked = decode::asked(&request).map_err(invalid)?;
        decode::places(&asked.outputs, &self.gateway.regions).map_err(invalid)?;
        let inputs = decode::inputs(&mut request, &self.gateway.regions).map_err(invalid)?;
        let within = asked.timeout.unwrap_or(entry.spec.slo);
        let own_limit = call.left().filter(|left| *left < within);
        let inference = Inference {
            model: request.model_name,
            version: version(&request.model_version).map(str::to_string),
            inputs,
            outputs: asked.outputs.iter().map(|output| output.name.clone()).collect(),
            timeout: own_limit.or(asked.timeout),
            priority: asked.priority,
            arrived: call.arrived,
            parent: call.parent,
        };
        let answer = self.gateway.infer(inference);
        let response = match call.left() {
            Some(left) => {
                let end = call.arrived.checked_add(Duration::from_nanos(left.nanos())).unwrap_or(far_off());
                let late = |_| Status::deadline_exceeded(format!("the client's own limit of {left} has passed"));
                tokio::time::timeout_at(end.into(), answer).await.map_err(late)?
            }
            None => answer.await,
        };
        let response = response.map_err(|error| status::of(&error, own_limit.is_some()))?;
        self.answer(&catalog, response, request.id, &asked.outputs)
    }

    fn answer(
        &self,
        catalog: &Catalog,
        response: crate::Response,
        id: String,
        wanted: &[Wanted],
    ) -> Result<ModelInferResponse, Status> {
        let model = response.model.clone();
        let entry = catalog.find(&model.name, Some(&model.version.to_string())).ok();
        let max_batch = entry.and_then(|entry| entry.info.as_ref()).map_or(model.max_batch, |info| info.max_batch);
        encode::answer(response, id, wanted, max_batch > 0, &self.gateway.regions)
            .map_err(|problem| status::invalid(format!("model `{}`: {problem}", model.name)))
    }

    /// Does something with a version of a model.
    pub(super) fn with<T>(
        &self,
        name: &str,
        asked: &str,
        act: impl FnOnce(&Catalog, &Entry) -> T,
    ) -> Result<T, Status> {
        let catalog = self.gateway.catalog();
        let entry = catalog.find(name, version(asked)).map_err(|error| status::not_found(&error))?;
        Ok(act(&catalog, entry))
    }
}

/// Later than any answer.
fn far_off() -> Instant {
    Instant::now() + Duration::from_secs(365 * 86_400)
}

/// An empty version is none.
pub(super) fn version(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
