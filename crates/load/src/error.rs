//! Why a run cannot begin.

use std::path::PathBuf;

/// Why a run cannot begin. Each is something that whoever asked for it can put right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// There is no server, or it does not answer.
    #[error("reach {server}: {reason}; start a server with `weft up`, or say where it is with --url or --grpc")]
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The server does not have the model.
    #[error("find model `{model}`: the server {}", has(known))]
    UnknownModel {
        /// What was asked for.
        model: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The server did not say what it was asked.
    #[error("ask {server} about its models: it answered {status} {reason}{}", hint(*status))]
    Refused {
        /// Where it is.
        server: String,
        /// HTTP's status.
        status: u16,
        /// What it said.
        reason: String,
    },
    /// What the server said about the model makes no sense.
    #[error("read what the server says about model `{model}`: {problem}")]
    Metadata {
        /// Which model.
        model: String,
        /// What is wrong.
        problem: String,
    },
    /// The model cannot be asked this way.
    #[error("write requests for model `{model}`: {problem}")]
    Inputs {
        /// Which model.
        model: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The file with inputs cannot be read.
    #[error("read inputs from {}: {reason}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The system did not give what a run needs.
    #[error("start: {reason}")]
    System {
        /// What happened.
        reason: String,
    },
}

impl SetupError {
    pub(crate) fn refused(server: &impl ToString, status: u16, reason: &str) -> SetupError {
        SetupError::Refused { server: server.to_string(), status, reason: reason.to_owned() }
    }

    pub(crate) fn system(error: std::io::Error) -> SetupError {
        SetupError::System { reason: error.to_string() }
    }
}

fn has(known: &[String]) -> String {
    match known {
        [] => "does not have it, and does not say which it has".into(),
        known => format!("does not have it; it has: {}", known.join(", ")),
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "; give a key with --api-key",
        _ => "",
    }
}
