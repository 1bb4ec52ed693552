//! Untracked launches: they are counted, and nothing else is learned from them. Which bursts are tracked.
//!
//! [`fast_path`](crate::fast_path) says when a launch stays untracked, and why.

#![deny(unsafe_code)]

use shm::TenantPage;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most launches of one burst that stay untracked.
const UNTRACKED_MAX: u64 = 4096;
/// One in so many bursts is tracked, after as many in a row were.
const EVERY: u32 = 32;
/// Multiples of this, of which the upper bits choose the bursts to track: never in step with what a program repeats.
const GOLDEN: u32 = 0x9E37_79B1;

/// How many untracked launches there were.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Untracked {
    launches: AtomicU64,
    /// Those that are in the process's page.
    published: AtomicU64,
}

/// What is known from tracked bursts, and which those are.
#[derive(Debug)]
pub(crate) struct Tracking {
    tracked: AtomicU32,
    /// Bursts that began since enough were tracked.
    begun: AtomicU32,
    /// What a launch is charged on average; 0 until it is known.
    launch_ns: AtomicU64,
    /// Launches before the burst that is going on.
    before: AtomicU64,
    /// A part of it was not tracked.
    partial: AtomicBool,
    /// There was a graph in it, which is not what a kernel takes.
    graph: AtomicBool,
}

impl Untracked {
    pub(crate) const fn new() -> Untracked {
        Untracked { launches: AtomicU64::new(0), published: AtomicU64::new(0) }
    }

    /// Counts one more, unless too many are not published yet.
    #[inline(always)]
    pub(crate) fn pass(&self) -> bool {
        let few = self.launches.load(Relaxed).wrapping_sub(self.published.load(Relaxed)) < UNTRACKED_MAX;
        if few {
            self.launches.fetch_add(1, Relaxed);
        }
        few
    }

    /// Whether some are not published yet.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.launches() != self.published.load(Relaxed)
    }

    /// All there ever were.
    #[inline(always)]
    pub(crate) fn launches(&self) -> u64 {
        self.launches.load(Relaxed)
    }

    /// They are another process's.
    pub(crate) fn forget(&self) {
        self.published.fetch_max(self.launches(), Relaxed);
    }

    /// Adds to the process's page those that are not published yet.
    pub(crate) fn publish(&self, page: &TenantPage, tracking: &Tracking) {
        let launches = self.launches();
        let more = launches.saturating_sub(self.published.fetch_max(launches, Relaxed));
        if more > 0 {
            page.launches.fetch_add(more, Relaxed);
            page.charged_ns.fetch_add(more.saturating_mul(tracking.launch_ns.load(Relaxed)), Relaxed);
        }
    }
}

impl Tracking {
    pub(crate) const fn new() -> Tracking {
        Tracking {
            tracked: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            launch_ns: AtomicU64::new(0),
            before: AtomicU64::new(0),
            partial: AtomicBool::new(false),
            graph: AtomicBool::new(false),
        }
    }

    /// A new kernel was launched.
    pub(crate) fn new_kernel(&self) {
        self.tracked.store(0, Relaxed);
    }

    /// A graph was launched.
    pub(crate) fn new_graph(&self) {
        self.graph.store(true, Relaxed);
    }

    /// All of the burst is tracked after all.
    pub(crate) fn track_all(&self) {
        self.partial.store(false, Relaxed);
    }

    /// A burst begins after so many launches.
    pub(crate) fn begin(&self, launches: u64) {
        self.before.store(launches, Relaxed);
    }

    /// A burst ends after so many launches; its own were charged so much. Returns whether all of it was tracked.
    pub(crate) fn end(&self, launches: u64, charged_ns: u64) -> bool {
        let graph = self.graph.swap(false, Relaxed);
        if self.partial.swap(false, Relaxed) {
            return false;
        }
        if !graph {
            let one = charged_ns / launches.saturating_sub(self.before.load(Relaxed)).max(1);
            let known = self.launch_ns.load(Relaxed);
            self.launch_ns.store(if known == 0 { one } else { known - known / 8 + one / 8 }, Relaxed);
        }
        self.tracked.store(self.tracked.load(Relaxed).saturating_add(1), Relaxed);
        true
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.partial.load(Relaxed)
    }

    /// Whether the rest of the burst that begins may stay untracked. Then it does.
    pub(crate) fn rest(&self) -> bool {
        if self.tracked.load(Relaxed) < EVERY || self.launch_ns.load(Relaxed) == 0 {
            return false;
        }
        let begun = self.begun.fetch_add(1, Relaxed).wrapping_add(1);
        let rest = begun.wrapping_mul(GOLDEN) >= u32::MAX / EVERY;
        self.partial.store(rest, Relaxed);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(tracking: &Tracking, launches: &mut u64, size: u64, launch_ns: u64) -> bool {
        tracking.begin(*launches);
        tracking.rest();
        *launches += size;
        tracking.end(*launches, size * launch_ns)
    }

    #[test]
    fn all_bursts_are_tracked_at_first_and_few_later() {
        let (tracking, mut launches) = (Tracking::new(), 0);
        let tracked: Vec<bool> = (0..3232).map(|_| burst(&tracking, &mut launches, 10, 7)).collect();
        assert!(tracked[..32].iter().all(|tracked| *tracked));
        let later: Vec<usize> = (32..3232).filter(|burst| tracked[*burst]).collect();
        assert!((95..=105).contains(&later.len()), "{}", later.len());
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] <= 55), "{later:?}");
        for period in 2..9 {
            let phases: std::collections::BTreeSet<usize> = later.iter().map(|burst| burst % period).collect();
            assert_eq!(phases.len(), period, "in step with a program that repeats every {period} bursts");
        }
    }

    #[test]
    fn untracked_launches_are_charged_like_tracked_ones() {
        let (tracking, mut launches) = (Tracking::new(), 0);
        for _ in 0..400 {
            burst(&tracking, &mut launches, 20, 5_000);
        }
        tracking.begin(launches);
        tracking.new_graph();
        assert!(tracking.end(launches + 2, 900_000), "a graph is no kernel");
        let window = shm::PageWindow::reserve().unwrap();
        let (untracked, page) = (Untracked::new(), window.own());
        assert_eq!((0..100).filter(|_| untracked.pass()).count(), 100);
        untracked.publish(page, &tracking);
        untracked.publish(page, &tracking);
        assert_eq!(page.launches.load(Relaxed), 100);
        let charged = page.charged_ns.load(Relaxed);
        assert!((499_000..=500_000).contains(&charged), "{charged}");
    }

    #[test]
    fn a_new_kernel_brings_tracking_back() {
        let (tracking, mut launches) = (Tracking::new(), 0);
        let mut tracked = |bursts| (0..bursts).filter(|_| burst(&tracking, &mut launches, 10, 7)).count();
        assert!(tracked(300) < 50);
        tracking.new_kernel();
        assert_eq!(tracked(32), 32);
        assert!(tracked(64) < 8);
    }

    #[test]
    fn an_endless_burst_is_tracked_again() {
        let (untracked, window) = (Untracked::new(), shm::PageWindow::reserve().unwrap());
        assert_eq!((0..2 * UNTRACKED_MAX).filter(|_| untracked.pass()).count() as u64, UNTRACKED_MAX);
        untracked.publish(window.own(), &Tracking::new());
        assert!(untracked.pass());
    }
}
