//! The seam between what decides when to send and what knows how: one protocol, one [`Client`].

use crate::Config;
use crate::error::SetupError;
use config::TensorSpec;
use rpc::Tensor;
use std::time::Instant;

/// A way to a server.
pub(crate) trait Client: Send + Sync + 'static {
    /// Asks for a model's inputs.
    fn describe(&self, model: &str) -> impl Future<Output = Result<Vec<TensorSpec>, SetupError>> + Send;

    /// Writes the requests that will be sent: for each model of the configuration a list of inputs.
    fn prepare(&mut self, config: &Config, inputs: &[Vec<Vec<Tensor>>]);

    /// Sends a request and waits for the end of its answer.
    ///
    /// `started` is set when nothing that this side does holds the request back any more: before it connects, if it
    /// has to, because how fast a connection is accepted is the server's doing.
    ///
    /// A request is never sent a second time, whatever becomes of it.
    fn send(&self, request: Request, started: &mut Option<Instant>) -> impl Future<Output = Outcome> + Send;

    /// How connections were used so far.
    fn connections(&self) -> Connections;
}

/// Which of the prepared requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// By its place in the configuration.
    pub(crate) model: usize,
    /// Counts the model's requests; those that were prepared are sent in turn.
    pub(crate) number: usize,
}

/// How connections were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub(crate) used_max: usize,
    /// `None` where requests share connections and never wait for one.
    pub(crate) limit: Option<usize>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered, as it should be.
    Answered,
    /// The server chose not to answer: too many, too late, not now.
    Refused {
        /// HTTP's status, or what stands for it.
        status: u16,
        /// What the server said, without what differs from request to request.
        reason: String,
    },
    /// There was no whole answer, or one that says that something is wrong.
    Failed(Failure),
}

/// Why there was no answer that is worth something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
}

/// Who is to blame, by layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureKind {
    /// The connection could not be made or broke.
    Connection,
    /// What came back is not the protocol.
    Protocol,
    /// Nothing came back for too long, or until the run was cut off.
    Unanswered,
    /// The server answered with an error: HTTP's status, or what stands for it.
    Status(u16),
}

impl FailureKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            FailureKind::Connection => "connection",
            FailureKind::Protocol => "protocol",
            FailureKind::Unanswered => "unanswered",
            FailureKind::Status(_) => "status",
        }
    }

    /// The status that came, where one did.
    pub(crate) const fn status(self) -> Option<u16> {
        match self {
            FailureKind::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl Outcome {
    /// What an answer with a status other than success is: a refusal where the server says that it will not do it now,
    /// and an error otherwise. Statuses are HTTP's.
    pub(crate) fn of_status(status: u16, refusals: &[u16], reason: String) -> Outcome {
        match refusals.contains(&status) {
            true => Outcome::Refused { status, reason },
            false => Outcome::Failed(Failure { kind: FailureKind::Status(status), reason }),
        }
    }
}

impl Failure {
    pub(crate) fn connection(error: &std::io::Error) -> Failure {
        // A kind without a name of its own says nothing; the system's own words do.
        let reason = match error.kind().to_string() {
            kind if kind.contains("other") || kind.contains("uncategorized") => error.to_string(),
            kind => kind,
        };
        Failure { kind: FailureKind::Connection, reason }
    }

    pub(crate) fn protocol(reason: &'static str) -> Failure {
        Failure { kind: FailureKind::Protocol, reason: reason.to_owned() }
    }
}
