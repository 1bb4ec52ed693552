//! SM caps: which kernels of a best-effort tenant run on a part of the SMs, in spatial mode.
//!
//! A kernel that has taken every SM keeps them until its blocks are done, whatever anybody's priority is. A kernel that may
//! use a part of them leaves room at once. To confine one costs its host some ten microseconds, so it is done for long
//! kernels, and while nobody is busy for very long ones only.

use crate::admission::BUDGET_NS;

/// Shorter kernels are not worth it. Work within the budget may be in flight anyway, so a kernel that takes a small part of
/// it is gone before anybody has waited for long.
const LONG_NS: u64 = BUDGET_NS / 4;
/// The same outside busy periods, where one would have to begin during the kernel, and would find it half done on average.
const LONG_BETWEEN_NS: u64 = 2 * BUDGET_NS;

/// Whether a kernel may have to be confined: whether it is worth asking [`sm_cap`].
#[inline]
pub const fn may_cap(duration_ns: u64) -> bool {
    duration_ns >= LONG_NS
}

/// The part of the SMs that a kernel runs on, in thousandths; `None` for all of them. `cap_permille` is what the daemon
/// said; `always`: at any time; `busy`: whether a more important tenant is in a busy period.
pub fn sm_cap(duration_ns: u64, cap_permille: u32, always: bool, busy: impl FnOnce() -> bool) -> Option<u32> {
    let is_cap = (1..1_000).contains(&cap_permille);
    let is_due = || duration_ns >= LONG_BETWEEN_NS || may_cap(duration_ns) && (always || busy());
    (is_cap && is_due()).then_some(cap_permille)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_kernels_are_confined_in_busy_periods_and_very_long_ones_always() {
        let cap = |duration_ns, always, busy| sm_cap(duration_ns, 400, always, || busy);
        for (duration_ns, always, busy, expected) in [
            (LONG_NS - 1, true, true, None),
            (LONG_NS, false, true, Some(400)),
            (LONG_NS, true, false, Some(400)),
            (LONG_NS, false, false, None),
            (LONG_BETWEEN_NS - 1, false, false, None),
            (LONG_BETWEEN_NS, false, false, Some(400)),
        ] {
            assert_eq!(cap(duration_ns, always, busy), expected, "{duration_ns} ns, {always}, {busy}");
        }
        for none in [0, 1_000, u32::MAX] {
            assert_eq!(sm_cap(u64::MAX, none, true, || true), None, "{none} is no part of the SMs");
        }
    }
}
