//! What one tenant did on one GPU: the sum of its processes' pages, and what the policy decided about it.
//!
//! Invariants:
//! 1. Totals only grow. A process that ends takes nothing back, so a tenant cannot shed what it used by starting over. A
//!    process that was attached before is charged from then on.
//! 2. Pages may hold anything. A counter that runs backwards is ignored, and one tick adds at most [`CHARGE_MAX_NS`] and
//!    the memory of the whole GPU.

use crate::registry::TenantState;
use crate::slot::Seen;
use config::SharingMode;
use policy::sharing::{Action, Admission, Burst, Gate, TenantView, WHOLE};
use policy::{Span, TenantId, Time};
use shm::{Patience, SLICED_NS};
use std::collections::VecDeque;

/// The most GPU time that a page can add in one tick.
const CHARGE_MAX_NS: u64 = 10_000_000_000;
/// How often totals are kept, and how many of them, for rates over the last second.
const MARK_EVERY_NS: u64 = 100_000_000;
const MARKS: usize = 11;
/// A burst that its process does not wait for ends at most so long after its own clock says so.
const STALLED_NS: u64 = Patience::USUAL.sync_ns;

/// Which other tenants had work on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Colocated {
    pub(crate) anybody: bool,
    pub(crate) best_effort: bool,
}

impl Colocated {
    fn and(self, other: Colocated) -> Colocated {
        Colocated { anybody: self.anybody || other.anybody, best_effort: self.best_effort || other.best_effort }
    }
}

/// One tenant on one GPU.
#[derive(Debug)]
pub(crate) struct TenantUsage {
    pub(crate) charged_ns: u64,
    pub(crate) launches: u64,
    pub(crate) refused: u64,
    waited_ns: u64,
    wanted_ns: u64,
    bursts: u64,
    burst_ns: u64,
    /// Bursts that ended in this tick, by process.
    ended: Vec<(u32, shm::Ended)>,
    /// Which others had work since the tick in which a burst last ended.
    colocated: Colocated,
    /// No best-effort work was done during the bursts that ended last.
    undisturbed: bool,
    /// How long bursts wait for the GPU when alone, after their last launch, in thousandths of their GPU time; `None`
    /// while unknown.
    alone_wait_permille: Option<u64>,
    marks: VecDeque<Mark>,
    /// Of this tick.
    pub(crate) processes: u32,
    pub(crate) active: u32,
    pub(crate) used_bytes: u64,
    pub(crate) hooks: [u64; 4],
    pub(crate) channel_groups: u32,
    pub(crate) confined: u64,
    pub(crate) preemptions: u64,
    pub(crate) channels: u32,
    observed: Observation,
    /// What the policy decided.
    pub(crate) allowed: Span,
    pub(crate) held: bool,
    pub(crate) budget: Span,
    pub(crate) admission: Admission,
    pub(crate) slice: Option<Span>,
    pub(crate) sm_cap: u32,
    /// From when until when the GPU must be free for another tenant.
    pub(crate) reserved: (u64, u64),
    pub(crate) memory_limit: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    wanted_ns: u64,
    bursts: u64,
    untracked: u64,
    burst_ns: u64,
    burst_wait_ns: u64,
    burst_work_ns: u64,
    slices: bool,
    preemptible: bool,
    leaves_ns: u64,
    on_gpu: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    charged_ns: u64,
    launches: u64,
    waited_ns: u64,
}

/// The time between two ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// A process that was idle for longer gets no part of its tenant's allowance.
    pub(crate) window_ns: u64,
}

impl TenantUsage {
    pub(crate) fn new() -> TenantUsage {
        TenantUsage {
            charged_ns: 0,
            launches: 0,
            refused: 0,
            waited_ns: 0,
            wanted_ns: 0,
            bursts: 0,
            burst_ns: 0,
            ended: Vec::new(),
            colocated: Colocated::default(),
            undisturbed: false,
            alone_wait_permille: None,
            marks: VecDeque::with_capacity(MARKS),
            processes: 0,
            active: 0,
            used_bytes: 0,
            hooks: [0; 4],
            channel_groups: 0,
            confined: 0,
            preemptions: 0,
            channels: 0,
            observed: Observation::default(),
            allowed: Span::MAX,
            held: false,
            budget: Span::MAX,
            admission: Admission::default(),
            slice: None,
            sm_cap: WHOLE,
            reserved: (0, 0),
            memory_limit: u64::MAX,
        }
    }

    /// Takes over what earlier runs of its program showed of its bursts when alone, unless more is known.
    pub(crate) fn recall(&mut self, wait_permille: Option<u64>) {
        self.alone_wait_permille = self.alone_wait_permille.or(wait_permille);
    }

    /// How long its bursts wait for the GPU when alone, in thousandths of their GPU time.
    pub(crate) fn wait_permille(&self) -> Option<u64> {
        self.alone_wait_permille
    }

    /// A tick begins.
    pub(crate) fn begin(&mut self) {
        (self.processes, self.active, self.used_bytes, self.channel_groups) = (0, 0, 0, 0);
        (self.confined, self.preemptions, self.channels) = (0, 0, 0);
        self.observed = Observation::default();
        self.ended.clear();
    }

    /// Adds the page of one of its processes, if it has written one. `temporal`: it runs in time slices and can be preempted
    /// by others.
    pub(crate) fn read(
        &mut self,
        process: u32,
        page: Option<&shm::Tenant>,
        seen: &mut Seen,
        interval: Interval,
        memory: u64,
        temporal: bool,
    ) {
        self.processes += 1;
        let Some(page) = page else { return };
        let Interval { from_ns, to_ns, .. } = interval;
        let grew = |now: u64, before: &mut u64| {
            let by = now.saturating_sub(*before);
            *before = now.max(*before);
            by
        };
        let charged = grew(page.charged_ns, &mut seen.charged_ns).min(CHARGE_MAX_NS);
        let waited = grew(page.waited_ns, &mut seen.waited_ns).min(CHARGE_MAX_NS);
        let bursts = grew(page.bursts, &mut seen.bursts);
        let is_sound =
            |burst: &&shm::Ended| burst.since_ns.checked_add(burst.length_ns).is_some_and(|end| end <= to_ns);
        let ended = page.ended_since(seen.ended_bursts).filter(is_sound);
        self.ended.extend(ended.map(|burst| (process, *burst)));
        seen.ended_bursts = page.ended_bursts;
        let untracked = grew(page.untracked_bursts, &mut seen.untracked_bursts);
        self.launches =
            self.launches.saturating_add(grew(page.launches.saturating_add(page.graph_launches), &mut seen.launches));
        self.refused = self.refused.saturating_add(grew(page.refused, &mut seen.refused));
        self.charged_ns = self.charged_ns.saturating_add(charged);
        self.waited_ns = self.waited_ns.saturating_add(waited);
        self.observed.bursts = self.observed.bursts.saturating_add(bursts);
        self.observed.untracked = self.observed.untracked.saturating_add(untracked);
        let burst_ns = grew(page.burst_ns_total, &mut seen.burst_ns_total).min(CHARGE_MAX_NS);
        let untracked_ns = grew(page.untracked_burst_ns_total, &mut seen.untracked_burst_ns_total).min(CHARGE_MAX_NS);
        self.observed.burst_ns = self.observed.burst_ns.saturating_add(burst_ns);
        let wait_ns = grew(page.burst_wait_ns_total, &mut seen.burst_wait_ns_total).min(CHARGE_MAX_NS);
        self.observed.burst_wait_ns = self.observed.burst_wait_ns.saturating_add(wait_ns);
        // Capabilities that the driver has not refused so far.
        self.observed.slices |= page.channel_groups > 0 && page.slice_capability <= 1;
        let preemptible = page.channels > 0 && page.preempt_capability <= 1;
        self.observed.preemptible |= preemptible;
        self.observed.leaves_ns = self.observed.leaves_ns.max(page.leaves_ns);
        let work_ns = grew(page.burst_work_ns_total, &mut seen.burst_work_ns_total).min(CHARGE_MAX_NS);
        self.observed.burst_work_ns = self.observed.burst_work_ns.saturating_add(work_ns);
        seen.used_bytes = page.used_bytes.min(memory);
        self.used_bytes = self.used_bytes.saturating_add(seen.used_bytes);
        self.channel_groups = self.channel_groups.saturating_add(page.channel_groups.min(1 << 16));
        self.confined = self.confined.saturating_add(page.confined);
        self.preemptions = self.preemptions.saturating_add(page.preemptions);
        self.channels = self.channels.saturating_add(page.channels.min(1 << 16));
        for (all, its) in self.hooks.iter_mut().zip(page.hooks) {
            *all |= its;
        }

        // Work may run for many ticks, and longer than its own clock says while its process waits for it. A process whose
        // preemption shows in its page counts as running until then.
        let sliced = temporal && preemptible;
        let stalled_ns = if sliced { SLICED_NS } else { STALLED_NS };
        let is_not_done = sliced && page.burst_since_ns != 0 && page.busy_until_ns.saturating_add(stalled_ns) > from_ns;
        let works = charged > 0 || page.busy_until_ns > from_ns || page.syncing_since_ns != 0 || is_not_done;
        // Preempted at both ends of the tick and not enabled in between.
        let off = page.preempted && seen.preempted && page.preemptions == seen.preemptions;
        (seen.preempted, seen.preemptions) = (page.preempted, page.preemptions);
        self.observed.on_gpu |= works && !off;

        // Launched work covers the time until it is done; a launch that waits covers the time it waits. Colocated work is
        // done later than its own clock says, which a burst that goes on shows. Only the part of a burst within this tick
        // counts: short bursts would seem twice as long otherwise. Untracked launches are charged when their burst ends,
        // less what was counted as it went on.
        let length = to_ns - from_ns;
        let counted = seen.burst_counted_ns;
        let ends = bursts > 0 || untracked > 0;
        let charged = if untracked > 0 { charged.saturating_sub(counted) } else { charged };
        let before = std::mem::replace(&mut seen.busy_until_ns, page.busy_until_ns).saturating_sub(from_ns);
        let by_its_clock = before.saturating_add(charged).saturating_sub(page.busy_until_ns.saturating_sub(to_ns));
        let goes_on = page.syncing_since_ns != 0 || page.busy_until_ns.saturating_add(stalled_ns) > from_ns;
        let going_on = page.burst_since_ns != 0 && page.burst_since_ns <= to_ns && goes_on;
        let going_on = if going_on { to_ns - page.burst_since_ns.max(from_ns) } else { 0 };
        let ended = burst_ns.saturating_add(untracked_ns).saturating_sub(counted);
        seen.burst_counted_ns = if ends { going_on } else { counted.saturating_add(going_on) };
        let busy = by_its_clock.max(ended.saturating_add(going_on)).min(length);
        seen.waiting = page.waiting_since_ns != 0 && page.waiting_since_ns <= to_ns;
        let waiting = if seen.waiting { to_ns - page.waiting_since_ns.max(from_ns).min(to_ns) } else { 0 };
        let wanted = busy.saturating_add(waited.max(waiting));
        self.observed.wanted_ns = self.observed.wanted_ns.saturating_add(wanted);
        if wanted > 0 {
            seen.active_ns = to_ns;
        }
        if to_ns - seen.active_ns.min(to_ns) <= interval.window_ns {
            self.active += 1;
        }
    }

    /// The tick ends; these others had work meanwhile.
    pub(crate) fn end(&mut self, interval: Interval, colocated: Colocated) {
        let Interval { from_ns, to_ns, .. } = interval;
        self.wanted_ns = self.wanted_ns.saturating_add(self.observed.wanted_ns.min(to_ns - from_ns));
        self.bursts = self.bursts.saturating_add(self.observed.bursts).saturating_add(self.observed.untracked);
        self.colocated = self.colocated.and(colocated);
        if self.observed.bursts > 0 {
            self.end_bursts();
        }
        if !self.ended.is_empty() {
            self.undisturbed = !self.colocated.best_effort;
            self.colocated = colocated;
        }
        if self.marks.back().is_none_or(|mark| to_ns - mark.at_ns.min(to_ns) >= MARK_EVERY_NS) {
            if self.marks.len() == MARKS {
                self.marks.pop_front();
            }
            let (charged_ns, launches, waited_ns) = (self.charged_ns, self.launches, self.waited_ns);
            self.marks.push_back(Mark { at_ns: to_ns, charged_ns, launches, waited_ns });
        }
    }

    /// Bursts ended: keeps how long they took and, if no other tenant was there, how long they wait when alone.
    fn end_bursts(&mut self) {
        let (work_ns, wait_ns) = (self.observed.burst_work_ns, self.observed.burst_wait_ns);
        let (took_ns, count) = (self.observed.burst_ns, self.observed.bursts);
        if !self.colocated.anybody && work_ns > 0 {
            let permille = wait_ns.saturating_mul(1_000) / work_ns;
            let next = self.alone_wait_permille.map_or(permille, |known| known - known / 8 + permille / 8);
            self.alone_wait_permille = Some(next);
        }
        self.burst_ns = took_ns / count;
    }

    /// A burst, and how long it would have taken alone.
    ///
    /// Interference shows after a burst's last launch: its host need not wait before that, and waits longer then. So alone
    /// it would have taken as long, less what it waited more than alone. Comparing whole bursts would mistake a slower host
    /// for a neighbour on the GPU. Bursts are of all sizes, so what is learned is the wait for each unit of GPU time.
    fn burst(&self, process: u32, burst: &shm::Ended) -> Burst {
        let alone = self.alone_wait_permille.map_or(0, |permille| {
            // Launches are untracked only while nobody else is there.
            if burst.work_ns == 0 {
                return burst.length_ns.max(1);
            }
            let wait = u128::from(burst.work_ns) * u128::from(permille) / 1_000;
            let launching = burst.length_ns.saturating_sub(burst.wait_ns);
            launching.saturating_add(wait.min(u128::from(CHARGE_MAX_NS)) as u64).max(1)
        });
        Burst {
            process,
            began: Time::from_nanos(burst.since_ns),
            took: Span::from_nanos(burst.length_ns),
            alone: Span::from_nanos(alone),
            undisturbed: self.undisturbed,
        }
    }

    /// Whether it had work on the GPU during this tick.
    pub(crate) fn was_on_gpu(&self) -> bool {
        self.observed.on_gpu
    }

    /// What the policy sees of it.
    pub(crate) fn view(&self, number: u32, tenant: &TenantState) -> TenantView {
        TenantView {
            class: tenant.share.class,
            priority: tenant.share.priority,
            request: tenant.share.request.permille(),
            boost: tenant.boost,
            limit: tenant.share.limit.permille(),
            charged: Span::from_nanos(self.charged_ns),
            wanted: Span::from_nanos(self.wanted_ns),
            burst: Span::from_nanos(self.burst_ns),
            bursts: self.bursts,
            ended: self.ended.iter().map(|(process, burst)| self.burst(*process, burst)).collect(),
            objective: tenant.share.slo,
            spatial: tenant.share.mode == SharingMode::Spatial,
            slices: self.observed.slices && tenant.share.mode != SharingMode::Spatial,
            preemptible: self.observed.preemptible && tenant.share.mode != SharingMode::Spatial,
            preempts_within: Span::from_nanos(self.observed.leaves_ns),
            memory_limit: tenant.share.memory.map(|bytes| bytes.0),
            ..TenantView::new(TenantId(number))
        }
    }

    /// Keeps what the policy decided.
    pub(crate) fn apply(&mut self, action: Action) {
        match action {
            Action::SetAllowance { allowed, .. } => self.allowed = allowed,
            Action::SetGate { gate, .. } => self.held = gate == Gate::Held,
            Action::SetBudget { budget, .. } => self.budget = budget,
            Action::SetAdmission { admission, .. } => self.admission = admission,
            Action::SetSlice { slice, .. } => self.slice = slice,
            Action::SetSmCap { permille, .. } => self.sm_cap = permille,
            Action::Reserve { from, until, .. } => self.reserved = (from.nanos(), until.nanos()),
            Action::SetMemoryLimit { bytes, .. } => self.memory_limit = bytes,
        }
    }

    /// What one process's own counter may grow to: what is left of the tenant's allowance is for those that are active.
    pub(crate) fn allowed_for(&self, seen: &Seen) -> u64 {
        if self.allowed == Span::MAX {
            return shm::NO_LIMIT;
        }
        let left = self.allowed.nanos().saturating_sub(self.charged_ns);
        seen.charged_ns.saturating_add(left / u64::from(self.active.max(1)))
    }

    /// Over about the last second: used GPU and waiting in thousandths, launches a second.
    pub(crate) fn rates(&self, now_ns: u64) -> (u32, u32, u64) {
        let Some(mark) = self.marks.front().filter(|mark| mark.at_ns < now_ns) else { return (0, 0, 0) };
        let passed = u128::from(now_ns - mark.at_ns);
        let rate = |now: u64, then: u64, scale: u128| u128::from(now - then) * scale / passed;
        let permille = |now, then| rate(now, then, 1_000).min(1_000_000) as u32;
        let launches = rate(self.launches, mark.launches, 1_000_000_000).min(u128::from(u64::MAX)) as u64;
        (permille(self.charged_ns, mark.charged_ns), permille(self.waited_ns, mark.waited_ns), launches)
    }
}
