//! Weft: the code that runs live. Every tick the slow plane reads what the tenants' pages would say and sets
//! allowances, gates and budgets; every launch is decided by `share_core` from those and from what the neighbours'
//! pages say.
//!
//! The other controllers that run live run here as well: `tgs`, `orion-like`.
//!
//! As `weft` it has the gate alone. As `weft-time` tenants run in time slices, whose length it sets, and best-effort work is
//! preempted in busy periods. As `weft-space` they run at the same time, and long best-effort kernels have a part of the SMs.
//!
//! Live, a best-effort tenant's outstanding time is its own clock's; here it is what the GPU has not done.

use super::{Control, Verdict};
use crate::sharing::Scenario;
use crate::sharing::gpu::Mode;
use crate::sharing::snapshot::{Snapshot, TenantState};
use policy::Time;
use policy::sharing::{Action, Admission, Controller, Gate, GpuView, Sharing, SharingConfig, TenantView, WHOLE};
use policy::{Span, TenantId};
use share_core::{
    BusyPeriod, Decision, LEASE, Launch, Limits, Patience, Preemption, Step, admit_launch, sm_cap, wants_preemption,
};

/// For how long what is on the pages is believed.
const PATIENCE: &Patience = &Patience::USUAL;

/// What tenants share the GPU by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The launch gate alone.
    Gate,
    /// Time slices and preemption.
    Temporal,
    /// SM caps, under MPS.
    Spatial,
}

/// One GPU's daemon, and the control pages that it writes.
#[derive(Debug)]
pub(super) struct Weft {
    tick: Span,
    daemon: Sharing,
    pages: Vec<Limits>,
    actions: Vec<Action>,
    sharing: How,
    slices: Vec<Option<Span>>,
    /// By tenant, in thousandths.
    caps: Vec<u32>,
    /// By tenant: how long its work stays off, whatever happens.
    preemptions: Vec<Preemption>,
}

impl Weft {
    pub(super) fn new(scenario: &Scenario, sharing: How, controller: Controller, config: SharingConfig) -> Weft {
        let tenants = scenario.tenants.len();
        let page = |tenant: &crate::sharing::TenantSpec| Limits {
            class: tenant.class,
            admission: Admission::default(),
            held: false,
            allowed_ns: 0,
            budget_ns: 0,
            heartbeat_ns: 0,
            reserved_from_ns: 0,
            reserved_until_ns: 0,
        };
        let pages = scenario.tenants.iter().map(page).collect();
        Weft {
            tick: config.tick,
            daemon: Sharing::new(controller, config),
            pages,
            actions: Vec::new(),
            sharing,
            slices: vec![None; tenants],
            caps: vec![WHOLE; tenants],
            preemptions: vec![Preemption::default(); tenants],
        }
    }
}

/// What a tenant reads on the pages of the more important ones.
fn rivals(tenant: usize, snapshot: &Snapshot) -> impl Iterator<Item = BusyPeriod> {
    let rank = snapshot.states[tenant].rank();
    snapshot.states.iter().filter(move |state| state.rank() < rank).map(|state| BusyPeriod {
        // Zero means that there is none.
        since_ns: state.burst_since.map_or(0, |since| since.nanos().max(1)),
        until_ns: state.busy_until.nanos(),
        gap_ns: state.last.map_or(0, |kernel| kernel.gap.nanos()),
        syncing_since_ns: state.syncing_since.map_or(0, |since| since.nanos().max(1)),
    })
}

impl Control for Weft {
    fn may_launch(&mut self, now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let state = &snapshot.states[tenant];
        let launch = Launch {
            now_ns: now.nanos(),
            duration_ns: state.head.map_or(0, |head| head.predicted.nanos()),
            busy_until_ns: (now + state.outstanding).nanos(),
            charged_ns: state.charged.nanos(),
            waited_ns: state.head.map_or(0, |head| (now - head.since).nanos()),
        };
        match admit_launch(&launch, &self.pages[tenant], rivals(tenant, snapshot), PATIENCE) {
            Decision::Admit => Verdict::Go,
            Decision::Wait { at_most_ns } => Verdict::Wait { until: now + Span::from_nanos(at_most_ns) },
        }
    }

    fn mode(&self, scenario: Mode) -> Mode {
        match self.sharing {
            How::Gate => scenario,
            How::Temporal => Mode::TimeSlice,
            How::Spatial => Mode::Spatial,
        }
    }

    fn slice(&self, tenant: usize, _seat: &TenantState) -> Option<Span> {
        self.slices[tenant]
    }

    fn off_until(&mut self, now: Time, tenant: usize, snapshot: &Snapshot) -> Option<Time> {
        if self.sharing != How::Temporal {
            return None;
        }
        let reason = wants_preemption(now.nanos(), &self.pages[tenant], rivals(tenant, snapshot), PATIENCE);
        let preemption = &mut self.preemptions[tenant];
        match preemption.poll(now.nanos(), reason, &LEASE) {
            Step::Stay => {}
            Step::Disable => preemption.disabled(true),
            Step::Enable => preemption.enabled(true),
        }
        preemption.until_ns().map(Time::from_nanos)
    }

    fn look_at(&self, tenant: usize) -> Option<Time> {
        let from = self.pages[tenant].reserved_from_ns;
        (from > 0).then(|| Time::from_nanos(from))
    }

    fn sm_cap(&self, now: Time, tenant: usize, snapshot: &Snapshot) -> Option<u32> {
        let duration_ns = snapshot.states[tenant].head.map_or(0, |head| head.predicted.nanos());
        let busy = || rivals(tenant, snapshot).any(|rival| rival.is_on(now.nanos(), PATIENCE));
        sm_cap(duration_ns, self.caps[tenant], false, busy)
    }

    fn tick(&self) -> Option<Span> {
        Some(self.tick)
    }

    fn on_tick(&mut self, now: Time, snapshot: &Snapshot) {
        let view = |(index, state): (usize, &TenantState)| TenantView {
            class: state.class,
            priority: state.priority,
            request: state.request,
            limit: state.limit,
            objective: state.objective,
            charged: state.charged,
            wanted: state.wanted(now),
            burst: state.burst,
            bursts: state.bursts,
            ended: state.ended.clone(),
            slices: self.sharing == How::Temporal,
            preemptible: self.sharing == How::Temporal,
            spatial: self.sharing == How::Spatial,
            ..TenantView::new(TenantId::new(index))
        };
        let view = GpuView { tenants: snapshot.states.iter().enumerate().map(view).collect(), memory_total: 0 };
        self.daemon.update(now, &view, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::SetAllowance { tenant, allowed } => self.pages[tenant.index()].allowed_ns = allowed.nanos(),
                Action::SetGate { tenant, gate } => self.pages[tenant.index()].held = gate == Gate::Held,
                Action::SetBudget { tenant, budget } => self.pages[tenant.index()].budget_ns = budget.nanos(),
                Action::SetAdmission { tenant, admission } => self.pages[tenant.index()].admission = admission,
                Action::SetSlice { tenant, slice } => self.slices[tenant.index()] = slice,
                Action::SetSmCap { tenant, permille } => self.caps[tenant.index()] = permille,
                Action::Reserve { tenant, from, until } => {
                    let page = &mut self.pages[tenant.index()];
                    (page.reserved_from_ns, page.reserved_until_ns) = (from.nanos(), until.nanos());
                }
                Action::SetMemoryLimit { .. } => {}
            }
        }
        for page in &mut self.pages {
            page.heartbeat_ns = now.nanos();
        }
    }
}
