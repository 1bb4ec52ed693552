//! Connections to one server, each with one request under way at a time. There are as many as are needed at once.

use super::answer::{Answer, AnswerReader};
use crate::client::{Connections, Failure};
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

thread_local! {
    /// What is read goes through here. Connections would otherwise each hold a buffer for an answer that is looked
    /// at once and forgotten, and there may be thousands of them.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 << 10].into());
}

/// Connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    address: SocketAddr,
    /// Connections that wait for a request. The last used comes first: the others may be closed in peace.
    idle: Mutex<Vec<TcpStream>>,
    /// One for each connection in use.
    permits: Semaphore,
    limit: usize,
    used: AtomicUsize,
    used_max: AtomicUsize,
}

impl Pool {
    pub(super) fn new(address: SocketAddr, limit: usize) -> Pool {
        Pool {
            address,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(limit),
            limit,
            used: AtomicUsize::new(0),
            used_max: AtomicUsize::new(0),
        }
    }

    /// Sends bytes and reads the answer, of which `keep` bytes of body are kept. `started` is set when a connection
    /// is there to be used or made.
    pub(super) async fn exchange(
        &self,
        request: &[u8],
        keep: usize,
        started: &mut Option<Instant>,
    ) -> Result<Answer, Failure> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let _used = self.count_use();
        *started = Some(Instant::now());
        let mut stream = match self.idle() {
            Some(stream) => stream,
            None => connect(self.address).await.map_err(|error| Failure::connection(&error))?,
        };
        let written = stream.write_all(request).await;
        // A server may say no before it has read everything, and mean it for what it did not read, too.
        let answer = read(&mut stream, AnswerReader::new(keep)).await;
        match (written, answer) {
            (Ok(()), Ok(answer)) => {
                if answer.reusable {
                    self.idle.lock().expect("nothing panics while it is locked").push(stream);
                }
                Ok(answer)
            }
            (Err(_), Ok(answer)) => Ok(answer),
            (Ok(()), Err(failure)) => Err(failure),
            (Err(error), Err(_)) => Err(Failure::connection(&error)),
        }
    }

    /// How connections were used so far.
    pub(super) fn connections(&self) -> Connections {
        Connections { used_max: self.used_max.load(Ordering::Relaxed), limit: Some(self.limit) }
    }

    /// A connection that is open, as far as is known without asking the system.
    fn idle(&self) -> Option<TcpStream> {
        let mut idle = self.idle.lock().expect("nothing panics while it is locked");
        loop {
            let mut stream = idle.pop()?;
            // Anything to read is the end of the connection, or an answer that nobody asked for.
            let mut byte = [0];
            let mut context = Context::from_waker(Waker::noop());
            if Pin::new(&mut stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending() {
                return Some(stream);
            }
        }
    }

    fn count_use(&self) -> impl Drop {
        struct Use<'a>(&'a AtomicUsize);
        impl Drop for Use<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let used = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        self.used_max.fetch_max(used, Ordering::Relaxed);
        Use(&self.used)
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads an answer to its end.
async fn read(stream: &mut TcpStream, mut reader: AnswerReader) -> Result<Answer, Failure> {
    loop {
        let piece = poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
                    Err(error) => Poll::Ready(Err(Failure::connection(&error))),
                    Ok(()) if buffer.filled().is_empty() => Poll::Ready(reader.close().map(Some).map_err(closed)),
                    Ok(()) => Poll::Ready(reader.take(buffer.filled()).map_err(Failure::protocol)),
                }
            })
        });
        if let Some(answer) = piece.await? {
            return Ok(answer);
        }
    }
}

fn closed(reason: &'static str) -> Failure {
    Failure { kind: crate::client::FailureKind::Connection, reason: reason.to_owned() }
}
