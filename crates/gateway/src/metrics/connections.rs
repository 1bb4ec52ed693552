//! Connections to the metrics port: how many, how long, how large their headers.
//!
//! The port is for operators and their tools, so limits are few and fixed. A connection ends after its last exchange
//! once it is old, so that nobody holds one for ever by reading slowly.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Open at the same time; more wait to be accepted.
const CONNECTIONS: usize = 256;
/// The longest that a request's headers may take, and that a connection may have nothing to do.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Headers of a request.
const HEADERS: usize = 64;
/// Bytes of all of them.
const HEADER_BYTES: usize = 16 << 10;
/// A connection older than this takes no other request.
const AGE: Duration = Duration::from_secs(300);
/// How long its last one may take then. Deploying a model may be one.
const LAST: Duration = Duration::from_secs(600);
/// How long connections may go on when the server is told to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Accepts connections and has their requests answered until `shutdown` is there, and then finishes what it has.
pub(super) async fn run<Answer, Answering>(listener: TcpListener, answer: Answer, shutdown: impl Future<Output = ()>)
where
    Answer: Fn(Request<Incoming>) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let answer = Arc::new(answer);
    let (close, closing) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(hold(stream, answer.clone(), closing.clone())); }
                Err(error) => {
                    // Most likely there are no file descriptors left, which does not pass at once.
                    tracing::warn!(%error, "cannot accept a connection to the metrics port");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    let _ = close.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Those that are left are cut off when the set is dropped.
    let _ = timeout(STOP_WITHIN, all).await;
}

async fn hold<Answer, Answering>(stream: TcpStream, answer: Arc<Answer>, mut closing: watch::Receiver<bool>)
where
    Answer: Fn(Request<Incoming>) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    // Only costs time when it fails.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return tell(ended),
        () = sleep(AGE) => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(LAST, connection).await {
        tell(ended);
    }
}

fn tell(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the metrics port ended early");
    }
}
