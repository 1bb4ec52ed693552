//! The time of a launch, by the processor's counter.
//!
//! The kernel's clock is made from the same counter, but its code and data lie on pages of their own, which a program that
//! does much between two launches has in none of its caches.
//!
//! Invariants:
//! 1. The counter is used only where the kernel makes its clock from it, and only for 20 ms after the kernel was asked;
//!    what is off by then is less than a microsecond.
//! 2. The rate is found once and never changes, so that the one word that does, the offset, is never torn from it.
//! 3. A counter that was not steady (a machine that slept or moved) is not used again.
//!
//! Where a microsecond more or less matters, or one time must not be before another, ask the kernel.

use crate::rarely;
use shm::now_ns;
use std::io::Read;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// For how long the counter is believed.
const BELIEVED_NS: u64 = 20_000_000;
/// How long the rate is looked at before it is known.
const LEARNED_NS: u64 = 200_000_000;
/// The kernel's clock and the counter were read at the same time if it took no longer.
const SAME_TICKS: u64 = 1_000;
/// How often that is tried.
const TRIES: usize = 4;
/// What a steady counter may be off by: so much, and a thousandth of the time since it was last compared.
const STEADY_NS: u64 = 20_000;
/// The rate of a counter that is not to be used.
const USELESS: u64 = 1;
/// What the kernel makes its clock from, and by which names that is the counter.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const COUNTERS: [&str; 2] = ["tsc", "kvm-clock"];

/// A clock by the counter. What it takes to tell the time comes first.
#[repr(C)]
pub(crate) struct Ticks {
    /// Nanoseconds of a tick, in 2^-32; 0 until it is known.
    rate: AtomicU64,
    /// What is to be added to ticks times rate.
    offset_ns: AtomicU64,
    /// When the kernel is to be asked again.
    until: AtomicU64,
    /// The first time that both were read, if the counter may be used.
    first: OnceLock<Option<Both>>,
}

/// The counter and the kernel's clock at one moment.
#[derive(Clone, Copy, Debug)]
struct Both {
    ticks: u64,
    ns: u64,
}

impl Ticks {
    pub(crate) const fn new() -> Ticks {
        Ticks {
            rate: AtomicU64::new(0),
            offset_ns: AtomicU64::new(0),
            until: AtomicU64::new(0),
            first: OnceLock::new(),
        }
    }

    /// The time, `CLOCK_MONOTONIC` but for a microsecond.
    #[inline(always)]
    pub(crate) fn now_ns(&self) -> u64 {
        match self.at(counter()) {
            Some(ns) => ns,
            None => {
                rarely();
                self.ask()
            }
        }
    }

    /// The time at a tick, if it can be told.
    #[inline(always)]
    fn at(&self, ticks: u64) -> Option<u64> {
        let rate = self.rate.load(Ordering::Acquire);
        let believed = ticks < self.until.load(Ordering::Relaxed);
        (believed && rate > USELESS)
            .then(|| nanoseconds(ticks, rate).wrapping_add(self.offset_ns.load(Ordering::Relaxed)))
    }

    #[inline(never)]
    fn ask(&self) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == USELESS {
            return now_ns();
        }
        let both = both();
        let usable = both.is_some_and(|both| self.first.get_or_init(|| kernel_uses_it().then_some(both)).is_some());
        match both {
            Some(both) if usable => self.compare(both),
            // Where they cannot be compared, nothing is known of the counter.
            _ if rate == 0 => self.rate.store(USELESS, Ordering::Relaxed),
            _ => {}
        }
        both.map_or_else(now_ns, |both| both.ns)
    }

    /// Both were read now: finds the rate, or what is off since the last time.
    fn compare(&self, now: Both) {
        let Some(first) = self.first.get().copied().flatten() else { return };
        let (ticks, passed_ns) = (now.ticks.saturating_sub(first.ticks), now.ns.saturating_sub(first.ns));
        let rate = match self.rate.load(Ordering::Acquire) {
            0 if passed_ns < LEARNED_NS => return,
            0 => {
                let rate = (u128::from(passed_ns) << 32).checked_div(ticks.into()).unwrap_or(0);
                u64::try_from(rate).ok().filter(|rate| *rate > USELESS).unwrap_or(USELESS)
            }
            rate => {
                let believed_ns = nanoseconds(now.ticks, rate).wrapping_add(self.offset_ns.load(Ordering::Relaxed));
                let since = now.ticks.saturating_sub(self.until.load(Ordering::Relaxed));
                let steady_ns = STEADY_NS + (BELIEVED_NS + nanoseconds(since, rate)) / 1000;
                if believed_ns.abs_diff(now.ns) <= steady_ns { rate } else { USELESS }
            }
        };
        if rate > USELESS {
            let believed = (u128::from(BELIEVED_NS) << 32) / u128::from(rate);
            self.offset_ns.store(now.ns.wrapping_sub(nanoseconds(now.ticks, rate)), Ordering::Relaxed);
            self.until.store(now.ticks.saturating_add(u64::try_from(believed).unwrap_or(0)), Ordering::Relaxed);
        }
        self.rate.store(rate, Ordering::Release);
    }
}

#[inline(always)]
fn nanoseconds(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

/// The counter and the clock, read so that nothing came between them; `None` where something does every time.
fn both() -> Option<Both> {
    (0..TRIES).find_map(|_| {
        let (before, ns, after) = (counter(), now_ns(), counter());
        (after.wrapping_sub(before) <= SAME_TICKS).then_some(Both { ticks: after, ns })
    })
}

fn kernel_uses_it() -> bool {
    let mut name = [0; 32];
    let length = std::fs::File::open(SOURCE).and_then(|mut file| file.read(&mut name)).unwrap_or(0);
    COUNTERS.iter().any(|counter| name[..length].trim_ascii() == counter.as_bytes())
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has it, and reading it changes nothing. Where the kernel forbids it to
    // programs, it forbids them its own quick clock as well, which no Linux that runs a GPU does.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// One that never moves, so that the kernel is always asked.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A counter that began at `began` and ticks so often in a thousand nanoseconds.
    fn ticks(began: u64, per_us: u64, ns: u64) -> u64 {
        began + (u128::from(ns) * u128::from(per_us) / 1000) as u64
    }

    fn learned(began: u64, per_us: u64) -> Ticks {
        let clock = Ticks::new();
        let both = |ns| Both { ticks: ticks(began, per_us, ns), ns };
        clock.first.set(Some(both(MS))).unwrap();
        clock.compare(both(100 * MS));
        assert_eq!(clock.at(both(100 * MS).ticks), None, "that is not long enough");
        clock.compare(both(300 * MS));
        clock
    }

    proptest! {
        #[test]
        fn it_is_the_kernels_clock_for_a_while(
            began in 0..u64::MAX / 4, per_us in 500..6_000u64, pauses in prop::collection::vec(0..100_000 * MS, 1..20)
        ) {
            let clock = learned(began, per_us);
            let mut ns = 300 * MS;
            for pause in pauses {
                let within = ns + pause % (BELIEVED_NS - MS);
                let told = clock.at(ticks(began, per_us, within)).expect("it is believed for so long");
                prop_assert!(told.abs_diff(within) < 1_000, "{told} at {within}");
                prop_assert_eq!(clock.at(ticks(began, per_us, ns + BELIEVED_NS + MS)), None);
                ns += pause;
                clock.compare(Both { ticks: ticks(began, per_us, ns), ns });
            }
            prop_assert!(clock.rate.load(Ordering::Relaxed) > USELESS, "it was steady");
        }
    }

    #[test]
    fn a_counter_that_was_not_steady_is_not_used_again() {
        for (ticked_ns, passed_ns) in [(10 * MS, 30 * MS), (30 * MS, 10 * MS), (0, 30 * MS)] {
            let clock = learned(7, 2_700);
            let both = Both { ticks: ticks(7, 2_700, 300 * MS + ticked_ns), ns: 300 * MS + passed_ns };
            clock.compare(both);
            assert_eq!(clock.at(both.ticks), None);
            clock.compare(both);
            assert_eq!(clock.at(both.ticks), None, "never");
        }
        let still = Ticks::new();
        still.first.set(Some(Both { ticks: 0, ns: 0 })).unwrap();
        still.compare(Both { ticks: 0, ns: 300 * MS });
        assert_eq!(still.rate.load(Ordering::Relaxed), USELESS, "one that never moves");
    }

    #[test]
    fn the_real_one_agrees_with_the_kernel() {
        let clock = Ticks::new();
        let until = now_ns() + 300 * MS;
        while now_ns() < until {
            let (before, told, after) = (now_ns(), clock.now_ns(), now_ns());
            // Another process may have the processor between any two of them, which only makes this easier.
            assert!(told + 20_000 > before && told < after + 20_000, "{before} {told} {after}");
        }
    }
}
