//! How much of everything a client may take, and how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Limits of one server. The defaults suit a machine with some gigabytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body of a request in bytes, as it comes and unpacked. Beyond: 413.
    pub body_bytes: usize,
    /// The largest head of a request in bytes. Beyond: 431.
    pub header_bytes: usize,
    /// The most header fields of a request. Beyond: 431.
    pub headers: usize,
    /// The most connections at a time. Beyond: 503, and the connection is closed.
    pub connections: usize,
    /// The most bytes that the bodies of all requests take together. Beyond: 503.
    pub memory_bytes: usize,
    /// How long a head may take from its first byte to its last, and a new connection to its first. Then the
    /// connection is closed. Like the other times it is looked at a few times within it.
    pub header_timeout: Duration,
    /// How long a body may stand still. Then: 408, and the connection is closed. An answer that the client does not
    /// take for so long is given up.
    pub stall_timeout: Duration,
    /// Bytes a second that a body brings at least, once `stall_timeout` is over.
    pub slowest_bytes_per_second: usize,
    /// How long a connection may wait for its next request.
    pub keep_alive_timeout: Duration,
    /// How long requests may take that were accepted before the server was told to stop.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 64 << 20,
            header_bytes: 64 << 10,
            headers: 100,
            connections: 10_000,
            memory_bytes: 1 << 30,
            header_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            slowest_bytes_per_second: 1024,
            keep_alive_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// How often a connection is looked after: often enough that no time-out is missed by more than a quarter.
    pub(super) fn tick(&self) -> Duration {
        let shortest = self.header_timeout.min(self.stall_timeout).min(self.keep_alive_timeout);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(5))
    }
}

/// Memory that all bodies share.
#[derive(Debug)]
pub(super) struct Budget {
    taken: AtomicUsize,
    most: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub(super) fn new(most: usize) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicUsize::new(0), most })
    }

    /// Bytes in use.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }
}

/// What one request has of a [`Budget`]; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Lease {
    /// Nothing yet.
    pub(super) fn new(budget: &Arc<Budget>) -> Lease {
        Lease { budget: budget.clone(), bytes: 0 }
    }

    /// Takes more; false when there is not so much left.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let before = self.budget.taken.fetch_add(more, Relaxed);
        if before.saturating_add(more) > self.budget.most {
            self.budget.taken.fetch_sub(more, Relaxed);
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_and_comes_back() {
        let budget = Budget::new(100);
        let (mut one, mut two) = (Lease::new(&budget), Lease::new(&budget));
        assert!(one.grow(60) && !two.grow(41) && two.grow(40) && !one.grow(1));
        assert_eq!(budget.taken(), 100);
        drop(one);
        assert!(two.grow(60));
        drop(two);
        assert_eq!(budget.taken(), 0);
    }
}
