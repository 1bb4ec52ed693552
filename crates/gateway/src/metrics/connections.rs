//! Connections to the metrics port: how many, how long, how large their headers.
//!
//! The port is for operators and their tools, so limits are few and fixed. Where there are as many connections as may
//! be, the one that has had nothing to do for the longest makes room for the next: whoever holds many connections open
//! keeps nobody out. A connection ends after its last exchange once it is old, so that nobody holds one for ever by
//! reading slowly.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Open at the same time.
const CONNECTIONS: usize = 256;
/// The longest that a request's headers may take, and that a connection may have nothing to do.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The longest that the first bytes of an encrypted connection may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
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

/// Whom a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Whoever reaches the port.
    Network,
    /// The user that runs the server, on the same machine, by the kernel's word.
    Owner,
}

/// Where connections come from.
pub(super) struct Doors {
    pub(super) network: TcpListener,
    /// How connections from the network are encrypted, if so.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// For the user that runs the server, on its machine.
    pub(super) local: Option<UnixListener>,
}

/// A connection, as those see it who look for one to end.
#[derive(Default)]
struct Slot {
    /// When it was last done with a request, by a counter of all requests; `BUSY` while it has one.
    idle_since: AtomicU64,
    end: Notify,
}

const BUSY: u64 = u64::MAX;

/// All connections, by number.
#[derive(Default)]
struct Slots {
    open: Mutex<BTreeMap<u64, Arc<Slot>>>,
    clock: AtomicU64,
}

impl Slots {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Slot>>> {
        self.open.lock().expect("no panic holds this lock")
    }

    /// A place for a connection. Where all are taken, the one that was idle for the longest is told to end; none when
    /// all are busy.
    fn take(self: &Arc<Slots>) -> Option<Place> {
        let mut open = self.open();
        if open.len() >= CONNECTIONS {
            let age = |slot: &Arc<Slot>| slot.idle_since.load(Relaxed);
            let (number, slot) = open.iter().min_by_key(|(_, slot)| age(slot))?;
            if age(slot) == BUSY {
                return None;
            }
            slot.end.notify_one();
            let number = *number;
            open.remove(&number);
        }
        let number = self.clock.fetch_add(1, Relaxed);
        let slot = Arc::new(Slot { idle_since: AtomicU64::new(number), end: Notify::new() });
        open.insert(number, slot.clone());
        Some(Place { slots: self.clone(), number, slot })
    }
}

/// One of the places; given back when it is dropped.
struct Place {
    slots: Arc<Slots>,
    number: u64,
    slot: Arc<Slot>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slots.open().remove(&self.number);
    }
}

/// Accepts connections and has their requests answered until `shutdown` is there, and then finishes what it has.
pub(super) async fn run<Answer, Answering>(doors: Doors, answer: Answer, shutdown: impl Future<Output = ()>)
where
    Answer: Fn(Request<Incoming>, Caller) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let Doors { network, tls, local } = doors;
    let tls = tls.map(TlsAcceptor::from);
    let answer = Arc::new(answer);
    let (close, closing) = watch::channel(false);
    let (slots, local_slots) = (Arc::new(Slots::default()), Arc::new(Slots::default()));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = network.accept() => match accepted {
                Ok((stream, _)) => match slots.take() {
                    Some(place) => {
                        connections.spawn(open(stream, tls.clone(), answer.clone(), place, closing.clone()));
                    }
                    None => tracing::warn!("a connection to the metrics port was closed: all others are busy"),
                },
                Err(error) => pause(&error).await,
            },
            accepted = accept_local(local.as_ref()) => match accepted {
                Ok(stream) => match (caller_of(&stream), local_slots.take()) {
                    (Some(caller), Some(place)) => {
                        let (answer, closing) = (answer.clone(), closing.clone());
                        connections.spawn(async move {
                            hold(stream, move |request| answer(request, caller), place, closing).await;
                        });
                    }
                    (None, _) => {}
                    (_, None) => tracing::warn!("a connection to the admin socket was closed: all others are busy"),
                },
                Err(error) => pause(&error).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    drop((network, local));
    let _ = close.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Those that are left are cut off when the set is dropped.
    let _ = timeout(STOP_WITHIN, all).await;
}

/// Most likely there are no file descriptors left, which does not pass at once.
async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a connection to the metrics port");
    sleep(Duration::from_millis(100)).await;
}

async fn accept_local(listener: Option<&UnixListener>) -> std::io::Result<UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Whom the kernel says a local connection is from: the user that runs this server, or the administrator of the machine.
/// Others cannot open the socket, and are not answered if they could.
fn caller_of(stream: &UnixStream) -> Option<Caller> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred().map(|peer| peer.uid()) {
        Ok(user) if user == own || user == 0 => Some(Caller::Owner),
        Ok(user) => {
            tracing::warn!(user, "refused: a connection to the admin socket from another user");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "refused: a connection to the admin socket from nobody knows whom");
            None
        }
    }
}

/// Serves a connection from the network.
async fn open<Answer, Answering>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    answer: Arc<Answer>,
    place: Place,
    closing: watch::Receiver<bool>,
) where
    Answer: Fn(Request<Incoming>, Caller) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    // Only costs time when it fails.
    let _ = stream.set_nodelay(true);
    let answer = move |request| answer(request, Caller::Network);
    let Some(tls) = tls else { return hold(stream, answer, place, closing).await };
    let mut ending = closing.clone();
    let opened = tokio::select! {
        opened = timeout(HANDSHAKE_WITHIN, tls.accept(stream)) => opened,
        () = place.slot.end.notified() => return,
        _ = ending.wait_for(|closing| *closing) => return,
    };
    match opened {
        Ok(Ok(stream)) => hold(stream, answer, place, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the metrics port was not encrypted"),
        Err(_) => tracing::debug!("a connection to the metrics port said nothing"),
    }
}

async fn hold<Stream, Answer, Answering>(
    stream: Stream,
    answer: Answer,
    place: Place,
    mut closing: watch::Receiver<bool>,
) where
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Answer: Fn(Request<Incoming>) -> Answering + Send + Sync + 'static,
    Answering: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (slot, slots) = (place.slot.clone(), place.slots.clone());
    let service = service_fn(move |request| {
        slot.idle_since.store(BUSY, Relaxed);
        let (answering, slot, slots) = (answer(request), slot.clone(), slots.clone());
        async move {
            let answer = answering.await;
            slot.idle_since.store(slots.clock.fetch_add(1, Relaxed), Relaxed);
            Ok::<_, Infallible>(answer)
        }
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
        () = place.slot.end.notified() => return tracing::debug!("an idle connection to the metrics port made room"),
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
