//! What one tenant may still use: a bucket that fills at the rate it was given.
//!
//! 1. The bucket of a tenant that wants nothing holds a few milliseconds of its rate: what was not used in time is
//!    gone, and a tenant that slept cannot shut the others out when it wakes. What a tenant wanted and did not get
//!    because the GPU was another's is kept for a window.
//! 2. What was used beyond the bucket is a debt, and is paid off before the next launch, however many ticks that
//!    takes: a kernel ten times as long as a tick costs what it took, no more and no less.
//! 3. Over any window, no more than the limit and one kernel, whatever the bucket says.
//! 4. A debt is forgotten beyond [`SharingConfig::debt_most`] of waiting, so that one wrong reading stops nobody for good.

use super::window::Window;
use super::{SharingConfig, WHOLE};
use crate::{Span, Time};

impl SharingConfig {
    /// A bucket holds what its rate brings in this long, if nothing is wanted of it.
    fn credit(&self) -> Span {
        self.tick.scale(2, 1)
    }

    /// What a tenant wants is what it wanted over this long, if that is more than over the window: it wakes faster than it
    /// falls asleep.
    fn lately(&self) -> Span {
        self.moment()
    }
}

/// One tenant's bucket and the counters that it is kept by.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    pub(super) charged: Window,
    pub(super) wanted: Window,
    /// Nanoseconds that may be used; negative: owed.
    bucket: i64,
    /// It has more than it could use lately: the GPU, not its share, is what it waits for.
    pub(super) left_over: bool,
}

impl Allowance {
    pub(super) fn new(now: Time, charged: Span, wanted: Span) -> Allowance {
        Allowance { charged: Window::new(now, charged), wanted: Window::new(now, wanted), bucket: 0, left_over: false }
    }

    /// Whether counters are those of the same tenant: they do not go back.
    pub(super) fn goes_on(&self, charged: Span, wanted: Span) -> bool {
        charged >= self.charged.last().1 && wanted >= self.wanted.last().1
    }

    /// Takes a reading of the counters and takes what was used out of the bucket.
    pub(super) fn read(&mut self, now: Time, charged: Span, wanted: Span, config: &SharingConfig) {
        let (_, before) = self.charged.last();
        self.bucket = self.bucket.saturating_sub_unsigned((charged - before).nanos());
        self.charged.read(now, charged, config.window);
        self.wanted.read(now, wanted, config.window);
    }

    /// What it used over the window, in thousandths.
    pub(super) fn used(&self, config: &SharingConfig) -> u32 {
        self.charged.rate(config.window).unwrap_or(0)
    }

    /// What it could use: all, when it is new; what it wanted lately or over the window, whichever is more.
    pub(super) fn demand(&self, config: &SharingConfig) -> u32 {
        let lately = self.wanted.rate(config.lately()).unwrap_or(WHOLE);
        lately.max(self.wanted.rate(config.window).unwrap_or(WHOLE)).min(WHOLE)
    }

    /// Fills the bucket at `rate` for the time that `passed`, and says what the charge may grow to.
    pub(super) fn grant(&mut self, passed: Span, rate: u32, limit: u32, config: &SharingConfig) -> Span {
        let (_, charged) = self.charged.last();
        if rate >= WHOLE {
            self.bucket = worth(config.credit(), WHOLE);
            self.left_over = false;
            return Span::MAX;
        }
        let whole = u64::from(WHOLE);
        // At no rate at all a debt would last for ever.
        let owed_max = worth(config.debt_most, rate.max(1));
        let wanting = self.wanted.rate(config.tick).is_some_and(|wanted| wanted > WHOLE / 2);
        let most = worth(if wanting { config.window } else { config.credit() }, rate);
        self.bucket = (self.bucket.max(-owed_max) + worth(passed, rate)).min(most);
        // The window that will have passed at the next look.
        let (_, at_start) = self.charged.before(config.window - config.tick);
        let limited = at_start + config.window.scale(u64::from(limit), whole);
        let allowed = Span::from_nanos(charged.nanos().saturating_add_signed(self.bucket)).min(limited);
        // Who is held by its own limit lacks nothing, however full its bucket is.
        self.left_over = allowed >= charged + Span::from_nanos(worth(config.credit(), rate).unsigned_abs());
        allowed
    }
}

/// What a rate brings in so long.
fn worth(span: Span, rate: u32) -> i64 {
    span.scale(u64::from(rate), u64::from(WHOLE)).nanos() as i64
}
