//! Lengths of time.

use policy::Span;
use std::time::Duration;

/// A length of time as the rest of Weft counts it.
pub(crate) fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
