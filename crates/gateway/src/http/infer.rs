//! One inference over HTTP, from the body of the request to that of its answer.

use super::answer::{Answer, Body, Held, Problem, json};
use super::compression::{self, Encoding, UnpackError};
use super::decode::{Data, InferRequest, decode};
use super::encode::{Encoded, Ready, encode_ready};
use super::limits::Lease;
use super::server::Server;
use super::{body, classification};
use crate::traces::Parent;
use crate::{Inference, Response};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use policy::Span;
use rpc::Tensor;
use std::time::Instant;

/// How much of a body is JSON, when binary tensors follow it.
static JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// Deadlines in milliseconds, as gateways for language models send them, and by our own name.
static DEADLINES: [HeaderName; 2] = [HeaderName::from_static("x-slo-ms"), HeaderName::from_static("x-weft-timeout-ms")];
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Work on more bytes than this would hold up the other requests of its thread, and goes to a thread of its own.
const LONG: usize = 256 * 1024;

/// Answers a request.
pub(super) async fn infer(
    server: &Server,
    parts: &Parts,
    incoming: Incoming,
    (model, version): (&str, Option<&str>),
    held: &mut Held,
    arrived: Instant,
) -> Result<Answer, Problem> {
    let packed = Encoding::of_request(&parts.headers).map_err(|other| {
        let text = format!("Content-Encoding `{other}` is not known; gzip and deflate are");
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
    })?;
    let json_length = json_length(&parts.headers)?;
    let deadline = deadline(&parts.headers)?;
    // Whose model is not there learns that before what else is wrong.
    let wrong = |problem: Problem| match server.gateway.catalog().find(model, version) {
        Ok(_) => problem,
        Err(error) => error.into(),
    };
    let limits = &server.config.limits;
    let (body, mut lease) = body::read(incoming, parts.version, arrived, limits, &server.budget).await?;
    let limit = limits.body_bytes;
    let request = if packed.is_some() || body.len() > LONG {
        let work = move || {
            let body = match packed {
                Some(encoding) => unpack(encoding, &body, limit, &mut lease)?,
                None => body,
            };
            Ok::<_, Problem>((decode(&body, json_length).map_err(Problem::invalid)?, lease))
        };
        let (request, kept) = aside(work).await.map_err(wrong)?;
        held.lease = Some(kept);
        request
    } else {
        held.lease = Some(lease);
        decode(&body, json_length).map_err(|problem| wrong(Problem::invalid(problem)))?
    };
    let (request, mut inference) = to_inference(server, request, (model, version), deadline, arrived).map_err(wrong)?;
    inference.parent = parent(server, &parts.headers);
    let response = server.gateway.infer(inference).await?;
    let accepted = |length: usize| Encoding::of_answer(&parts.headers, length);
    answer(server, request, response, accepted).await
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Problem> {
    let Some(value) = headers.get(&JSON_LENGTH) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or_else(|| Problem::invalid("Inference-Header-Content-Length is not a whole number from 0"))
}

/// The span that a request belongs to, where anybody is told.
fn parent(server: &Server, headers: &HeaderMap) -> Option<Parent> {
    server.gateway.traces.get()?;
    Parent::read(headers.get("traceparent")?.to_str().ok()?)
}

/// The shortest deadline that the headers ask for.
fn deadline(headers: &HeaderMap) -> Result<Option<Span>, Problem> {
    let mut shortest = None;
    for name in &DEADLINES {
        let Some(value) = headers.get(name) else { continue };
        let millis = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
        match millis.filter(|millis| millis.is_finite() && *millis > 0.0) {
            Some(millis) => {
                let span = Span::from_millis_f64(millis);
                shortest = Some(shortest.map_or(span, |other: Span| other.min(span)));
            }
            None => return Err(Problem::invalid(format!("{name} is not a number of milliseconds above 0"))),
        }
    }
    Ok(shortest)
}

fn unpack(encoding: Encoding, body: &[u8], limit: usize, lease: &mut Lease) -> Result<Bytes, Problem> {
    compression::unpack(encoding, body, limit, |more| lease.grow(more)).map_err(|error| match error {
        UnpackError::Broken(what) => Problem::invalid(format!("the body is not {}: {what}", encoding.name())),
        UnpackError::TooLarge => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than the {limit} bytes allowed once it is unpacked"),
        ),
        UnpackError::NoMemory => Problem::unavailable("the requests in flight take all the memory they may"),
    })
}

/// Runs something long on a thread of its own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    let ended = |_| Err(Problem::unavailable("the server is shutting down"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(ended)
}

/// A request in the core's terms, and what is left of it for the answer.
fn to_inference(
    server: &Server,
    mut request: InferRequest,
    (model, version): (&str, Option<&str>),
    deadline: Option<Span>,
    arrived: Instant,
) -> Result<(InferRequest, Inference), Problem> {
    let mut inputs = Vec::with_capacity(request.inputs.len());
    for input in std::mem::take(&mut request.inputs) {
        let data = match input.data {
            Data::Inline(data) => data,
            Data::Shared(place) => {
                server.gateway.regions.status(Some(&place.region)).map_err(Problem::not_found)?;
                let read = server.gateway.regions.read(&place.region, place.offset, place.bytes);
                read.map_err(|problem| Problem::invalid(format!("input `{}`: {problem}", input.name)))?
            }
        };
        inputs.push(Tensor { name: input.name, datatype: input.datatype, shape: input.shape, data });
    }
    let inference = Inference {
        model: model.to_string(),
        version: version.map(str::to_string),
        inputs,
        outputs: request.outputs.iter().map(|output| output.name.clone()).collect(),
        timeout: match (request.timeout, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        priority: request.priority,
        arrived,
        parent: None,
    };
    Ok((request, inference))
}

async fn answer(
    server: &Server,
    request: InferRequest,
    mut response: Response,
    accepted: impl Fn(usize) -> Option<Encoding>,
) -> Result<Answer, Problem> {
    classify(server, &request, &mut response)?;
    let length: usize = response.outputs.iter().map(|tensor| tensor.data.len()).sum();
    let regions = &server.gateway.regions;
    for output in &request.outputs {
        let tensor = response.outputs.iter().find(|tensor| *tensor.name == *output.name);
        if let (Some(place), Some(tensor)) = (&output.shared, tensor) {
            let written = regions.write(&place.region, place.offset, place.bytes, &tensor.data);
            written.map_err(|problem| Problem::invalid(format!("output `{}`: {problem}", output.name)))?;
        }
    }
    let work = move || {
        let ready: Vec<Ready<'_>> = response.outputs.iter().map(|tensor| ready(&request, tensor)).collect();
        let model = &response.model;
        encode_ready(&request, &model.name, model.version, &ready).map_err(Problem::invalid)
    };
    let encoded = if length > LONG { aside(work).await? } else { work()? };
    let Encoded { parts, json_length } = encoded;
    let length = parts.iter().map(Bytes::len).sum();
    let mut answer = json(Bytes::new());
    *answer.body_mut() = Body::parts(parts);
    if let Some(json_length) = json_length {
        answer.headers_mut().insert(CONTENT_TYPE, OCTETS);
        answer.headers_mut().insert(&JSON_LENGTH, HeaderValue::from(json_length));
    }
    if let Some(encoding) = accepted(length) {
        pack(&mut answer, encoding, length).await?;
    }
    Ok(answer)
}

fn ready<'a>(request: &'a InferRequest, tensor: &'a Tensor) -> Ready<'a> {
    let output = request.outputs.iter().find(|output| output.name == *tensor.name);
    match output.and_then(|output| output.shared.as_ref()) {
        Some(_) => Ready::Shared(tensor),
        None => Ready::Here(tensor),
    }
}

/// Replaces the outputs of which only the largest values were asked for.
fn classify(server: &Server, request: &InferRequest, response: &mut Response) -> Result<(), Problem> {
    for output in request.outputs.iter().filter(|output| output.classes > 0) {
        let Some(tensor) = response.outputs.iter_mut().find(|tensor| *tensor.name == *output.name) else { continue };
        let model = &response.model;
        let catalog = server.gateway.catalog();
        let entry = catalog.find(&model.name, Some(&model.version.to_string()));
        let max_batch = entry.ok().and_then(|entry| entry.info.as_ref()).map_or(model.max_batch, |info| info.max_batch);
        *tensor = classification::classify(tensor, output.classes, max_batch > 0).map_err(Problem::invalid)?;
    }
    Ok(())
}

/// Packs the body of an answer.
async fn pack(answer: &mut Answer, encoding: Encoding, length: usize) -> Result<(), Problem> {
    let parts = answer.body_mut().take();
    let work = move || Ok(compression::pack(encoding, &parts));
    let packed = if length > LONG { aside(work).await? } else { work()? };
    *answer.body_mut() = Body::one(packed);
    answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    Ok(())
}
