//! Connections for gRPC as they come in: not too many, and none that does not say what it wants.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// With so many bytes every HTTP/2 client begins. With TLS, a handshake has more.
const PREFACE_BYTES: usize = 24;

/// How long to wait when the system has no more room for connections.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener that keeps to its limits.
#[derive(Debug)]
pub struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    preface_within: Duration,
    complained: bool,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connections {
    /// At most so many at a time; one that has not said what every client says first within a while is closed.
    pub fn new(listener: TcpListener, most: usize, preface_within: Duration) -> Connections {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Connections { listener, places, preface_within, complained: false, pause: None }
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let stream = match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => {
                    self.complained = false;
                    stream
                }
                Err(error) => {
                    // Once is enough, until it works again.
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                    continue;
                }
            };
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                tracing::debug!("a connection was closed: there are as many as may be");
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection ended as it began");
                continue;
            }
            let silence = Some(Box::pin(tokio::time::sleep(self.preface_within)));
            return Poll::Ready(Some(Ok(Connection { stream, silence, heard: 0, _place: place })));
        }
    }
}

/// A connection, with its place among those there may be.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// When to give up on it, until it has said what every client says first, and how much of that it said.
    silence: Option<Pin<Box<Sleep>>>,
    heard: usize,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard = self.heard.saturating_add(buffer.filled().len() - before);
        if self.heard >= PREFACE_BYTES {
            self.silence = None;
        }
        match (&read, &mut self.silence) {
            (Poll::Pending, Some(silence)) => match silence.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
            _ => read,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
