//! Connections as they come in: not too many, and none that says nothing.

use super::GrpcConfig;
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

/// How long to wait when the system has no more room for connections.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener that keeps to its limits.
pub(super) struct Connections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    first_word_within: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, config: &GrpcConfig) -> Connections {
        let places = Arc::new(Semaphore::new(config.connections_max.min(Semaphore::MAX_PERMITS)));
        Connections { listener, places, first_word_within: config.receive_timeout, pause: None }
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
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
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
            let silence = Some(Box::pin(tokio::time::sleep(self.first_word_within)));
            return Poll::Ready(Some(Ok(Connection { stream, silence, _place: place })));
        }
    }
}

/// A connection, with its place among those there may be.
pub(super) struct Connection {
    stream: TcpStream,
    /// When to give up on it, until it says its first word.
    silence: Option<Pin<Box<Sleep>>>,
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
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match (&read, &mut self.silence) {
            (Poll::Pending, Some(silence)) => match silence.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
            (Poll::Ready(_), Some(_)) => {
                self.silence = None;
                read
            }
            (_, None) => read,
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
