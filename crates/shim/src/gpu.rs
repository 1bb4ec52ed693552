//! The GPUs that this process uses: for each its pages, its virtual clock, its memory and its connection.
//!
//! A GPU is found by its ordinal in this process and known to the daemon by its UUID. Almost every process uses one; as
//! long as that is so, a launch need not ask the driver which one it is on.

#![deny(unsafe_code)]

use crate::attach::{self, Link};
use crate::clock::Clock;
use crate::identity::Table;
use crate::ledger::Ledger;
use crate::lock::Lock;
use crate::notes::Telling;
use crate::sample::Samples;
use crate::space::Space;
use crate::ticks::Ticks;
use crate::types::{Device, Stream};
use crate::{fork, real, unseen};
use share_core::{Patience, is_syncing};
use shm::{Mode, NO_LIMIT, PageWindow, SLICED_NS, STATE_LIVE, Seen, TenantPage};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Streams up to this are default ones, of whatever context is current.
const DEFAULT_STREAMS: usize = 2;
/// GPUs of a process that are shared; on others nothing is limited.
pub(crate) const GPUS: usize = 16;

/// One GPU. What a launch looks at comes first, in few cache lines.
#[repr(C, align(64))]
pub(crate) struct Gpu {
    pub(crate) clock: Clock,
    window: OnceLock<Option<PageWindow>>,
    pub(crate) index: usize,
    /// The revision of the control page whose slice was applied.
    pub(crate) revision: AtomicU32,
    pub(crate) link: Link,
    pub(crate) samples: Samples,
    pub(crate) space: Space,
    pub(crate) telling: Telling,
    /// Bytes in use. The page shows it; this is what counts, because pages are replaced.
    used: AtomicU64,
    /// The primary context, and how many hold it.
    pub(crate) primary: AtomicUsize,
    pub(crate) primary_holders: AtomicU32,
    in_use: AtomicBool,
    /// How often others were preempted, all in all, when the GPU was last seen to be idle.
    preemptions: AtomicU64,
    /// For how long this process's work was preempted so far, as far as that is over.
    pub(crate) preempted_ns: AtomicU64,
}

/// What is known of kernels and graphs, on whatever GPU.
pub(crate) static IDENTITIES: Table = Table::new();
/// What memory the process has.
pub(crate) static LEDGER: Lock<Ledger> = Lock::new(Ledger::new());

static ALL: [Gpu; GPUS] = {
    let mut index = 0;
    let mut all = [const { Gpu::new() }; GPUS];
    while index < GPUS {
        all[index].index = index;
        index += 1;
    }
    all
};

/// What is looked at before a GPU is known, in one cache line.
#[repr(C, align(64))]
struct First {
    /// Which GPU is in use, if it is one: its index + 1; else [`NONE`] or [`SEVERAL`].
    only: AtomicUsize,
    captures: AtomicU32,
    ticks: Ticks,
}

static FIRST: First = First { only: AtomicUsize::new(NONE), captures: AtomicU32::new(0), ticks: Ticks::new() };
const NONE: usize = 0;
const SEVERAL: usize = usize::MAX;

/// The clock of launches.
#[inline]
pub(crate) fn ticks() -> &'static Ticks {
    &FIRST.ticks
}

/// How many streams are captured.
#[inline]
pub(crate) fn captures() -> &'static AtomicU32 {
    &FIRST.captures
}

impl Gpu {
    const fn new() -> Gpu {
        Gpu {
            clock: Clock::new(),
            window: OnceLock::new(),
            index: 0,
            revision: AtomicU32::new(0),
            link: Link::new(),
            samples: Samples::new(),
            space: Space::new(),
            telling: Telling::new(),
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

    /// Has the page know of all launches.
    pub(crate) fn tell_unseen(&self) {
        if let Some(window) = self.window() {
            self.clock.unseen.tell(window.own(), &self.clock.looks);
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

    /// Whether our kernels run beside those of others instead of in turns with them.
    pub(crate) fn shares_space(&self) -> bool {
        let mode = self.window().map(|window| window.control().half(|page| &page.mode));
        mode.is_some_and(|mode| Mode::from_word(mode) == Mode::Space)
    }

    /// Whether nobody else had the GPU since this was last asked: who is preempted now may have had it a moment ago, and
    /// who takes turns is not done when its own clock says so.
    pub(crate) fn was_ours(&self, now_ns: u64) -> bool {
        let (mut busy, mut preemptions, in_turns) = (false, 0u64, !self.shares_space());
        for page in self.others() {
            preemptions = preemptions.wrapping_add(page.word(|page| &page.preemptions));
            let sliced = in_turns && page.half(|page| &page.channels) > 0;
            let patience_ns = if sliced { SLICED_NS } else { Patience::USUAL.idle_ns };
            busy |= is_busy(&page, now_ns, patience_ns);
        }
        let nobody_was_preempted_anew = self.preemptions.swap(preemptions, Ordering::Relaxed) == preemptions;
        nobody_was_preempted_anew && !busy
    }

    /// The slices of other tenants that have work on the GPU, together, where they are between ours; 0 when it is all
    /// ours.
    pub(crate) fn others_slices_ns(&self, now_ns: u64) -> u64 {
        if self.shares_space() {
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

    /// Takes bytes, unless that is over the limit. Takes first and looks then, so that of two processes that ask for the
    /// last bytes at once not both get them.
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
        self.space.forget();
        self.clock.forget();
        self.clock.forget_unseen();
        self.used.store(0, Ordering::SeqCst);
        self.primary_holders.store(0, Ordering::Relaxed);
        self.in_use.store(false, Ordering::Relaxed);
    }
}

/// The GPU of the calling thread, if it has one.
#[inline]
pub(crate) fn current() -> Option<&'static Gpu> {
    match FIRST.only.load(Ordering::Acquire) {
        NONE | SEVERAL => ask(),
        only => ALL.get(only - 1),
    }
}

/// The GPU of a stream: the calling thread's for a default stream, and the stream's own for others, whatever is current.
#[inline]
pub(crate) fn of_stream(stream: Stream) -> Option<&'static Gpu> {
    match FIRST.only.load(Ordering::Acquire) {
        NONE => ask(),
        SEVERAL => ask_of(stream),
        only => ALL.get(only - 1),
    }
}

#[cold]
fn ask() -> Option<&'static Gpu> {
    of(real::current_device()?)
}

#[cold]
fn ask_of(stream: Stream) -> Option<&'static Gpu> {
    if stream.0 <= DEFAULT_STREAMS {
        return ask();
    }
    // A driver that cannot be asked is older than 12.8.
    real::device_of(stream).map_or_else(ask, of)
}

/// A GPU by its ordinal. The first time, the daemon is asked for its pages; whoever comes meanwhile waits for them too, so
/// that nothing goes uncounted and past the limits.
pub(crate) fn of(device: Device) -> Option<&'static Gpu> {
    let gpu = ALL.get(usize::try_from(device.0).ok()?)?;
    if !gpu.in_use.load(Ordering::Acquire) {
        fork::watch();
        gpu.window.get_or_init(|| PageWindow::reserve().ok());
        attach::first(gpu, device);
        let only = FIRST.only.compare_exchange(NONE, gpu.index + 1, Ordering::AcqRel, Ordering::Acquire);
        if only.is_err_and(|only| only != gpu.index + 1) {
            FIRST.only.store(SEVERAL, Ordering::Release);
            unseen::end();
        }
        gpu.in_use.store(true, Ordering::Release);
    }
    Some(gpu)
}

/// Whether it is the only one in use.
pub(crate) fn is_only(gpu: &Gpu) -> bool {
    FIRST.only.load(Ordering::Acquire) == gpu.index + 1
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

/// In a child after `fork`: no GPU is in use, nor about to be.
pub(crate) fn forget_all() {
    for gpu in &ALL {
        gpu.forget();
    }
    FIRST.only.store(NONE, Ordering::Release);
    unseen::end();
    LEDGER.force_open();
    // What is in it may be half written; what it refers to is the parent's.
    std::mem::forget(std::mem::replace(&mut *LEDGER.lock(), Ledger::new()));
}

/// Whether somebody has work on the GPU, as its page says. `patience_ns`: for how long it may not be done after its own
/// clock says that it is.
fn is_busy(page: &Seen<'_, TenantPage>, now_ns: u64, patience_ns: u64) -> bool {
    page.half(|page| &page.preempted) == 0
        && page.word(|page| &page.burst_since_ns) != 0
        && (page.word(|page| &page.busy_until_ns).saturating_add(patience_ns) > now_ns
            || is_syncing(page.word(|page| &page.syncing_since_ns), now_ns, &Patience::USUAL))
}

/// A slice as pages say it; 0 is the driver's own, which was seen to be 2 ms.
fn slice_ns(microseconds: u32) -> u64 {
    if microseconds == 0 { 2_000_000 } else { u64::from(microseconds) * 1000 }
}

/// The numbers of the bits that are set.
pub(crate) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}
