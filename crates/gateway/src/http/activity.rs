//! What happens on one connection, as far as it takes to tell a slow client from one that waits.
//!
//! Nobody sets a timer for a request. A connection is looked at a few times within its shortest time-out, and what was
//! the same at the last look did not move. hyper polls what it waits for at every look, so that whoever waits for a
//! body can read the clock there.

use super::limits::Limits;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Counters of one connection. They wrap.
#[derive(Debug, Default)]
pub(super) struct Activity {
    reads: AtomicU32,
    /// Reads so far when the last request ended. More than that, and no request: a head is on its way.
    reads_before: AtomicU32,
    started: AtomicU32,
    ended: AtomicU32,
    linger: AtomicBool,
}

impl Activity {
    /// Something was read.
    pub(super) fn note_read(&self) {
        self.reads.fetch_add(1, Relaxed);
    }

    /// The head of a request is there.
    pub(super) fn start(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    /// A request is answered, and its answer on its way.
    pub(super) fn end(&self) {
        self.reads_before.store(self.reads.load(Relaxed), Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    /// The connection will end before all was read.
    pub(super) fn set_linger(&self) {
        self.linger.store(true, Relaxed);
    }

    /// Whether the connection ends before all was read.
    pub(super) fn lingers(&self) -> bool {
        self.linger.load(Relaxed)
    }
}

/// Looks after one connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Whether something besides requests comes, too, so that a read does not mean that a head has begun.
    is_http2: bool,
    /// Requests at the last look.
    started: u32,
    idle: Duration,
    head: Duration,
}

impl Watch {
    /// Looks after a new connection.
    pub(super) fn new(is_http2: bool) -> Watch {
        Watch { is_http2, ..Watch::default() }
    }

    /// Looks at a connection, `tick` after the last look. False when it is time to end it.
    pub(super) fn look(&mut self, activity: &Activity, tick: Duration, limits: &Limits) -> bool {
        let started = activity.started.load(Relaxed);
        if started != activity.ended.load(Relaxed) || started != self.started {
            *self = Watch { started, ..Watch::new(self.is_http2) };
            return true;
        }
        self.idle += tick;
        let has_begun = !self.is_http2 && activity.reads.load(Relaxed) != activity.reads_before.load(Relaxed);
        self.head = if has_begun || started == 0 { self.head + tick } else { Duration::ZERO };
        self.head < limits.header_timeout && self.idle < limits.keep_alive_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_heads_and_idle_connections_end_and_requests_do_not() {
        let limits = Limits::default();
        let second = Duration::from_secs(1);
        let looks_with = |activity: &Activity, is_http2: bool| {
            let mut watch = Watch { started: activity.started.load(Relaxed), ..Watch::new(is_http2) };
            (1..1000).find(|_| !watch.look(activity, second, &limits))
        };
        let looks = |activity: &Activity| looks_with(activity, false);
        let activity = Activity::default();
        assert_eq!(looks(&activity), Some(10));
        activity.note_read();
        activity.start();
        assert_eq!(looks(&activity), None);
        activity.end();
        assert_eq!(looks(&activity), Some(75));
        activity.note_read();
        assert_eq!(looks(&activity), Some(10));
        assert_eq!(looks_with(&activity, true), Some(75));
    }
}
