//! One connection from its first byte to its last.

use super::activity::{Activity, Watch};
use super::server::Server;
use super::service::answer;
use super::stream::Stream;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How far a server that stops has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not.
    Serving,
    /// Every answer is the last of its connection.
    Draining,
    /// Connections without a request are closed.
    Closing,
}

/// Answers all requests of a connection. Returns when it is closed by either side.
pub(super) async fn serve(server: Arc<Server>, socket: TcpStream, phase: watch::Receiver<Phase>) {
    // Answers are written whole; there is nothing to wait for.
    let _ = socket.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let limits = server.config.limits;
    let opening = async {
        let mut stream = match &server.config.tls {
            None => Stream::plain(socket, activity.clone(), limits.stall_timeout),
            Some(tls) => {
                let stream = TlsAcceptor::from(tls.clone()).accept(socket).await?;
                Stream::tls(stream, activity.clone(), limits.stall_timeout)
            }
        };
        let speaks_http2 = stream.speaks_http2().await?;
        std::io::Result::Ok((stream, speaks_http2))
    };
    // A connection that said nothing yet is closed at once when the server stops.
    let mut closing = phase.clone();
    let opened = tokio::select! {
        opened = timeout(limits.header_timeout, opening) => opened,
        _ = closing.wait_for(|phase| *phase == Phase::Closing) => return,
    };
    let (stream, speaks_http2) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return tracing::debug!(%error, "connection not opened"),
        Err(_) => return tracing::debug!("connection closed: nothing came"),
    };
    let service = {
        let (server, activity) = (server.clone(), activity.clone());
        service_fn(move |request: hyper::Request<Incoming>| answer(server.clone(), activity.clone(), request))
    };
    let stream = TokioIo::new(stream);
    if speaks_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(256)
            .adaptive_window(true);
        let connection = pin!(builder.serve_connection(stream, service));
        let watch = Watch::new(true);
        look_after(&server, &activity, watch, phase, connection, |connection| connection.graceful_shutdown()).await;
    } else {
        let mut builder = http1::Builder::new();
        // Without `pipeline_flush`: that holds an answer back while anything of its request is unread.
        builder.max_header_size(limits.header_bytes).max_headers(limits.headers);
        let connection = pin!(builder.serve_connection(stream, service));
        let watch = Watch::new(false);
        look_after(&server, &activity, watch, phase, connection, |connection| connection.graceful_shutdown()).await;
    }
}

/// Drives a connection to its end, and sees to it that there is one.
async fn look_after<C: Future<Output = hyper::Result<()>>>(
    server: &Server,
    activity: &Activity,
    mut watch: Watch,
    mut phase: watch::Receiver<Phase>,
    mut connection: Pin<&mut C>,
    close: impl Fn(Pin<&mut C>),
) {
    let limits = server.config.limits;
    let tick = limits.tick();
    let mut timer = pin!(sleep(tick));
    let mut closing = pin!(async move {
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
    });
    let mut is_closing = false;
    let ended = poll_fn(|context| {
        loop {
            // The connection comes first: whatever woke this task, requests in it are looked at.
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(Some(ended));
            }
            if !is_closing && closing.as_mut().poll(context).is_ready() {
                is_closing = true;
                close(connection.as_mut());
                continue;
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            timer.as_mut().reset(Instant::now() + tick);
            if !watch.look(activity, tick, &limits) {
                return Poll::Ready(None);
            }
        }
    })
    .await;
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection ended"),
        None => tracing::debug!("connection closed: it was idle or too slow"),
    }
}
