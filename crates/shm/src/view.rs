//! Pages as plain values, for whoever does not write them.
//!
//! Any bytes can be read: a page that is not one, or of another version, or free, is `None`; numbers that name nothing
//! become the value that grants the least.

use crate::atomic::{AtomicU64, Ordering};
use crate::page::{ControlPage, ENDED, GATE_HELD, MAGIC, SLOTS, STATE_LIVE, TenantPage, VERSION};
use share_core::{Admission, BUDGET_NS, Class, Limits, NO_LIMIT, SharingMode};

/// The least important priority.
const PRIORITY_LAST: u32 = 9;

/// What a [`TenantPage`] said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of the page with this name")]
pub struct Tenant {
    pub pid: u32,
    pub slot: u32,
    pub tenant: u32,
    pub class: Class,
    pub priority: u32,
    pub generation: u64,
    pub busy_until_ns: u64,
    pub gap_ns: u64,
    pub burst_since_ns: u64,
    pub outstanding_ns: u64,
    pub syncing_since_ns: u64,
    pub launches: u64,
    pub graph_launches: u64,
    pub graph_kernels: u64,
    pub syncs: u64,
    pub charged_ns: u64,
    pub waited_ns: u64,
    pub waits: u64,
    pub waiting_since_ns: u64,
    pub bursts: u64,
    pub burst_ns_total: u64,
    pub last_burst_ns: u64,
    pub burst_wait_ns_total: u64,
    pub burst_work_ns_total: u64,
    pub untracked_bursts: u64,
    pub untracked_burst_ns_total: u64,
    pub used_bytes: u64,
    pub peak_bytes: u64,
    pub refused: u64,
    pub hooks: [u64; 4],
    pub slice_capability: u32,
    pub slice_us: u32,
    pub channel_groups: u32,
    pub space_capability: u32,
    pub space_permille: u32,
    pub confined: u64,
    pub preempt_capability: u32,
    pub preemptions: u64,
    pub preempted: bool,
    pub channels: u32,
    pub leaves_ns: u64,
    pub ended_bursts: u64,
    pub ended: [Ended; ENDED],
}

/// A burst that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of the page with this name")]
pub struct Ended {
    pub since_ns: u64,
    pub length_ns: u64,
    pub wait_ns: u64,
    pub work_ns: u64,
}

impl Tenant {
    /// The bursts that ended after the first so many, as far as they are remembered.
    pub fn ended_since(&self, seen: u64) -> impl Iterator<Item = &Ended> {
        let from = seen.max(self.ended_bursts.saturating_sub(ENDED as u64));
        (from..self.ended_bursts).map(|number| &self.ended[number as usize % ENDED])
    }
}

impl TenantPage {
    /// What the page says, if a process is there. Words are read one by one, so counters may be of slightly different
    /// moments.
    pub fn read(&self) -> Option<Tenant> {
        let live = self.state.load(Ordering::Acquire) == STATE_LIVE;
        let ours = self.magic.load(Ordering::Relaxed) == MAGIC && self.version.load(Ordering::Relaxed) == VERSION;
        let slot = self.slot.load(Ordering::Relaxed);
        if !live || !ours || slot as usize >= SLOTS {
            return None;
        }
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Some(Tenant {
            pid: self.pid.load(Ordering::Relaxed),
            slot,
            tenant: self.tenant.load(Ordering::Relaxed),
            class: Class::from_word(self.class.load(Ordering::Relaxed)),
            priority: self.priority.load(Ordering::Relaxed).min(PRIORITY_LAST),
            generation: word(&self.generation),
            busy_until_ns: word(&self.busy_until_ns),
            gap_ns: word(&self.gap_ns),
            burst_since_ns: word(&self.burst_since_ns),
            outstanding_ns: word(&self.outstanding_ns),
            syncing_since_ns: word(&self.syncing_since_ns),
            launches: word(&self.launches),
            graph_launches: word(&self.graph_launches),
            graph_kernels: word(&self.graph_kernels),
            syncs: word(&self.syncs),
            charged_ns: word(&self.charged_ns),
            waited_ns: word(&self.waited_ns),
            waits: word(&self.waits),
            waiting_since_ns: word(&self.waiting_since_ns),
            bursts: word(&self.bursts),
            burst_ns_total: word(&self.burst_ns_total),
            last_burst_ns: word(&self.last_burst_ns),
            burst_wait_ns_total: word(&self.burst_wait_ns_total),
            burst_work_ns_total: word(&self.burst_work_ns_total),
            untracked_bursts: word(&self.untracked_bursts),
            untracked_burst_ns_total: word(&self.untracked_burst_ns_total),
            used_bytes: word(&self.used_bytes),
            peak_bytes: word(&self.peak_bytes),
            refused: word(&self.refused),
            hooks: self.hooks.each_ref().map(word),
            slice_capability: self.slice_capability.load(Ordering::Relaxed),
            slice_us: self.slice_us.load(Ordering::Relaxed),
            channel_groups: self.channel_groups.load(Ordering::Relaxed),
            space_capability: self.space_capability.load(Ordering::Relaxed),
            space_permille: self.space_permille.load(Ordering::Relaxed).min(1000),
            confined: word(&self.confined),
            preempt_capability: self.preempt_capability.load(Ordering::Relaxed),
            preemptions: word(&self.preemptions),
            preempted: self.preempted.load(Ordering::Relaxed) != 0,
            channels: self.channels.load(Ordering::Relaxed),
            leaves_ns: word(&self.leaves_ns),
            ended_bursts: self.ended_bursts.load(Ordering::Acquire),
            ended: self.ended.each_ref().map(|burst| Ended {
                since_ns: word(&burst.since_ns),
                length_ns: word(&burst.length_ns),
                wait_ns: word(&burst.wait_ns),
                work_ns: word(&burst.work_ns),
            }),
        })
    }
}

/// What a [`ControlPage`] said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of the page with this name")]
pub struct Control {
    pub generation: u64,
    pub heartbeat_ns: u64,
    /// The whole futex word, to wait on.
    pub gate: u32,
    pub held: bool,
    pub class: Class,
    pub priority: u32,
    pub mode: SharingMode,
    pub allowed_ns: u64,
    pub budget_ns: u64,
    pub above: u64,
    pub siblings: u64,
    pub others: u64,
    pub memory_limit: u64,
    pub memory_total: u64,
    pub slice_us: u32,
    pub space_permille: u32,
    pub admission: Admission,
    pub request_permille: u32,
    pub limit_permille: u32,
    pub revision: u32,
    pub reserved_from_ns: u64,
    pub reserved_until_ns: u64,
}

impl Control {
    /// What holds where no daemon ever spoke: everything is allowed.
    pub const UNLIMITED: Control = Control {
        generation: 0,
        heartbeat_ns: 0,
        gate: 0,
        held: false,
        class: Class::Latency,
        priority: 0,
        mode: SharingMode::Temporal,
        allowed_ns: NO_LIMIT,
        budget_ns: BUDGET_NS,
        above: 0,
        siblings: 0,
        others: 0,
        memory_limit: NO_LIMIT,
        memory_total: 0,
        slice_us: 0,
        space_permille: 0,
        admission: Admission::GapFill,
        request_permille: 0,
        limit_permille: 1000,
        revision: 0,
        reserved_from_ns: 0,
        reserved_until_ns: 0,
    };

    /// What decides over a launch.
    #[inline]
    pub fn limits(&self) -> Limits {
        let Control { class, admission, held, allowed_ns, budget_ns, heartbeat_ns, .. } = *self;
        let Control { reserved_from_ns, reserved_until_ns, .. } = *self;
        Limits { class, admission, held, allowed_ns, budget_ns, heartbeat_ns, reserved_from_ns, reserved_until_ns }
    }
}

impl ControlPage {
    /// What the page says, if it is one.
    pub fn read(&self) -> Option<Control> {
        let ours = self.magic.load(Ordering::Acquire) == MAGIC && self.version.load(Ordering::Relaxed) == VERSION;
        if !ours {
            return None;
        }
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let gate = self.gate.load(Ordering::Acquire);
        let budget_ns = word(&self.budget_ns);
        Some(Control {
            generation: word(&self.generation),
            heartbeat_ns: word(&self.heartbeat_ns),
            gate,
            held: gate & GATE_HELD != 0,
            class: Class::from_word(self.class.load(Ordering::Relaxed)),
            priority: self.priority.load(Ordering::Relaxed).min(PRIORITY_LAST),
            mode: SharingMode::from_word(self.mode.load(Ordering::Relaxed)),
            allowed_ns: word(&self.allowed_ns),
            budget_ns: if budget_ns == 0 { BUDGET_NS } else { budget_ns },
            above: word(&self.above),
            siblings: word(&self.siblings),
            others: word(&self.others),
            memory_limit: word(&self.memory_limit),
            memory_total: word(&self.memory_total),
            slice_us: self.slice_us.load(Ordering::Relaxed),
            space_permille: self.space_permille.load(Ordering::Relaxed).min(1000),
            admission: Admission::from_word(self.admission.load(Ordering::Relaxed)),
            request_permille: self.request_permille.load(Ordering::Relaxed).min(1000),
            limit_permille: self.limit_permille.load(Ordering::Relaxed).min(1000),
            revision: self.revision.load(Ordering::Relaxed),
            reserved_from_ns: word(&self.reserved_from_ns),
            reserved_until_ns: word(&self.reserved_until_ns),
        })
    }
}
