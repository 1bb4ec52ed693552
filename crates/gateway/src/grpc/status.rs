//! What went wrong, in gRPC's words.

use crate::ServeError;
use policy::Span;
use rpc::{NotFound, OrderError, Refusal};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// The status of a request without outputs. `own_limit` says that the deadline was the client's own `grpc-timeout`.
pub(super) fn of(error: &ServeError, own_limit: bool) -> Status {
    let code = match error {
        ServeError::NotFound(_) => Code::NotFound,
        ServeError::Invalid(_) => Code::InvalidArgument,
        ServeError::Refused(Refusal::Late { .. }) if own_limit => Code::DeadlineExceeded,
        ServeError::Refused(Refusal::Late { .. } | Refusal::Unavailable(_)) => Code::Unavailable,
        ServeError::Refused(Refusal::Full { .. } | Refusal::Overload { .. }) => Code::ResourceExhausted,
        ServeError::Failed(_) => Code::Internal,
    };
    let retry_after = match error {
        ServeError::Refused(
            Refusal::Late { retry_after, .. }
            | Refusal::Full { retry_after, .. }
            | Refusal::Overload { retry_after, .. },
        ) => Some(*retry_after),
        _ => None,
    };
    match retry_after {
        Some(retry_after) => later(code, &error.to_string(), retry_after),
        None => Status::new(code, error.to_string()),
    }
}

/// A status that says when it is worth trying again: in its text, for our clients in `retry-after-ms`, and for gRPC's
/// own retries in `grpc-retry-pushback-ms`.
fn later(code: Code, message: &str, retry_after: Span) -> Status {
    let millis = retry_after.nanos().div_ceil(1_000_000);
    let mut status = Status::new(code, format!("{message}; try again in {millis} ms"));
    for name in ["retry-after-ms", "grpc-retry-pushback-ms"] {
        status.metadata_mut().insert(name, MetadataValue::from(millis));
    }
    status
}

/// The status of a call that names a model that is not there.
pub(super) fn not_found(error: &NotFound) -> Status {
    Status::not_found(error.to_string())
}

/// The status of an order that could not be carried out.
pub(super) fn of_order(error: &OrderError) -> Status {
    match error {
        OrderError::NotFound(error) => not_found(error),
        OrderError::Invalid(problem) => Status::failed_precondition(problem),
        OrderError::Storage(problem) => Status::internal(problem),
    }
}
