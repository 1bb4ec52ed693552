//! The protocol over HTTP/1.1.
//!
//! Written for little work per request, because the server it measures is often on the same machine: requests are
//! prepared as bytes, sent with one call and their answers read with one; no answer is kept or looked into.

mod answer;
mod pool;

use crate::client::{Client, Connections, Outcome, Request};
use crate::config::{self, Encoding, Url};
use crate::error::SetupError;
use crate::reason;
use crate::{Config, json};
use ::config::TensorSpec;
use answer::Answer;
use pool::Pool;
use rpc::Tensor;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Answers to questions asked beforehand are larger than this only by mistake.
const METADATA_MAX: usize = 4 << 20;
/// For each question asked beforehand.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections, when nobody says how many: one address has about as many ports for one server, twice over.
const CONNECTIONS_MAX: usize = 14_000;
/// Too many requests, and not now.
const REFUSALS: [u16; 2] = [429, 503];
/// Files that are open for other reasons.
const FILES_RESERVED: u64 = 64;

/// A server reached over HTTP, and what it is sent.
#[derive(Debug)]
pub(crate) struct HttpClient {
    url: Url,
    pool: Pool,
    /// Every header but those of the body, for each request.
    headers: String,
    /// Whole requests, by model; those of one model are sent in turn.
    requests: Vec<Vec<Vec<u8>>>,
}

impl HttpClient {
    /// Finds the server. Nothing is prepared yet.
    pub(crate) async fn connect(url: &Url, config: &Config) -> Result<HttpClient, SetupError> {
        let unreachable = |reason: String| SetupError::Unreachable { server: url.to_string(), reason };
        let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
        let addresses: Vec<SocketAddr> = found.map_err(|error| unreachable(error.to_string()))?.collect();
        let mut problem = "the name stands for no address".to_owned();
        for address in addresses {
            let connected = tokio::time::timeout(QUESTION_TIMEOUT, tokio::net::TcpStream::connect(address)).await;
            match connected {
                Ok(Ok(_)) => {
                    let limit = match config.connections {
                        config::Connections::Most(limit) => limit,
                        config::Connections::Auto => connections_allowed(),
                    };
                    let mut headers = format!("Host: {}\r\n", url.authority());
                    for (name, value) in &config.headers {
                        headers.push_str(&format!("{name}: {value}\r\n"));
                    }
                    let pool = Pool::new(address, limit);
                    return Ok(HttpClient { url: url.clone(), pool, headers, requests: Vec::new() });
                }
                Ok(Err(error)) => problem = error.kind().to_string(),
                Err(_) => problem = format!("no connection within {} s", QUESTION_TIMEOUT.as_secs()),
            }
        }
        Err(unreachable(problem))
    }

    /// The models that the server has, if it says.
    async fn models(&self) -> Vec<String> {
        match self.ask("POST", "/v2/repository/index").await {
            Ok(answer) if answer.status == 200 => json::names(&answer.body),
            _ => Vec::new(),
        }
    }

    async fn ask(&self, method: &str, path: &str) -> Result<Answer, SetupError> {
        let request = self.request(method, path, "application/json", b"");
        let mut started = None;
        let answer = self.pool.exchange(&request, METADATA_MAX, &mut started);
        let unreachable = |reason: String| SetupError::Unreachable { server: self.url.to_string(), reason };
        match tokio::time::timeout(QUESTION_TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => Err(unreachable(failure.reason)),
            Err(_) => Err(unreachable(format!("no answer within {} s", QUESTION_TIMEOUT.as_secs()))),
        }
    }

    fn request(&self, method: &str, path: &str, content: &str, body: &[u8]) -> Vec<u8> {
        let (prefix, headers) = (&self.url.prefix, &self.headers);
        let mut request = format!("{method} {prefix}{path} HTTP/1.1\r\n{headers}").into_bytes();
        if method == "POST" {
            let length = body.len();
            request.extend(format!("Content-Type: {content}\r\nContent-Length: {length}\r\n").bytes());
        }
        request.extend(b"\r\n");
        request.extend(body);
        request
    }
}

impl Client for HttpClient {
    async fn describe(&self, model: &str) -> Result<Vec<TensorSpec>, SetupError> {
        let answer = self.ask("GET", &format!("/v2/models/{}", escape(model))).await?;
        match answer.status {
            200 => json::inputs(&answer.body).map_err(|problem| SetupError::Metadata { model: model.into(), problem }),
            404 | 400 => Err(SetupError::UnknownModel { model: model.to_owned(), known: self.models().await }),
            status => Err(SetupError::refused(&self.url, status, &reason::class(&answer.body))),
        }
    }

    fn prepare(&mut self, config: &Config, inputs: &[Vec<Vec<Tensor>>]) {
        let timeout = config.timeout_parameter.then_some(config.objective);
        let models = config.models.iter().zip(inputs);
        let requests = models.map(|(model, variants)| {
            let path = format!("/v2/models/{}/infer", escape(&model.name));
            let whole = |tensors: &Vec<Tensor>| match config.encoding {
                Encoding::Binary => {
                    let (head, body) = json::binary_request(tensors, timeout);
                    let content = format!("application/octet-stream\r\nInference-Header-Content-Length: {head}");
                    self.request("POST", &path, &content, &body)
                }
                Encoding::Json => self.request("POST", &path, "application/json", &json::request(tensors, timeout)),
            };
            variants.iter().map(whole).collect()
        });
        self.requests = requests.collect();
    }

    async fn send(&self, request: Request, started: &mut Option<Instant>) -> Outcome {
        let variants = &self.requests[request.model];
        let bytes = &variants[request.number % variants.len()];
        match self.pool.exchange(bytes, 0, started).await {
            Ok(Answer { status: 200, .. }) => Outcome::Answered,
            Ok(Answer { status, body, .. }) => Outcome::of_status(status, &REFUSALS, reason::class(&body)),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn connections(&self) -> Connections {
        self.pool.connections()
    }
}

/// As many connections as the system lets this process have, once it has asked for all it may.
fn connections_allowed() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What may not be had is no reason to stop.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(FILES_RESERVED);
    (files as usize).clamp(1, CONNECTIONS_MAX)
}

/// A name as a part of a path.
fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escaped = |byte: u8| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escaped).collect()
}
