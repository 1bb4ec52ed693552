//! What a best-effort program is owed: the part of the GPU that it requested and did not have.
//!
//! 1. A program that wants the GPU and has less than its request is owed the difference.
//! 2. What it is owed is paid from a moment's worth on, and until nothing is owed: one change of how it is throttled for
//!    many of its kernels.
//! 3. What it uses while it is paid counts in full, so that one kernel longer than its debt is waited for afterwards. What
//!    it uses otherwise only settles a debt: having had an idle GPU takes nothing of what is promised for a busy one.
//! 4. Neither side owes more than the request of [`SharingConfig::debt_most`]; a program that used more at once, in a long
//!    kernel, owes that.

use super::{SharingConfig, WHOLE};
use crate::{Span, Time};

/// The account of one program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// GPU time that it is owed, in nanoseconds; negative: that it had too much of.
    owed_ns: i64,
    is_due: bool,
    at: Time,
    charged: Span,
    wanted: Span,
}

impl Promise {
    pub(super) fn new(now: Time, charged: Span, wanted: Span) -> Promise {
        Promise { owed_ns: 0, is_due: false, at: now, charged, wanted }
    }

    /// Takes a reading of its counters. `request`: in thousandths.
    pub(super) fn update(&mut self, now: Time, charged: Span, wanted: Span, request: u32, config: &SharingConfig) {
        let part = |time: Span| time.scale(request.min(WHOLE).into(), WHOLE.into()).nanos() as i64;
        let (passed, used) = (now - self.at, (charged - self.charged).nanos() as i64);
        let earned = if wanted > self.wanted { part(passed) } else { 0 };
        (self.at, self.charged, self.wanted) = (now, charged, wanted);
        let (before, most) = (self.owed_ns, part(config.debt_most));
        let owed = before.saturating_add(earned).saturating_sub(used);
        let least = if self.is_due { -most.max(used) } else { before.saturating_add(earned).min(0) };
        self.owed_ns = owed.max(least).min(most);
        let moment = config.moment().nanos() as i64;
        self.is_due = request > 0 && (self.owed_ns >= moment || self.is_due && self.owed_ns > 0);
    }

    /// Whether it is to be paid now.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program that always wants the GPU and has it while it is paid, in kernels that take so long; the part of the time
    /// that it has, after `seconds`, and how often it was begun to be paid.
    fn play(request: u32, kernel: Span, part_while_due: u32, seconds: u64) -> (f64, u64) {
        let config = SharingConfig::default();
        let (mut promise, mut charged, mut wanted) =
            (Promise::new(Time::ZERO, Span::ZERO, Span::ZERO), Span::ZERO, Span::ZERO);
        let (mut runs, mut begun, mut was_due) = (Span::ZERO, 0, false);
        let ticks = seconds * 500;
        for tick in 1..=ticks {
            wanted += config.tick;
            if promise.is_due() {
                // A kernel is charged when it is launched, and takes its part of the time.
                if runs == Span::ZERO {
                    (charged, runs) = (charged + kernel, kernel);
                }
            }
            runs = runs - config.tick.scale(part_while_due.into(), 1_000);
            promise.update(Time::ZERO + config.tick.scale(tick, 1), charged, wanted, request, &config);
            begun += u64::from(promise.is_due() && !was_due);
            was_due = promise.is_due();
        }
        (charged.seconds() / seconds as f64, begun)
    }

    proptest! {
        #[test]
        fn who_always_wants_its_request_has_it(
            request in 10u32..300, kernel in 1u64..200, part in 600u32..1_000,
        ) {
            let (had, begun) = play(request, Span::from_millis(kernel), part, 120);
            let promised = f64::from(request) / 1_000.0;
            let one_kernel = (0.02 + kernel as f64 / 1e3) / 120.0;
            prop_assert!((had - promised).abs() < 0.03 * promised + 2.0 * one_kernel, "{had} of {promised}");
            prop_assert!(begun <= 120 * 50, "{begun}");
        }
    }

    #[test]
    fn an_idle_gpu_takes_nothing_of_what_is_promised_for_a_busy_one() {
        let config = SharingConfig::default();
        let mut promise = Promise::new(Time::ZERO, Span::ZERO, Span::ZERO);
        let at = |tick: u64| (Time::ZERO + config.tick.scale(tick, 1), config.tick.scale(tick, 1));
        for tick in 1..5_000 {
            let (now, used) = at(tick);
            promise.update(now, used, used, 50, &config);
        }
        let (_, had) = at(4_999);
        let due = (5_000..10_000).find(|tick| {
            let (now, wanted) = at(*tick);
            promise.update(now, had, wanted, 50, &config);
            promise.is_due()
        });
        assert_eq!(due, Some(5_000 + 199), "20 ms are owed after 400 ms");
    }

    #[test]
    fn who_wants_nothing_or_requests_nothing_is_owed_nothing() {
        let config = SharingConfig::default();
        for (request, wants) in [(0, 1), (500, 0)] {
            let mut promise = Promise::new(Time::ZERO, Span::ZERO, Span::ZERO);
            for tick in 1..10_000 {
                let now = Time::ZERO + config.tick.scale(tick, 1);
                promise.update(now, Span::ZERO, config.tick.scale(tick * wants, 1), request, &config);
                assert!(!promise.is_due());
            }
        }
    }
}
