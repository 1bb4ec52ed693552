//! The virtual clock: when the GPU will have done what was launched, without asking it.
//!
//! At a launch, `busy_until = max(busy_until, now) + duration`. A sync that finds the GPU idle says when it really was
//! done, and corrects the durations of what was launched since the GPU last was idle. A burst is from the first launch to
//! the sync after it.
//!
//! Several threads may launch at once. Counters are exact then; estimates may lose one launch's worth.

#![deny(unsafe_code)]

use crate::identity::{KernelTable, RECORDS};
use crate::streams::Streams;
use crate::untracked::{Tracking, Untracked};
use share_core::Patience;
use shm::TenantPage;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Launches of a run that a sync corrects; of a longer run, the last ones.
const RUN: usize = 64;
/// A sync or a copy that took less did not wait for the GPU.
pub(crate) const WAITED_NS: u64 = 4_000;
/// All of it, in thousandths.
pub const WHOLE: u64 = 1000;
/// The longest time for which the clock thinks the GPU busy: a program that never waits for it would seem to be busy for
/// ever. Other processes take less than that for rubbish already.
const AHEAD_MAX_NS: u64 = 2 * Patience::USUAL.ahead_ns;
/// No record.
const NONE: u32 = u32::MAX;

/// The clock of one GPU in one process. What a launch needs comes first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Clock {
    /// The record of what was launched last.
    last: AtomicU32,
    /// How much was launched since the GPU was last thought idle, and since when.
    run_length: AtomicU32,
    run_since_ns: AtomicU64,
    /// Tracked launches.
    sequence: AtomicU64,
    /// When the last was.
    launched_ns: AtomicU64,
    /// What had been charged before the burst that is going on.
    burst_charged_ns: AtomicU64,
    /// Untracked launches.
    pub(crate) untracked: Untracked,
    /// The streams used since the GPU was idle.
    streams: Streams,
    /// What was launched since then.
    run: [AtomicU16; RUN],
    pub(crate) tracking: Tracking,
}

const _: () = assert!(RECORDS <= u16::MAX as usize && std::mem::offset_of!(Clock, streams) < 64);

impl Clock {
    /// A clock of an idle GPU.
    #[allow(clippy::new_without_default, reason = "only made as a constant")]
    pub const fn new() -> Clock {
        Clock {
            last: AtomicU32::new(NONE),
            run_length: AtomicU32::new(0),
            run_since_ns: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            launched_ns: AtomicU64::new(0),
            burst_charged_ns: AtomicU64::new(0),
            untracked: Untracked::new(),
            streams: Streams::new(),
            run: [const { AtomicU16::new(0) }; RUN],
            tracking: Tracking::new(),
        }
    }

    /// The record of what was launched last, or one that is none.
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.last.load(Relaxed)
    }

    /// Something is launched now. Returns what was charged for it.
    #[inline(always)]
    pub fn launch(&self, page: &TenantPage, table: &KernelTable, number: u32, stream: u64, now_ns: u64) -> u64 {
        let record = table.record(number);
        let duration = record.duration_ns();
        let busy = page.busy_until_ns.load(Relaxed);
        let last = self.last.load(Relaxed);
        if busy <= now_ns {
            if last != NONE {
                table.record(last).followed_by_gap(now_ns - busy);
            }
            self.run_length.store(0, Relaxed);
            self.run_since_ns.store(now_ns, Relaxed);
            let since = page.burst_since_ns.load(Relaxed);
            if since == 0 {
                self.begin_burst(page, now_ns);
            } else if now_ns - busy > Patience::USUAL.idle_ns {
                self.end_burst(page, busy.max(since), 0);
                self.begin_burst(page, now_ns);
            }
        } else if last != NONE {
            table.record(last).followed_by_gap(0);
        }
        let length = self.run_length.load(Relaxed);
        self.run[length as usize % RUN].store(number as u16, Relaxed);
        self.run_length.store(length.wrapping_add(1), Relaxed);
        self.last.store(number, Relaxed);
        self.streams.launch(stream, self.sequence(), self.launched_ns.load(Relaxed));
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Relaxed);
        self.launched_ns.store(now_ns, Relaxed);

        let until = busy.max(now_ns).saturating_add(duration).min(now_ns.saturating_add(AHEAD_MAX_NS));
        page.busy_until_ns.store(until, Relaxed);
        page.gap_ns.store(record.gap_ns(), Relaxed);
        page.outstanding_ns.store(until - now_ns, Relaxed);
        page.charged_ns.fetch_add(duration, Relaxed);
        duration
    }

    /// How many launches there were, to be kept with an event that is recorded after them.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed).wrapping_add(self.untracked.launches())
    }

    /// Launches are tracked again in the middle of a burst.
    #[cold]
    pub(crate) fn resume_tracking(&self, page: &TenantPage, now_ns: u64) {
        self.untracked.publish(page, &self.tracking);
        // What came before the next launch, and when it is done, is not known.
        self.last.store(NONE, Relaxed);
        self.launched_ns.store(now_ns, Relaxed);
        page.busy_until_ns.fetch_max(now_ns, Relaxed);
    }

    /// Whether to wait for this stream is to wait for all that was launched.
    pub fn is_covered_by(&self, stream: u64, now_ns: u64) -> bool {
        self.streams.are_covered_by(stream, now_ns)
    }

    /// The GPU has done what a stream was given up to a launch.
    pub fn stream_done(&self, stream: u64, sequence: u64) {
        self.streams.done(stream, sequence);
    }

    /// A stream waits for what another was given up to a launch.
    pub fn join(&self, waits: u64, for_stream: u64, sequence: u64) {
        self.streams.join(waits, for_stream, sequence, self.sequence());
    }

    /// The GPU has done everything: at `now`, seen by a sync that began at `began`, or before that if it did not wait.
    /// `learn` says which part of the time was ours, in thousandths, where durations are to be taken from it and are not
    /// measured.
    pub fn idle(&self, page: &TenantPage, table: &KernelTable, began_ns: u64, now_ns: u64, learn: Option<u64>) {
        self.untracked.publish(page, &self.tracking);
        let learn = learn.filter(|_| !self.tracking.is_partial());
        let busy = page.busy_until_ns.load(Relaxed);
        let length = self.run_length.load(Relaxed);
        let since = self.run_since_ns.load(Relaxed);
        let waited = now_ns.saturating_sub(began_ns) > WAITED_NS;
        // A sync that did not wait says only that the work had ended: news when it was thought to go on.
        if length > 0 && busy > since && (waited || busy > began_ns) {
            let done = if waited { now_ns } else { began_ns };
            let (actual, predicted) = (done.saturating_sub(since), busy - since);
            let (learn, ours) = (learn.is_some(), learn.unwrap_or(0).min(WHOLE));
            let actual = actual / WHOLE * ours + actual % WHOLE * ours / WHOLE;
            let run = &self.run[..length.min(RUN as u32) as usize];
            let sync = self.sequence() as u32;
            for number in run.iter().filter(|_| learn).map(|number| number.load(Relaxed)) {
                let record = table.record(number.into());
                if !record.measured() && record.is_corrected_first_by(sync) {
                    record.correct(actual, predicted, ours < WHOLE);
                }
            }
        }
        let done = if waited { now_ns } else { began_ns.min(busy.max(since)) };
        if busy > done || waited {
            page.busy_until_ns.store(done, Relaxed);
        }
        if page.burst_since_ns.load(Relaxed) != 0 {
            let waited = done.saturating_sub(self.launched_ns.load(Relaxed));
            self.end_burst(page, done, waited);
        }
        page.gap_ns.store(0, Relaxed);
        page.outstanding_ns.store(0, Relaxed);
        self.run_length.store(0, Relaxed);
        self.last.store(NONE, Relaxed);
        self.streams.idle();
    }

    #[inline(never)]
    fn begin_burst(&self, page: &TenantPage, now_ns: u64) {
        self.tracking.begin(self.sequence());
        self.burst_charged_ns.store(page.charged_ns.load(Relaxed), Relaxed);
        page.burst_since_ns.store(now_ns, Relaxed);
    }

    #[inline(never)]
    fn end_burst(&self, page: &TenantPage, done_ns: u64, waited_ns: u64) {
        let since = page.burst_since_ns.load(Relaxed);
        let length = done_ns.saturating_sub(since);
        let work = page.charged_ns.load(Relaxed).saturating_sub(self.burst_charged_ns.load(Relaxed));
        if self.tracking.end(self.sequence(), work) {
            page.bursts.fetch_add(1, Relaxed);
            page.burst_ns_total.fetch_add(length, Relaxed);
            page.burst_wait_ns_total.fetch_add(waited_ns, Relaxed);
            page.burst_work_ns_total.fetch_add(work, Relaxed);
            page.burst_ended(since, length, waited_ns, work);
        } else {
            page.untracked_bursts.fetch_add(1, Relaxed);
            page.untracked_burst_ns_total.fetch_add(length, Relaxed);
            page.burst_ended(since, length, waited_ns, 0);
        }
        page.last_burst_ns.store(length, Relaxed);
        page.burst_since_ns.store(0, Relaxed);
    }

    /// Records are those of others from here on.
    pub fn forget(&self) {
        self.run_length.store(0, Relaxed);
        self.last.store(NONE, Relaxed);
    }

    /// In a child after `fork`: what the parent launched is not ours to count.
    pub(crate) fn forget_untracked(&self) {
        self.untracked.forget();
        self.tracking.track_all();
    }

    /// Whether a kernel that goes to this stream follows another to the same.
    #[inline(always)]
    pub(crate) fn continues_on(&self, stream: u64) -> bool {
        self.streams.is_last(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::kernel_key;

    static TABLE: KernelTable = KernelTable::new();

    fn page() -> &'static TenantPage {
        let window = Box::leak(Box::new(shm::PageWindow::reserve().unwrap()));
        window.own()
    }

    #[test]
    fn work_queues_up_and_a_sync_ends_the_burst() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(10, [1; 3], [1; 3], 0));
        TABLE.record(number).measure(10_000);
        for _ in 0..3 {
            clock.launch(page, &TABLE, number, 0, 1_000_000);
        }
        assert_eq!(page.busy_until_ns.load(Relaxed), 1_030_000);
        assert_eq!(page.charged_ns.load(Relaxed), 30_000);
        assert_eq!(page.burst_since_ns.load(Relaxed), 1_000_000);
        clock.idle(page, &TABLE, 1_000_000, 1_040_000, Some(WHOLE));
        assert_eq!(page.burst_since_ns.load(Relaxed), 0);
        assert_eq!(page.last_burst_ns.load(Relaxed), 40_000);
        assert_eq!(page.burst_wait_ns_total.load(Relaxed), 40_000);
        assert_eq!(page.burst_work_ns_total.load(Relaxed), 30_000);
        assert_eq!(TABLE.record(number).duration_ns(), 10_000, "measured ones are not guessed");
    }

    #[test]
    fn durations_are_learned_from_syncs_alone() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(11, [1; 3], [1; 3], 0));
        let mut now = 1_000_000;
        for _ in 0..100 {
            for _ in 0..10 {
                clock.launch(page, &TABLE, number, 0, now);
            }
            clock.idle(page, &TABLE, now, now + 10 * 40_000, Some(WHOLE));
            now += 1_000_000;
        }
        let learned = TABLE.record(number).duration_ns();
        assert!((38_000..42_000).contains(&learned), "{learned}");
    }

    #[test]
    fn what_others_cost_is_not_taken_for_its_own() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(16, [1; 3], [1; 3], 0));
        let (mut now, record) = (1_000_000, TABLE.record(number));
        let mut learned = |took_ns, ours| {
            for _ in 0..100 {
                clock.launch(page, &TABLE, number, 0, now);
                clock.idle(page, &TABLE, now, now + took_ns, Some(ours));
                now += 1_000_000;
            }
            record.duration_ns()
        };
        let beside = learned(80_000, 500);
        assert!((38_000..42_000).contains(&beside), "{beside}: nothing better is known");
        let alone = learned(60_000, WHOLE);
        assert!((58_000..62_000).contains(&alone), "{alone}");
        assert_eq!(learned(90_000, 980), alone, "others had it for longer than their slices say");
        let anew = learned(70_000, WHOLE);
        assert!((68_000..72_000).contains(&anew), "{anew}: it changed");
    }

    #[test]
    fn who_was_alone_for_a_moment_goes_on_learning_beside_others() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(17, [1; 3], [1; 3], 0));
        let (mut now, record) = (1_000_000, TABLE.record(number));
        let mut learned = |took_ns, ours, times| {
            for _ in 0..times {
                clock.launch(page, &TABLE, number, 0, now);
                clock.idle(page, &TABLE, now, now + took_ns, Some(ours));
                now += 1_000_000;
            }
            record.duration_ns()
        };
        let first = learned(100_000, WHOLE, 3);
        assert!(first < 50_000, "{first}: three runs are too few");
        let beside = learned(200_000, 500, 100);
        assert!((95_000..105_000).contains(&beside), "{beside}");
    }

    #[test]
    fn gaps_between_kernels_are_learned() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(12, [1; 3], [1; 3], 0));
        TABLE.record(number).measure(12_000);
        let mut now = 1_000_000;
        for _ in 0..100 {
            clock.launch(page, &TABLE, number, 0, now);
            now += 25_000;
        }
        let gap = page.gap_ns.load(Relaxed);
        assert!((12_000..=13_000).contains(&gap), "{gap}");
    }

    #[test]
    fn only_a_sync_of_everything_is_the_end() {
        let clock = Clock::new();
        let page = page();
        let number = TABLE.find(kernel_key(13, [1; 3], [1; 3], 0));
        clock.launch(page, &TABLE, number, 7, 1_000_000);
        assert!(clock.is_covered_by(7, 1_000_000) && !clock.is_covered_by(8, 1_000_000));
        clock.launch(page, &TABLE, number, 8, 1_000_000);
        assert!(!clock.is_covered_by(7, 1_000_000) && !clock.is_covered_by(8, 1_000_000));
        clock.idle(page, &TABLE, 1_000_000, 2_000_000, Some(WHOLE));
        assert!(clock.is_covered_by(8, 1_000_000));
    }

    #[test]
    fn who_never_waits_is_not_busy_for_ever() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(15, [1; 3], [1; 3], 0));
        TABLE.record(number).measure(100_000_000);
        for _ in 0..100 {
            clock.launch(page, &TABLE, number, 7, 1_000_000);
        }
        assert_eq!(page.busy_until_ns.load(Relaxed), 1_000_000 + AHEAD_MAX_NS);
        assert_eq!(page.charged_ns.load(Relaxed), 10_000_000_000, "it is charged for all of it");
    }

    #[test]
    fn a_stall_ends_a_burst_that_nobody_synced() {
        let (clock, page) = (Clock::new(), page());
        let number = TABLE.find(kernel_key(14, [1; 3], [1; 3], 0));
        clock.launch(page, &TABLE, number, 7, 1_000_000);
        clock.launch(page, &TABLE, number, 7, 900_000_000);
        assert_eq!(page.bursts.load(Relaxed), 1);
        assert_eq!(page.burst_since_ns.load(Relaxed), 900_000_000);
        assert!(page.last_burst_ns.load(Relaxed) < 10_000);
    }
}
