//! What went wrong, in gRPC's words.

use crate::ServeError;
use policy::Span;
use rpc::{NotFound, OrderError, Refusal};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// The longest message: clients refuse answers whose headers are longer than a few thousand bytes, and messages may
/// quote what a client or a model wrote.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// A status with a message that is not too long for a client.
pub(super) fn new(code: Code, message: impl Into<String>) -> Status {
    let mut message = message.into();
    if message.len() > MESSAGE_BYTES_MAX {
        let whole = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(whole.unwrap_or(0));
        message.push_str(" ...");
    }
    Status::new(code, message)
}

/// The status of a request that makes no sense.
pub(super) fn invalid(problem: impl Into<String>) -> Status {
    new(Code::InvalidArgument, problem)
}

/// The status of a request without outputs. `own_limit` says that the deadline was the client's own `grpc-timeout`.
pub(super) fn of(error: &ServeError, own_limit: bool) -> Status {
    let code = match error {
        ServeError::NotFound(error) => return not_found(error),
        ServeError::Invalid(_) => Code::InvalidArgument,
        ServeError::Refused(Refusal::Expired { .. }) => Code::DeadlineExceeded,
        ServeError::Refused(Refusal::Late { .. } | Refusal::TooSlow { .. }) if own_limit => Code::DeadlineExceeded,
        ServeError::Refused(
            Refusal::Late { .. } | Refusal::TooSlow { .. } | Refusal::Starting { .. } | Refusal::Unavailable(_),
        ) => Code::Unavailable,
        ServeError::Refused(Refusal::Full { .. } | Refusal::Overload { .. }) => Code::ResourceExhausted,
        ServeError::Failed(_) => Code::Internal,
    };
    let retry_after = match error {
        ServeError::Refused(
            Refusal::Late { retry_after, .. }
            | Refusal::TooSlow { retry_after, .. }
            | Refusal::Full { retry_after, .. }
            | Refusal::Overload { retry_after, .. }
            | Refusal::Starting { expected: retry_after },
        ) => Some(*retry_after),
        _ => None,
    };
    match retry_after {
        Some(retry_after) => later(code, &error.to_string(), retry_after),
        None => new(code, error.to_string()),
    }
}

/// A status that says when it is worth trying again: in its text, for our clients in `retry-after-ms`, and for gRPC's
/// own retries in `grpc-retry-pushback-ms`.
fn later(code: Code, message: &str, retry_after: Span) -> Status {
    let millis = retry_after.nanos().div_ceil(1_000_000);
    let mut status = new(code, format!("{message}; try again in {millis} ms"));
    for name in ["retry-after-ms", "grpc-retry-pushback-ms"] {
        status.metadata_mut().insert(name, MetadataValue::from(millis));
    }
    status
}

/// The status of a call that names a model that is not there.
pub(super) fn not_found(error: &NotFound) -> Status {
    match error {
        NotFound::NotKnownYet => later(Code::Unavailable, &error.to_string(), Span::from_secs(1)),
        _ => new(Code::NotFound, error.to_string()),
    }
}

/// The status of an order that could not be carried out.
pub(super) fn of_order(error: &OrderError) -> Status {
    match error {
        OrderError::NotFound(error) => not_found(error),
        OrderError::Invalid(problem) => new(Code::FailedPrecondition, problem),
        OrderError::Storage(problem) => new(Code::Internal, problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = invalid("ü".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(status.message().len(), MESSAGE_BYTES_MAX + 4);
        assert_eq!(invalid("short").message(), "short");
    }
}
