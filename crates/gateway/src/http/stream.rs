//! The bytes of one connection, plain or through TLS, and what is seen of them on their way:
//!
//! - which version of HTTP the client speaks, from its first bytes;
//! - that something was read, for whoever looks after the connection;
//! - that the client does not take its answer, which ends the connection;
//! - that hyper answers a request it could not read, which it does without a body: Weft's clients expect
//!   `{"error": ...}` with every error;
//! - that the connection ends before all was read. What is left is read and thrown away for a while: closed at once,
//!   the kernel would send a reset, and that may overtake the answer.

use super::activity::Activity;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

/// How every HTTP/2 connection begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a connection that ends early is read on.
const LINGER: Duration = Duration::from_secs(2);

/// A connection.
pub(super) struct Stream {
    transport: Transport,
    activity: Arc<Activity>,
    stall_timeout: Duration,
    /// Bytes that were read to find out what is spoken, and are still to be given out.
    first: Vec<u8>,
    /// Since when the client takes nothing.
    stalled: Option<Instant>,
    /// What goes out instead of hyper's own answer.
    instead: Vec<u8>,
    linger: Option<Pin<Box<Sleep>>>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// A plain connection.
    pub(super) fn plain(stream: TcpStream, activity: Arc<Activity>, stall_timeout: Duration) -> Stream {
        Stream::new(Transport::Plain(stream), activity, stall_timeout)
    }

    /// A connection through TLS.
    pub(super) fn tls(stream: TlsStream<TcpStream>, activity: Arc<Activity>, stall_timeout: Duration) -> Stream {
        Stream::new(Transport::Tls(Box::new(stream)), activity, stall_timeout)
    }

    fn new(transport: Transport, activity: Arc<Activity>, stall_timeout: Duration) -> Stream {
        Stream { transport, activity, stall_timeout, first: vec![], stalled: None, instead: vec![], linger: None }
    }

    /// Whether the client speaks HTTP/2. Waits for as many of its first bytes as it takes to know.
    pub(super) async fn speaks_http2(&mut self) -> Result<bool> {
        let mut seen = 0;
        let mut start = [0; PREFACE.len()];
        while seen < PREFACE.len() && PREFACE.starts_with(&start[..seen]) {
            match self.read(&mut start[seen..]).await? {
                0 => break,
                count => seen += count,
            }
        }
        self.first = start[..seen].to_vec();
        Ok(seen == PREFACE.len() && start == *PREFACE)
    }

    fn transport(&mut self) -> Pin<&mut (dyn Both + Send + Unpin)> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream),
            Transport::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }

    /// Writes what goes out instead of hyper's answer.
    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.instead.is_empty() {
            let instead = std::mem::take(&mut self.instead);
            let written = self.transport().poll_write(context, &instead);
            self.instead = instead;
            self.instead.drain(..ready!(written)?);
        }
        Poll::Ready(Ok(()))
    }

    /// Notes whether the client took something; an error when it took nothing for too long.
    fn watch(&mut self, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        match (&written, self.stalled) {
            (Poll::Ready(_), _) => self.stalled = None,
            (Poll::Pending, None) => self.stalled = Some(Instant::now()),
            (Poll::Pending, Some(since)) if since.elapsed() > self.stall_timeout => {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not take its answer")));
            }
            (Poll::Pending, Some(_)) => {}
        }
        written
    }
}

trait Both: AsyncRead + AsyncWrite {}
impl<T: AsyncRead + AsyncWrite> Both for T {}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..count]);
            self.first.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let result = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        };
        if result.is_ready() {
            self.activity.note_read();
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        if let Some(answer) = unread(data) {
            self.instead = answer;
            self.activity.set_linger();
            return Poll::Ready(Ok(data.len()));
        }
        let written = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, data),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, data),
        };
        self.watch(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        if let Some(slice) = slices.first().filter(|slice| unread(slice).is_some()) {
            return self.poll_write(context, slice);
        }
        let written = self.transport().poll_write_vectored(context, slices);
        self.watch(written)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(&self.transport, Transport::Plain(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_instead(context))?;
        match &mut self.transport {
            // There is nothing to flush.
            Transport::Plain(_) => Poll::Ready(Ok(())),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_instead(context))?;
        if !self.activity.lingers() {
            return self.transport().poll_shutdown(context);
        }
        if self.linger.is_none() {
            ready!(self.transport().poll_shutdown(context))?;
            self.linger = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        let mut waste = [0; 8192];
        loop {
            let mut buffer = ReadBuf::new(&mut waste);
            match self.transport().poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        self.linger.as_mut().map_or(Poll::Ready(()), |linger| linger.as_mut().poll(context)).map(Ok)
    }
}

/// What to answer when `data` is hyper's own answer to a request it could not read.
#[inline]
fn unread(data: &[u8]) -> Option<Vec<u8>> {
    if data.starts_with(b"HTTP/1.") && data.get(9) == Some(&b'4') { instead_of(data) } else { None }
}

#[cold]
fn instead_of(data: &[u8]) -> Option<Vec<u8>> {
    let mut lines = data.split(|byte| *byte == b'\n');
    // Weft's own answers say what they hold.
    if lines.any(|line| line.starts_with(b"content-type:")) {
        return None;
    }
    let (status, problem) = match data.get(9..12)? {
        b"431" => ("431 Request Header Fields Too Large", "the head of the request is too large"),
        b"414" => ("414 URI Too Long", "the path of the request is too long"),
        _ => ("400 Bad Request", "this is not an HTTP request"),
    };
    let body = format!("{{\"error\":\"{problem}\"}}");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    Some(answer.into_bytes())
}
