//! What lies where in the two pages between a tenant's process and the node's daemon.
//!
//! Invariants:
//! 1. A page has one writer: the process writes its [`TenantPage`], the daemon writes the [`ControlPage`]. The daemon
//!    writes a tenant's page only before it has handed it out and after the process is gone.
//! 2. Every field is an atomic, so every bit pattern is a value and a reader tears nothing smaller than a page. What
//!    belongs together and must not be torn is one word.
//! 3. A change of layout or meaning is a new [`VERSION`]; the assertions below hold the layout still until then.
//!
//! What they do not cover: a process may write rubbish into its own page. Readers take [`view`](crate::view)s, which
//! clamp; decisions between tenants rest on what the daemon wrote, never on what a tenant says its own rank is.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use share_core::{BUDGET_NS, LEASE, NO_LIMIT};
#[cfg(not(loom))]
use std::mem::offset_of;

/// "WEFT" in memory.
pub const MAGIC: u32 = u32::from_le_bytes(*b"WEFT");
/// Of the pages and the messages together: a shim and a daemon that differ refuse each other.
pub const VERSION: u32 = 6;
/// How large a page is.
pub const PAGE_BYTES: usize = 4096;
/// How many processes may use one GPU at a time.
pub const SLOTS: usize = 64;

/// [`TenantPage::state`]: nobody is here.
pub const STATE_FREE: u32 = 0;
/// [`TenantPage::state`]: a process writes this page.
pub const STATE_LIVE: u32 = 1;

/// [`ControlPage::gate`]: best-effort and standard launches wait.
pub const GATE_HELD: u32 = 1;
/// [`ControlPage::gate`]: what is added at every change, so that no change is missed by somebody who goes to sleep.
pub const GATE_STEP: u32 = 2;

/// In temporal mode, work may be on the GPU for so long after its own clock says that it is done: as long as it may be
/// preempted in one go.
pub const SLICED_NS: u64 = LEASE.most_ns;

/// How many bursts a page remembers: all of a tick, where they take more than an eighth of a millisecond.
pub(crate) const ENDED: usize = 16;

/// One process on one GPU, by itself. One cache line for each purpose: a kernel's launch writes the clock's, which others read at
/// theirs, and no other. A program that does much between its launches finds none of them in its caches.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct TenantPage {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// Which of the GPU's slots this is.
    pub slot: AtomicU32,
    /// A [`Class`](crate::Class), for people who look; rank is in [`ControlPage::above`].
    pub class: AtomicU32,
    /// 0 is the most important of ten.
    pub priority: AtomicU32,
    /// Counts the processes that had this slot.
    pub generation: AtomicU64,
    /// [`STATE_FREE`], or [`STATE_LIVE`] once the rest is true.
    pub state: AtomicU32,
    /// The same for all processes of one tenant, never zero for a live one.
    pub tenant: AtomicU32,
    reserved_identity: [AtomicU64; 3],

    /// When the work that was launched will be done, by the virtual clock (`CLOCK_MONOTONIC`).
    pub busy_until_ns: AtomicU64,
    /// How long nothing is expected to be launched after that.
    pub gap_ns: AtomicU64,
    /// When the burst began that is going on; 0 while idle.
    pub burst_since_ns: AtomicU64,
    /// What was outstanding after the last launch.
    pub outstanding_ns: AtomicU64,
    /// Since when the process has been waiting for all its work to be done; 0 while it is not. It is not done until then,
    /// whatever the virtual clock says.
    pub syncing_since_ns: AtomicU64,
    /// GPU time charged by the virtual clock.
    pub charged_ns: AtomicU64,
    /// Kernels launched one by one.
    pub launches: AtomicU64,
    reserved_clock: AtomicU64,

    /// Graphs launched.
    pub graph_launches: AtomicU64,
    /// Kernels in those graphs.
    pub graph_kernels: AtomicU64,
    /// Times the process waited for the GPU.
    pub syncs: AtomicU64,
    /// Time that launches were held.
    pub waited_ns: AtomicU64,
    /// Launches that were held.
    pub waits: AtomicU64,
    /// Since when a launch has been held; 0 while none is.
    pub waiting_since_ns: AtomicU64,
    reserved_launches: [AtomicU64; 2],

    /// Bursts that ended and were looked at launch by launch.
    pub bursts: AtomicU64,
    /// Their lengths together.
    pub burst_ns_total: AtomicU64,
    /// The length of the last.
    pub last_burst_ns: AtomicU64,
    /// Of all bursts together, the time from the last launch to the end: what was waited for the GPU.
    pub burst_wait_ns_total: AtomicU64,
    /// The GPU time that was charged in them.
    pub burst_work_ns_total: AtomicU64,
    /// Other bursts that ended: launches of which were only counted.
    pub untracked_bursts: AtomicU64,
    /// Their lengths together.
    pub untracked_burst_ns_total: AtomicU64,
    reserved_bursts: AtomicU64,

    /// Bytes of GPU memory in use by this process.
    pub used_bytes: AtomicU64,
    /// The most it was.
    pub peak_bytes: AtomicU64,
    /// Allocations that were refused.
    pub refused: AtomicU64,
    reserved_memory: [AtomicU64; 5],

    /// The entry points that the program resolved through the shim, one bit each, in the shim's order.
    pub hooks: [AtomicU64; 4],
    reserved_hooks: [AtomicU64; 4],

    /// Whether slices can be set: 0 not tried, 1 yes, otherwise the driver's refusal.
    pub slice_capability: AtomicU32,
    /// The slice that was set last, 0 for the driver's own.
    pub slice_us: AtomicU32,
    /// Channel groups seen.
    pub channel_groups: AtomicU32,
    /// Whether kernels can be confined to a part of the SMs: 0 not tried, 1 yes, otherwise the driver's refusal.
    pub space_capability: AtomicU32,
    /// SMs that long kernels are confined to, in thousandths; 0 while they are not.
    pub space_permille: AtomicU32,
    /// Whether what runs can be taken off the GPU: 0 not tried, 1 yes, otherwise the driver's refusal.
    pub preempt_capability: AtomicU32,
    /// Kernels that were confined.
    pub confined: AtomicU64,
    /// Times that the process's work was taken off the GPU.
    pub preemptions: AtomicU64,
    /// Not 0 while it is.
    pub preempted: AtomicU32,
    /// Channels seen.
    pub channels: AtomicU32,
    /// How long it took to take the process's work off the GPU: the longest of late.
    pub leaves_ns: AtomicU64,
    reserved_space: AtomicU64,

    /// Bursts that ended, of both kinds: the next is written to this place of `ended`, modulo its length.
    pub ended_bursts: AtomicU64,
    reserved_ended: [AtomicU64; 7],
    /// Those that ended last.
    pub ended: [EndedBurst; ENDED],

    #[cfg(not(loom))]
    rest: [AtomicU64; 384],
}

/// A burst that ended.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct EndedBurst {
    /// When it began.
    pub since_ns: AtomicU64,
    /// How long it took.
    pub length_ns: AtomicU64,
    /// What was waited for the GPU at its end.
    pub wait_ns: AtomicU64,
    /// The GPU time that was charged in it; 0 where its launches were only counted.
    pub work_ns: AtomicU64,
}

/// What the daemon says to one process on one GPU. A latency tenant's launch reads the first cache line and no other.
#[derive(Debug)]
#[cfg_attr(loom, derive(Default))]
#[repr(C, align(64))]
pub struct ControlPage {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Whose page this is: a process that was told another generation lets go of its pages and attaches again.
    pub generation: AtomicU64,
    /// When the daemon last looked (`CLOCK_MONOTONIC`).
    pub heartbeat_ns: AtomicU64,
    /// What [`TenantPage::charged_ns`] may reach; [`NO_LIMIT`] without a quota.
    pub allowed_ns: AtomicU64,
    /// A [`Class`](crate::Class).
    pub class: AtomicU32,
    /// Counts changes of `memory_limit` and `slice_us`, so that a launch need look at one word only.
    pub revision: AtomicU32,
    /// The slots of all other processes on this GPU, one bit each, so that nobody need look for them.
    pub others: AtomicU64,
    /// A [`SharingMode`](crate::SharingMode).
    pub mode: AtomicU32,
    /// 0 is the most important of ten.
    pub priority: AtomicU32,
    reserved_identity: AtomicU64,

    /// A futex word: [`GATE_HELD`], and a sequence number in the other bits. Changed with [`ControlPage::set_gate`].
    pub gate: AtomicU32,
    reserved_word: AtomicU32,
    /// How much work may be outstanding; only best-effort tenants are held to it. 0 means [`BUDGET_NS`](share_core::BUDGET_NS).
    pub budget_ns: AtomicU64,
    /// The slots whose tenants are more important than this one, one bit each: launches yield to their bursts.
    pub above: AtomicU64,
    /// The slots of other processes of the same tenant, one bit each: they share the memory limit.
    pub siblings: AtomicU64,
    /// When somebody more important is expected to need the GPU: from then on.
    pub reserved_from_ns: AtomicU64,
    /// And until then; 0 for nobody.
    pub reserved_until_ns: AtomicU64,
    reserved_gate: [AtomicU64; 2],

    /// Bytes that the tenant's processes on this GPU may use together; [`NO_LIMIT`] for none.
    pub memory_limit: AtomicU64,
    /// What the tenant is told the GPU has; 0 for what it has.
    pub memory_total: AtomicU64,
    /// The slice to set on the process's channel groups; 0 for the driver's own.
    pub slice_us: AtomicU32,
    /// The share asked for, in thousandths.
    pub request_permille: AtomicU32,
    /// The share not to be passed, in thousandths.
    pub limit_permille: AtomicU32,
    /// SMs that long kernels may use, in thousandths; 0 for all.
    pub space_permille: AtomicU32,
    /// An [`Admission`](crate::Admission).
    pub admission: AtomicU32,
    /// Not 0: they may use no more even while nobody else needs the GPU.
    pub space_always: AtomicU32,
    reserved_limits: [AtomicU64; 3],

    #[cfg(not(loom))]
    rest: [AtomicU64; 488],
}

impl EndedBurst {
    fn write(&self, since_ns: u64, length_ns: u64, wait_ns: u64, work_ns: u64) {
        self.since_ns.store(since_ns, Ordering::Relaxed);
        self.length_ns.store(length_ns, Ordering::Relaxed);
        self.wait_ns.store(wait_ns, Ordering::Relaxed);
        self.work_ns.store(work_ns, Ordering::Relaxed);
    }
}

impl TenantPage {
    /// A burst ended. Only the process calls it, one thread at a time; where two do, one burst may be lost or torn.
    pub fn burst_ended(&self, since_ns: u64, length_ns: u64, wait_ns: u64, work_ns: u64) {
        let number = self.ended_bursts.load(Ordering::Relaxed);
        self.ended[number as usize % ENDED].write(since_ns, length_ns, wait_ns, work_ns);
        self.ended_bursts.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Whoever reads the page sees a process of this tenant that has done nothing yet. The process calls it once, after
    /// it was given the page.
    pub fn occupy(&self, pid: u32, slot: u32, generation: u64, tenant: u32) {
        self.clear();
        self.version.store(VERSION, Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.tenant.store(tenant, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Relaxed);
        self.state.store(STATE_LIVE, Ordering::Release);
    }

    /// Nobody is here. The daemon calls it once the process is gone, and before the page is handed out.
    pub fn clear(&self) {
        self.state.store(STATE_FREE, Ordering::Release);
        self.magic.store(0, Ordering::Relaxed);
        let clock = [&self.busy_until_ns, &self.gap_ns, &self.burst_since_ns, &self.outstanding_ns];
        let launches = [&self.launches, &self.graph_launches, &self.graph_kernels, &self.syncs];
        let time = [&self.charged_ns, &self.waited_ns, &self.waits, &self.waiting_since_ns];
        let bursts = [&self.bursts, &self.burst_ns_total, &self.last_burst_ns, &self.generation];
        let memory = [&self.used_bytes, &self.peak_bytes, &self.refused, &self.syncing_since_ns];
        let more = [&self.burst_wait_ns_total, &self.burst_work_ns_total, &self.confined, &self.preemptions];
        let untracked = [&self.untracked_bursts, &self.untracked_burst_ns_total, &self.ended_bursts, &self.leaves_ns];
        for word in
            clock.iter().chain(&launches).chain(&time).chain(&bursts).chain(&memory).chain(&more).chain(&untracked)
        {
            word.store(0, Ordering::Relaxed);
        }
        for word in &self.hooks {
            word.store(0, Ordering::Relaxed);
        }
        for burst in &self.ended {
            burst.write(0, 0, 0, 0);
        }
        let words = [&self.pid, &self.slot, &self.class, &self.priority, &self.tenant];
        let slices = [&self.slice_capability, &self.slice_us, &self.channel_groups];
        let space = [&self.space_capability, &self.space_permille];
        let preemption = [&self.preempt_capability, &self.preempted, &self.channels];
        for word in words.iter().chain(&slices).chain(&space).chain(&preemption) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl ControlPage {
    /// A process of this generation may do as it likes. The daemon writes this before it hands the page out.
    pub fn open_for(&self, generation: u64, now_ns: u64) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.class.store(0, Ordering::Relaxed);
        self.priority.store(0, Ordering::Relaxed);
        self.mode.store(0, Ordering::Relaxed);
        self.allowed_ns.store(NO_LIMIT, Ordering::Relaxed);
        self.budget_ns.store(BUDGET_NS, Ordering::Relaxed);
        self.above.store(0, Ordering::Relaxed);
        self.siblings.store(0, Ordering::Relaxed);
        self.reserved_from_ns.store(0, Ordering::Relaxed);
        self.reserved_until_ns.store(0, Ordering::Relaxed);
        self.others.store(0, Ordering::Relaxed);
        self.memory_limit.store(NO_LIMIT, Ordering::Relaxed);
        self.memory_total.store(0, Ordering::Relaxed);
        self.slice_us.store(0, Ordering::Relaxed);
        self.space_permille.store(0, Ordering::Relaxed);
        self.admission.store(0, Ordering::Relaxed);
        self.space_always.store(0, Ordering::Relaxed);
        self.request_permille.store(0, Ordering::Relaxed);
        self.limit_permille.store(1000, Ordering::Relaxed);
        self.heartbeat_ns.store(now_ns, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.set_gate(false);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Holds launches, or lets them go, and wakes those that wait. Also to be called after any change that somebody may
    /// wait for: a larger `allowed_ns` is seen at once this way, and within 1 ms without.
    pub fn set_gate(&self, held: bool) {
        let next = (self.gate.load(Ordering::Relaxed) & !GATE_HELD).wrapping_add(GATE_STEP);
        self.gate.store(next | if held { GATE_HELD } else { 0 }, Ordering::Release);
        crate::futex::wake(&self.gate);
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TenantPage>() == PAGE_BYTES && align_of::<TenantPage>() == 64);
    assert!(offset_of!(TenantPage, generation) == 24 && offset_of!(TenantPage, state) == 32);
    assert!(offset_of!(TenantPage, busy_until_ns) == 64);
    assert!(offset_of!(TenantPage, charged_ns) == 104 && offset_of!(TenantPage, launches) == 112);
    assert!(offset_of!(TenantPage, graph_launches) == 128);
    assert!(offset_of!(TenantPage, bursts) == 192);
    assert!(offset_of!(TenantPage, used_bytes) == 256);
    assert!(offset_of!(TenantPage, hooks) == 320);
    assert!(offset_of!(TenantPage, slice_capability) == 384);
    assert!(offset_of!(TenantPage, preempt_capability) == 404 && offset_of!(TenantPage, channels) == 428);
    assert!(offset_of!(TenantPage, ended_bursts) == 448 && offset_of!(TenantPage, ended) == 512);
    assert!(offset_of!(TenantPage, rest) == 1024);

    assert!(size_of::<ControlPage>() == PAGE_BYTES && align_of::<ControlPage>() == 64);
    assert!(offset_of!(ControlPage, generation) == 8 && offset_of!(ControlPage, heartbeat_ns) == 16);
    assert!(offset_of!(ControlPage, allowed_ns) == 24 && offset_of!(ControlPage, revision) == 36);
    assert!(offset_of!(ControlPage, others) == 40 && offset_of!(ControlPage, mode) == 48);
    assert!(offset_of!(ControlPage, gate) == 64 && offset_of!(ControlPage, above) == 80);
    assert!(offset_of!(ControlPage, memory_limit) == 128 && offset_of!(ControlPage, limit_permille) == 152);
    assert!(offset_of!(ControlPage, space_permille) == 156 && offset_of!(TenantPage, confined) == 408);
    assert!(offset_of!(ControlPage, rest) == 192);
};
