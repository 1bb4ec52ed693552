//! Why a request has no outputs.

use rpc::{NotFound, Refusal};

/// Why there are no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// No such model or version.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The request makes no sense for the model.
    #[error("{0}")]
    Invalid(String),
    /// Weft chose not to serve it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model failed.
    #[error("{0}")]
    Failed(String),
}
