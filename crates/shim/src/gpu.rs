//! The GPUs that this process uses: for each its pages, its virtual clock, its memory and its connection.
//!
//! Which of them a call is about is for [`current`](crate::current) to find out.

#![deny(unsafe_code)]

use crate::bits::bits;
use crate::clock::Clock;
use crate::hot::HOT;
use crate::link::Link;
use crate::notes::Progress;
use crate::samples::Samples;
use crate::sm_cap::SmCap;
use share_core::{Patience, is_syncing};
use shm::{NO_LIMIT, PageWindow, SLICED_NS, STATE_LIVE, Seen, SharingMode, TenantPage};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// GPUs of a process that are shared; on others nothing is limited.
pub(crate) const GPUS: usize = 16;

/// One GPU. What a launch reads comes first, in few cache lines.
#[repr(C, align(64))]
pub(crate) struct Gpu {
    pub(crate) clock: Clock,
    pub(crate) window: OnceLock<Option<PageWindow>>,
    pub(crate) index: usize,
    /// The revision of the control page whose slice was applied.
    pub(crate) revision: AtomicU32,
    pub(crate) link: Link,
    pub(crate) samples: Samples,
    pub(crate) sm_cap: SmCap,
    pub(crate) notes: Progress,
    /// Bytes in use. The page shows it; this is what counts, because pages are replaced.
    used: AtomicU64,
    /// The primary context, and how many hold it.
    pub(crate) primary: AtomicUsize,
    pub(crate) primary_holders: AtomicU32,
    pub(crate) in_use: AtomicBool,
    /// How often others were preempted, all in all, when the GPU was last seen to be idle.
    preemptions: AtomicU64,
    /// For how long this process's work was preempted so far, as far as that is over.
    pub(crate) preempted_ns: AtomicU64,
}

static ALL: [Gpu; GPUS] = {
    let mut index = 0;
    let mut all = [const { Gpu::new() }; GPUS];
    while index < GPUS {
        all[index].index = index;
        index += 1;
    }
    all
};

impl Gpu {
    const fn new() -> Gpu {
        Gpu {
            clock: Clock::new(),
            window: OnceLock::new(),
            index: 0,
            revision: AtomicU32::new(0),
            link: Link::new(),
            samples: Samples::new(),
            sm_cap: SmCap::new(),
            notes: Progress::new(),
            used: AtomicU64::new(0),
            primary: AtomicUsize::new(0),
            primary_holders: AtomicU32::new(0),
            in_use: AtomicBool::new(false),
            preemptions: AtomicU64::new(0),
            preempted_ns: AtomicU64::new(0),
        }
    }

    /// Its pages; `None` where the kernel had no addresses left for them.
    #[inline]
    pub(crate) fn window(&self) -> Option<&PageWindow> {
        self.window.get()?.as_ref()
    }

    /// Writes untracked launches into the page.
    pub(crate) fn publish_untracked(&self) {
        if let Some(window) = self.window() {
            self.clock.untracked.publish(window.own(), &self.clock.tracking);
        }
    }

    /// Bytes that this process uses.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// What the tenant's processes may use together.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.control(|control| control.memory_limit).unwrap_or(NO_LIMIT)
    }

    /// What the tenant is told the GPU has; `None` for what it has.
    pub(crate) fn memory_total(&self) -> Option<u64> {
        let (total, limit) = self.control(|control| (control.memory_total, control.memory_limit))?;
        match (total, limit) {
            (0, NO_LIMIT) => None,
            (0, limit) => Some(limit),
            (total, limit) => Some(total.min(limit)),
        }
    }

    /// Bytes that all processes of the tenant use.
    pub(crate) fn tenant_used(&self) -> u64 {
        let others = self.control(|control| control.siblings).unwrap_or(0);
        let Some(window) = self.window() else { return self.used() };
        let own = window.own().slot.load(Ordering::Relaxed);
        let others = bits(others).filter(|slot| *slot != own as usize).map(|slot| window.slot(slot));
        let live = others.filter(|page| page.half(|page| &page.state) == STATE_LIVE);
        live.fold(self.used(), |sum, page| sum.saturating_add(page.word(|page| &page.used_bytes)))
    }

    /// Whether our kernels run at the same time as those of others.
    pub(crate) fn is_spatial(&self) -> bool {
        let mode = self.window().map(|window| window.control().half(|page| &page.mode));
        mode.is_some_and(|mode| SharingMode::from_word(mode) == SharingMode::Spatial)
    }

    /// Whether no other process had the GPU since the last call. A process that is preempted at this moment may have had it
    /// just before, and in temporal mode work is not done when its own clock says so.
    pub(crate) fn was_ours(&self, now_ns: u64) -> bool {
        let (mut busy, mut preemptions, temporal) = (false, 0u64, !self.is_spatial());
        for page in self.others() {
            preemptions = preemptions.wrapping_add(page.word(|page| &page.preemptions));
            let sliced = temporal && page.half(|page| &page.channels) > 0;
            let patience_ns = if sliced { SLICED_NS } else { Patience::USUAL.idle_ns };
            busy |= is_busy(&page, now_ns, patience_ns);
        }
        let nobody_was_preempted_anew = self.preemptions.swap(preemptions, Ordering::Relaxed) == preemptions;
        nobody_was_preempted_anew && !busy
    }

    /// The sum of the time slices of other tenants that have work on the GPU; 0 when there are none, and in spatial
    /// mode.
    pub(crate) fn others_slices_ns(&self, now_ns: u64) -> u64 {
        if self.is_spatial() {
            return 0;
        }
        let busy = self.others().filter(|page| is_busy(page, now_ns, Patience::USUAL.idle_ns));
        busy.map(|page| slice_ns(page.half(|page| &page.slice_us))).fold(0, u64::saturating_add)
    }

    /// The pages of everybody else who is there.
    fn others(&self) -> impl Iterator<Item = Seen<'_, TenantPage>> {
        let others = self.window().into_iter().flat_map(|window| {
            let others = window.control().word(|page| &page.others);
            bits(others).map(|slot| window.slot(slot))
        });
        others.filter(|page| page.half(|page| &page.state) == STATE_LIVE)
    }

    /// How long our work runs before others get the GPU.
    pub(crate) fn slice_ns(&self) -> u64 {
        slice_ns(self.window().map_or(0, |window| window.own().slice_us.load(Ordering::Relaxed)))
    }

    fn control<T>(&self, choose: impl Fn(&shm::Control) -> T) -> Option<T> {
        if !self.link.attached() {
            return None;
        }
        self.window()?.control().read().as_ref().map(choose)
    }

    /// Takes bytes, unless that is over the limit. It takes them first and checks then, so that two processes that ask for
    /// the last bytes at once do not both get them.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes);
        if self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_err() {
            self.refuse();
            return false;
        }
        self.show();
        let limit = self.memory_limit();
        if limit != NO_LIMIT && self.tenant_used() > limit {
            self.give_back(bytes);
            self.refuse();
            return false;
        }
        if let Some(window) = self.window() {
            window.own().peak_bytes.fetch_max(self.used(), Ordering::Relaxed);
        }
        true
    }

    fn refuse(&self) {
        if let Some(window) = self.window() {
            window.own().refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives bytes back that were taken.
    pub(crate) fn give_back(&self, bytes: u64) {
        let subtract = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, subtract);
        self.show();
    }

    /// Writes what is used into the page. Whoever changes it meanwhile writes it again, or makes this do so.
    pub(crate) fn show(&self) {
        let Some(window) = self.window() else { return };
        loop {
            let used = self.used();
            window.own().used_bytes.store(used, Ordering::SeqCst);
            if self.used() == used {
                return;
            }
        }
    }

    /// In a child after `fork`: the GPU is not in use here, and the parent's pages are not ours.
    pub(crate) fn forget(&self) {
        if let Some(window) = self.window() {
            window.empty();
        }
        self.link.forget();
        self.samples.forget();
        self.sm_cap.forget();
        self.clock.forget();
        self.clock.forget_untracked();
        self.used.store(0, Ordering::SeqCst);
        self.primary_holders.store(0, Ordering::Relaxed);
        self.in_use.store(false, Ordering::Relaxed);
    }
}

/// Whether it is the only one in use.
pub(crate) fn is_only(gpu: &Gpu) -> bool {
    HOT.only.load(Ordering::Acquire) == gpu.index + 1
}

/// A GPU that is in use, by its UUID.
pub(crate) fn with_uuid(uuid: [u8; 16]) -> Option<&'static Gpu> {
    in_use().find(|gpu| gpu.link.uuid() == Some(uuid))
}

/// A GPU by its index here.
#[inline]
pub(crate) fn at(index: usize) -> Option<&'static Gpu> {
    ALL.get(index)
}

/// All that are in use.
pub(crate) fn in_use() -> impl Iterator<Item = &'static Gpu> {
    ALL.iter().filter(|gpu| gpu.in_use.load(Ordering::Acquire))
}

/// All that there can be.
pub(crate) fn all() -> impl Iterator<Item = &'static Gpu> {
    ALL.iter()
}

/// Whether a process has work on the GPU, as its page says. `patience_ns`: how long after its own clock's prediction its
/// work may still run.
fn is_busy(page: &Seen<'_, TenantPage>, now_ns: u64, patience_ns: u64) -> bool {
    page.half(|page| &page.preempted) == 0
        && page.word(|page| &page.burst_since_ns) != 0
        && (page.word(|page| &page.busy_until_ns).saturating_add(patience_ns) > now_ns
            || is_syncing(page.word(|page| &page.syncing_since_ns), now_ns, &Patience::USUAL))
}

/// The time slice in a page; 0 is the driver's default.
fn slice_ns(microseconds: u32) -> u64 {
    if microseconds == 0 { 2_000_000 } else { u64::from(microseconds) * 1000 }
}
