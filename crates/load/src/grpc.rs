//! The protocol over gRPC. Requests are prepared as bytes and answers are not looked into, as over HTTP; requests
//! share a few connections.

mod codec;

use crate::Config;
use crate::client::{Client, Connections, Failure, FailureKind, Outcome, Request};
use crate::config::{self, Url};
use crate::error::SetupError;
use crate::reason;
use ::config::{DataType, TensorSpec};
use bytes::Bytes;
use codec::Prepared;
use prost::Message;
use rpc::Tensor;
use rpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_request::InferInputTensor;
use rpc::inference::{InferParameter, ModelInferRequest, ModelMetadataRequest, RepositoryIndexRequest};
use std::error::Error;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// For each question asked beforehand.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// When nobody says how many. Each is a task of its own on both sides, so that a large request does not hold up all.
const CONNECTIONS: usize = 4;
/// RESOURCE_EXHAUSTED, UNAVAILABLE and DEADLINE_EXCEEDED, which a server says that knows it will be late.
const REFUSALS: [u16; 3] = [429, 503, 504];
/// Bytes that may be on their way without being acknowledged, so that large answers are not held up.
const WINDOW: u32 = 4 << 20;

/// A server reached over gRPC, and what it is sent.
#[derive(Debug)]
pub(crate) struct GrpcClient {
    server: String,
    /// Used in turn.
    channels: Vec<Channel>,
    headers: MetadataMap,
    /// Whole requests, by model; those of one model are sent in turn.
    requests: Vec<Vec<Bytes>>,
}

impl GrpcClient {
    /// Connects. Nothing is prepared yet.
    pub(crate) async fn connect(url: &Url, config: &Config) -> Result<GrpcClient, SetupError> {
        let server = url.authority();
        let unreachable = |reason: String| SetupError::Unreachable { server: server.clone(), reason };
        let endpoint = Endpoint::from_shared(url.to_string()).map_err(|error| unreachable(error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(QUESTION_TIMEOUT)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let count = match config.connections {
            config::Connections::Most(count) => count,
            config::Connections::Auto => CONNECTIONS,
        };
        let mut channels = Vec::new();
        for _ in 0..count {
            channels.push(endpoint.connect().await.map_err(|error| unreachable(innermost(&error)))?);
        }
        let mut headers = MetadataMap::new();
        for (name, value) in &config.headers {
            let key = MetadataKey::<Ascii>::from_bytes(name.to_ascii_lowercase().as_bytes());
            let value = MetadataValue::<Ascii>::try_from(value);
            let (Ok(key), Ok(value)) = (key, value) else {
                return Err(SetupError::System { reason: format!("header {name} cannot be sent over gRPC") });
            };
            headers.append(key, value);
        }
        Ok(GrpcClient { server, channels, headers, requests: Vec::new() })
    }

    /// The models that the server has, if it says.
    async fn models(&self) -> Vec<String> {
        let question = self.question(RepositoryIndexRequest::default());
        let answer = GrpcInferenceServiceClient::new(self.channels[0].clone()).repository_index(question).await;
        let models = answer.map(|answer| answer.into_inner().models).unwrap_or_default();
        let mut names: Vec<String> = models.into_iter().map(|model| model.name).collect();
        names.sort();
        names.dedup();
        names
    }

    fn question<M>(&self, message: M) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request.set_timeout(QUESTION_TIMEOUT);
        request
    }
}

impl Client for GrpcClient {
    async fn describe(&self, model: &str) -> Result<Vec<TensorSpec>, SetupError> {
        let question = ModelMetadataRequest { name: model.to_owned(), ..Default::default() };
        let answer = GrpcInferenceServiceClient::new(self.channels[0].clone());
        let metadata = match answer.clone().model_metadata(self.question(question)).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {
                return Err(SetupError::UnknownModel { model: model.to_owned(), known: self.models().await });
            }
            Err(status) => {
                let told = reason::without_numbers(status.message());
                return Err(SetupError::refused(&self.server, http_status(status.code()), &told));
            }
        };
        let specs = metadata.inputs.into_iter().map(|input| match DataType::parse(&input.datatype) {
            Some(datatype) => Ok(TensorSpec { name: input.name, datatype, shape: input.shape }),
            None => Err(SetupError::Metadata {
                model: model.to_owned(),
                problem: format!("input `{}` has type {}", input.name, input.datatype),
            }),
        });
        specs.collect()
    }

    fn prepare(&mut self, config: &Config, inputs: &[Vec<Vec<Tensor>>]) {
        let timeout = config.timeout_parameter.then_some(config.objective);
        let timeout = timeout.map(|timeout| {
            let micros = ParameterChoice::Int64Param((timeout.nanos() / 1_000) as i64);
            ("timeout".to_owned(), InferParameter { parameter_choice: Some(micros) })
        });
        let models = config.models.iter().zip(inputs);
        let requests = models.map(|(model, variants)| {
            let whole = |tensors: &Vec<Tensor>| {
                let input = |tensor: &Tensor| InferInputTensor {
                    name: tensor.name.to_string(),
                    datatype: tensor.datatype.name().to_owned(),
                    shape: tensor.shape.iter().map(|dimension| *dimension as i64).collect(),
                    ..Default::default()
                };
                let request = ModelInferRequest {
                    model_name: model.name.clone(),
                    parameters: timeout.clone().into_iter().collect(),
                    inputs: tensors.iter().map(input).collect(),
                    raw_input_contents: tensors.iter().map(|tensor| tensor.data.clone()).collect(),
                    ..Default::default()
                };
                Bytes::from(request.encode_to_vec())
            };
            variants.iter().map(whole).collect()
        });
        self.requests = requests.collect();
    }

    async fn send(&self, request: Request, started: &mut Option<Instant>) -> Outcome {
        *started = Some(Instant::now());
        let variants = &self.requests[request.model];
        let mut message = tonic::Request::new(variants[request.number % variants.len()].clone());
        if !self.headers.is_empty() {
            *message.metadata_mut() = self.headers.clone();
        }
        let channel = self.channels[request.number % self.channels.len()].clone();
        let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
        if let Err(error) = grpc.ready().await {
            return Outcome::Failed(Failure { kind: FailureKind::Connection, reason: innermost(&error) });
        }
        let path = PathAndQuery::from_static("/inference.GRPCInferenceService/ModelInfer");
        match grpc.unary(message, path, Prepared).await {
            Ok(_) => Outcome::Answered,
            Err(status) => outcome(&status),
        }
    }

    fn connections(&self) -> Connections {
        Connections { used_max: self.channels.len(), limit: None }
    }
}

/// What became of a request with this status.
fn outcome(status: &Status) -> Outcome {
    // A status that the server sent has no cause on this side.
    match status.source() {
        Some(cause) => Outcome::Failed(Failure { kind: FailureKind::Connection, reason: innermost(cause) }),
        None => Outcome::of_status(http_status(status.code()), &REFUSALS, reason::without_numbers(status.message())),
    }
}

/// The words of the first cause, which are the system's own.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    match error.downcast_ref::<std::io::Error>() {
        Some(error) => Failure::connection(error).reason,
        None => error.to_string(),
    }
}

/// HTTP's word for a status, so that one report reads like the other.
fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}
