//! Answers: their bodies, and errors as clients expect them: `{"error": "..."}`.

use super::activity::Activity;
use super::json::write_string;
use super::limits::Lease;
use crate::ServeError;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use policy::Span;
use rpc::{OrderError, Refusal};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Where clients find how long to wait in milliseconds; `Retry-After` knows only seconds.
static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body of an answer, in pieces that are there.
#[derive(Debug, Default)]
pub(super) struct Body {
    next: Option<Bytes>,
    more: VecDeque<Bytes>,
    /// Held until the body is gone.
    held: Option<Held>,
}

/// What a request holds until its answer is on its way.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) activity: Arc<Activity>,
    pub(super) lease: Option<Lease>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.activity.end();
    }
}

impl Body {
    /// A body in one piece.
    pub(super) fn one(bytes: impl Into<Bytes>) -> Body {
        let bytes = bytes.into();
        Body { next: (!bytes.is_empty()).then_some(bytes), ..Body::default() }
    }

    /// A body in pieces, none of them empty.
    pub(super) fn parts(parts: Vec<Bytes>) -> Body {
        let mut more = VecDeque::from(parts);
        Body { next: more.pop_front(), more, held: None }
    }

    /// Takes the pieces out.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.next.take().into_iter().chain(std::mem::take(&mut self.more)).collect()
    }

    /// How long it is.
    pub(super) fn length(&self) -> usize {
        self.next.iter().chain(&self.more).map(Bytes::len).sum()
    }

    /// Holds something until the body is gone.
    pub(super) fn hold(&mut self, held: Held) {
        self.held = Some(held);
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.next.take();
        self.next = self.more.pop_front();
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length() as u64)
    }
}

/// An answer.
pub(super) type Answer = Response<Body>;

/// An answer without a body.
pub(super) fn empty() -> Answer {
    let mut answer = Response::new(Body::default());
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

/// An answer in JSON.
pub(super) fn json(body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::one(body));
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

/// An answer with a value as JSON.
pub(super) fn value(value: &serde_json::Value) -> Answer {
    json(value.to_string())
}

/// Why a request gets no answer but an error.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    text: String,
    advice: Advice,
}

/// What a header says about a problem.
#[derive(Clone, Copy, Debug)]
enum Advice {
    /// Nothing.
    None,
    /// Try again later.
    After(Span),
    /// Use one of these methods.
    Methods(&'static str),
    /// Bring a key.
    Key,
}

impl Problem {
    /// A problem of this kind, in words.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Problem {
        Problem { status, text: text.into(), advice: Advice::None }
    }

    /// The request makes no sense.
    pub(super) fn invalid(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, text)
    }

    /// There is no such thing.
    pub(super) fn not_found(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, text)
    }

    /// Not now.
    pub(super) fn unavailable(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(Span::from_secs(1))
    }

    /// The path is there, and not for this method.
    pub(super) fn method(allowed: &'static str) -> Problem {
        let text = format!("this path takes {allowed}");
        Problem { advice: Advice::Methods(allowed), ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, text) }
    }

    /// The request brings no key, or a wrong one.
    pub(super) fn unauthorized(text: &str) -> Problem {
        Problem { advice: Advice::Key, ..Problem::new(StatusCode::UNAUTHORIZED, text) }
    }

    /// Nobody may do this, or not from there.
    pub(super) fn forbidden(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, text)
    }

    /// Says when it is worth trying again.
    fn retry_after(self, span: Span) -> Problem {
        Problem { advice: Advice::After(span), ..self }
    }

    /// The answer it becomes.
    pub(super) fn answer(self) -> Answer {
        let mut body = b"{\"error\":".to_vec();
        write_string(&self.text, &mut body);
        body.push(b'}');
        let mut answer = json(body);
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        match self.advice {
            Advice::None => {}
            Advice::After(span) => {
                let millis = span.nanos().div_ceil(1_000_000).max(1);
                headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1_000)));
                headers.insert(&RETRY_AFTER_MS, HeaderValue::from(millis));
            }
            Advice::Methods(allowed) => drop(headers.insert(ALLOW, HeaderValue::from_static(allowed))),
            Advice::Key => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        }
        answer
    }
}

impl From<ServeError> for Problem {
    fn from(error: ServeError) -> Problem {
        let text = error.to_string();
        match error {
            ServeError::NotFound(error) => error.into(),
            ServeError::Invalid(_) => Problem::invalid(text),
            ServeError::Failed(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text),
            ServeError::Refused(Refusal::Full { retry_after, .. } | Refusal::Overload { retry_after, .. }) => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(retry_after)
            }
            ServeError::Refused(
                Refusal::Late { retry_after, .. }
                | Refusal::TooSlow { retry_after, .. }
                | Refusal::Starting { expected: retry_after },
            ) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(retry_after),
            ServeError::Refused(Refusal::Unavailable(_)) => Problem::unavailable(text),
            ServeError::Refused(Refusal::Expired { .. }) => {
                Problem::new(StatusCode::GATEWAY_TIMEOUT, text).retry_after(Span::from_secs(1))
            }
        }
    }
}

impl From<rpc::NotFound> for Problem {
    fn from(error: rpc::NotFound) -> Problem {
        match error {
            rpc::NotFound::NotKnownYet => Problem::unavailable(error.to_string()),
            _ => Problem::not_found(error.to_string()),
        }
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Problem {
        let text = error.to_string();
        match error {
            OrderError::NotFound(error) => error.into(),
            OrderError::Invalid(_) => Problem::invalid(text),
            OrderError::Storage(_) => Problem::unavailable(text),
        }
    }
}
