//! Reads the body of a request: as much as may come, as fast as it must.

use super::answer::Problem;
use super::limits::{Budget, Lease, Limits};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::{StatusCode, Version};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Room for a long body grows from here as it comes, whatever length was announced.
const FIRST_ROOM: usize = 64 * 1024;

/// The whole body, and the memory it takes.
pub(super) async fn read(
    mut body: Incoming,
    version: Version,
    started: Instant,
    limits: &Limits,
    budget: &Arc<Budget>,
) -> Result<(Bytes, Lease), Problem> {
    let refuse = |full: Full| match full {
        Full::Body => {
            let most = limits.body_bytes;
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than the {most} bytes allowed"))
        }
        Full::Memory => Problem::unavailable("the requests in flight take all the memory they may"),
    };
    let mut lease = Lease::new(budget);
    let announced = body.size_hint().lower();
    if announced > limits.body_bytes as u64 {
        return Err(refuse(Full::Body));
    }
    let mut reader = Reader { started, version, limits, received: 0 };
    // Mostly one piece is all there is, and it stays where it is.
    let Some(first) = reader.next(&mut body).await? else { return Ok((Bytes::new(), lease)) };
    if body.is_end_stream() && first.len() <= limits.body_bytes {
        return if lease.grow(first.len()) { Ok((first, lease)) } else { Err(refuse(Full::Memory)) };
    }
    let mut whole = Vec::new();
    let mut piece = Some(first);
    while let Some(bytes) = piece {
        append(&mut whole, &bytes, announced as usize, &mut lease, limits).map_err(refuse)?;
        piece = reader.next(&mut body).await?;
    }
    Ok((whole.into(), lease))
}

/// What has no room for more.
enum Full {
    Body,
    Memory,
}

fn append(whole: &mut Vec<u8>, bytes: &[u8], announced: usize, lease: &mut Lease, limits: &Limits) -> Result<(), Full> {
    let needed = whole.len() + bytes.len();
    if needed > limits.body_bytes {
        return Err(Full::Body);
    }
    if needed > whole.capacity() {
        // Doubling stops at the length that was announced, which is exact where there is one.
        let doubled = (2 * whole.capacity()).max(FIRST_ROOM);
        let wanted = if needed <= announced { doubled.min(announced) } else { doubled }.max(needed);
        if !lease.grow(wanted - whole.capacity()) {
            return Err(Full::Memory);
        }
        whole.reserve_exact(wanted - whole.len());
    }
    whole.extend_from_slice(bytes);
    Ok(())
}

/// Takes a body piece by piece and keeps an eye on the clock.
struct Reader<'a> {
    started: Instant,
    version: Version,
    limits: &'a Limits,
    received: usize,
}

impl Reader<'_> {
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, Problem> {
        loop {
            let frame = self.patiently(body).await?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| Problem::invalid(format!("the body cannot be read: {error}")))?;
            // Trailers mean nothing here.
            if let Ok(bytes) = frame.into_data()
                && !bytes.is_empty()
            {
                self.received += bytes.len();
                return Ok(Some(bytes));
            }
        }
    }

    async fn patiently(
        &self,
        body: &mut Incoming,
    ) -> Result<Option<Result<hyper::body::Frame<Bytes>, hyper::Error>>, Problem> {
        let late = || {
            let text = format!("the body came too slowly: {} bytes of it so far", self.received);
            Problem::new(StatusCode::REQUEST_TIMEOUT, text)
        };
        let mut frame = pin!(body.frame());
        if self.version == Version::HTTP_2 {
            // Every request is a task of its own, which nobody wakes.
            let deadline = self.deadline(Instant::now());
            return tokio::time::timeout_at(deadline.into(), frame).await.map_err(|_| late());
        }
        let mut deadline = None;
        std::future::poll_fn(|context| match frame.as_mut().poll(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => {
                let now = Instant::now();
                if now > *deadline.get_or_insert_with(|| self.deadline(now)) {
                    return Poll::Ready(Err(late()));
                }
                Poll::Pending
            }
        })
        .await
    }

    /// When the next piece must be there.
    fn deadline(&self, now: Instant) -> Instant {
        let at_slowest = self.received as u64 / self.limits.slowest_bytes_per_second.max(1) as u64;
        let stall = self.limits.stall_timeout;
        (now + stall).min(self.started + stall + Duration::from_secs(at_slowest))
    }
}
