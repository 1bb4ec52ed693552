//! One request after the other: for whoever wants to know how long one takes, and not how many can be sent.

use crate::client::{Client, FailureKind, Outcome, Request};
use crate::error::SetupError;
use crate::http::HttpClient;
use crate::setup::setup;
use crate::{Config, Protocol};
use policy::Span;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How often somebody who wants to stop is listened to.
const GLANCE: Duration = Duration::from_millis(20);

/// Requests for one model over one connection, each sent when the one before was answered.
///
/// Of the configuration, what says when to send counts for nothing, and the first model is the one that is asked.
#[derive(Debug)]
pub struct Repeat {
    runtime: Runtime,
    client: HttpClient,
    patience: Duration,
    sent: usize,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// It was answered after this long.
    Answered(Span),
    /// The server said no, and lives.
    Refused {
        /// HTTP's status.
        status: u16,
        /// What it said.
        reason: String,
    },
    /// There was no whole answer: the server is gone, or speaks something else.
    Lost(String),
    /// There was none for as long as a request has patience.
    Unanswered,
    /// Somebody wanted to stop.
    Stopped,
}

impl Repeat {
    /// Finds the server and writes the requests that will be sent.
    pub fn new(config: &Config) -> Result<Repeat, SetupError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SetupError::system)?;
        let (Protocol::Http(url) | Protocol::Grpc(url)) = &config.protocol;
        let client = runtime.block_on(async { setup(config, HttpClient::connect(url, config).await?).await })?;
        Ok(Repeat { runtime, client, patience: Duration::from_nanos(config.patience.nanos()), sent: 0 })
    }

    /// Sends the next and waits for its answer. `stop` is asked many times a second.
    pub fn send(&mut self, stop: impl Fn() -> bool) -> Repeated {
        let request = Request { model: 0, number: self.sent };
        self.sent += 1;
        let (client, patience) = (&self.client, self.patience);
        self.runtime.block_on(async {
            let begun = Instant::now();
            let mut started = None;
            let answer = client.send(request, &mut started);
            let mut answer = std::pin::pin!(answer);
            let outcome = loop {
                match tokio::time::timeout(GLANCE, &mut answer).await {
                    Ok(outcome) => break outcome,
                    Err(_) if stop() => return Repeated::Stopped,
                    Err(_) if begun.elapsed() > patience => return Repeated::Unanswered,
                    Err(_) => {}
                }
            };
            match outcome {
                Outcome::Answered => Repeated::Answered(Span::from_nanos(begun.elapsed().as_nanos() as u64)),
                Outcome::Refused { status, reason } => Repeated::Refused { status, reason },
                Outcome::Failed(failure) if failure.kind == FailureKind::Unanswered => Repeated::Unanswered,
                Outcome::Failed(failure) => Repeated::Lost(failure.reason),
            }
        })
    }
}
