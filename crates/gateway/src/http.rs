//! The Open Inference Protocol over HTTP, as Triton's clients speak it: HTTP/1.1 and HTTP/2, plain or with TLS.
//!
//! ```text
//!  connection ── stream      bytes, plain or TLS; which HTTP is spoken
//!      │ service ── route    who may, and what a path means
//!      │     ├─ infer        body ── decode (json, elements, number) ── core ── encode
//!      │     └─ models, memory, setting
//!      └ activity, limits    who is slow, who takes too much
//! ```
//!
//! What a client sends is read in one pass, straight into the bytes of tensors; `decode` and `encode` are pure.
//! Every error is `{"error": "..."}`: 4xx is the client's to repair, 429 and 503 say when to come again, and 500 is a
//! model that failed.
//!
//! Invariants:
//! 1. A request whose head was read is answered, also when the server is told to stop, unless its client goes away.
//! 2. What requests hold in memory together stays below `Limits::memory_bytes`, and is counted before it is taken.
//! 3. No timer is set for a request of HTTP/1.1: connections are looked after a few times within their time-outs.
//!
//! Not covered: a request that a client sends while its idle connection is being closed. Connections stay open for a
//! moment after the server was told to stop, so that such a request is answered and told to be the last.

mod route;
mod server;
mod service;
mod infer;
mod decode;
mod json;
mod number;
mod elements;
mod classification;
mod encode;
mod compression;
mod models;
mod memory;
mod setting;
mod answer;
mod body;
mod connection;
mod stream;
mod activity;
mod limits;
mod config;
pub mod tls;

pub use crate::keys::{Administration, Keys};
pub use crate::origin::Hosts;
pub use compression::{Encoding, UnpackError, pack, unpack};
pub use decode::{Data, InferRequest, Input, Output, Place, decode};
pub use encode::{Encoded, encode};
pub use limits::Limits;
pub use server::HttpConfig;

use crate::Gateway;
use connection::Phase;
use limits::Budget;
use server::Server;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// How long connections without a request stay open when the server stops: long enough for what is on the wire.
const GRACE: Duration = Duration::from_millis(100);
/// How long to wait before accepting again when the system is out of something.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Serves until `shutdown` is over, then finishes what was accepted and returns.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    config: HttpConfig,
    shutdown: impl Future,
) -> anyhow::Result<()> {
    let drain_timeout = config.limits.drain_timeout;
    let budget = Budget::new(config.limits.memory_bytes);
    let permits = Arc::new(Semaphore::new(config.limits.connections.min(Semaphore::MAX_PERMITS)));
    let is_tls = config.tls.is_some();
    let server = Arc::new(Server { gateway, config, budget, is_draining: AtomicBool::new(false) });
    let (phase, watched) = watch::channel(Phase::Serving);
    let admit = |socket: TcpStream| match permits.clone().try_acquire_owned() {
        Ok(permit) => {
            let connection = connection::serve(server.clone(), socket, watched.clone());
            tokio::spawn(async move {
                connection.await;
                drop(permit);
            });
        }
        Err(_) => turn_away(&socket, is_tls),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => admit(socket),
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(BACK_OFF).await;
                }
            },
            _ = &mut shutdown => break,
        }
    }
    server.is_draining.store(true, Relaxed);
    phase.send_replace(Phase::Draining);
    // Clients whose connections the kernel has accepted already believe that they are served.
    while let Ok(Ok((socket, _))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await {
        admit(socket);
    }
    drop(listener);
    tokio::time::sleep(GRACE).await;
    phase.send_replace(Phase::Closing);
    drop(watched);
    if tokio::time::timeout(drain_timeout, phase.closed()).await.is_err() {
        tracing::warn!(connections = phase.receiver_count(), bytes = server.budget.taken(), "not drained in time");
    }
    Ok(())
}

/// Says that there are too many connections, as far as that can be said at once.
fn turn_away(socket: &TcpStream, is_tls: bool) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
        content-length: 46\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
        {\"error\":\"there are too many connections now\"}";
    if !is_tls {
        // Who does not take it is turned away without.
        let _ = socket.try_write(ANSWER);
    }
    tracing::debug!("connection turned away: there are too many");
}
