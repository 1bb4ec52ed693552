//! Cuts off clients that send a message so slowly that it is never whole.
//!
//! Streams are left alone: theirs is the right to be quiet, and keepalive tells whether they are there.

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::{Request, Response};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;

/// Calls that may take as long as they like to send.
const STREAMS: [&str; 3] = ["/ModelStreamInfer", "/ServerReflectionInfo", "/Watch"];

/// Puts [`Receive`] around a service.
#[derive(Clone)]
pub(super) struct Layer {
    /// How long a message may take to come in.
    pub(super) limit: Duration,
}

impl<S> tower::Layer<S> for Layer {
    type Service = Receive<S>;

    fn layer(&self, inner: S) -> Receive<S> {
        Receive { inner, limit: self.limit }
    }
}

/// A service whose requests must come in within a limit.
#[derive(Clone)]
pub(super) struct Receive<S> {
    inner: S,
    limit: Duration,
}

impl<S, B> tower::Service<Request<Body>> for Receive<S>
where
    S: tower::Service<Request<Body>, Response = Response<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        if STREAMS.iter().any(|stream| request.uri().path().ends_with(stream)) {
            return self.inner.call(request);
        }
        let limit = self.limit;
        let hurry = |body| Body::new(Hurried { body, limit, late: None });
        self.inner.call(request.map(hurry))
    }
}

/// A body that fails when it takes too long.
struct Hurried {
    body: Body,
    limit: Duration,
    /// Set when the body first has to be waited for, which most never have to.
    late: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Hurried {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            return frame;
        }
        let limit = self.limit;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match late.as_mut().poll(context) {
            Poll::Ready(()) => {
                let message = format!("the message was not whole within {} seconds", limit.as_secs_f32());
                Poll::Ready(Some(Err(Status::deadline_exceeded(message))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
