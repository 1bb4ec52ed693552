//! Weft: the code that runs live. Every tick the slow plane reads what the tenants' pages would say and sets
//! allowances, gates and budgets; every launch is decided by `share_core` from those and from what the neighbours'
//! pages say.
//!
//! The other controllers that run live run here as well: `tgs`, `orion-like`.
//!
//! As `weft` it has the gate alone; as `weft-time` tenants take turns, whose length it sets, and best-effort work is taken
//! off the GPU within bursts.
//!
//! Live, a best-effort tenant's outstanding time is its own clock's; here it is what the GPU has not done.

use super::{Control, Verdict};
use crate::sharing::Scenario;
use crate::sharing::gpu::Mode;
use crate::sharing::room::{Room, Seat};
use policy::Time;
use policy::sharing::{Action, Admission, Controller, Gate, GpuView, Sharing, SharingConfig, TenantView};
use policy::{Span, TenantId};
use share_core::{
    BusyPeriod, Decision, LEASE, Launch, Limits, Patience, Preemption, Step, admit_launch, wants_preemption,
};

/// For how long what is on the pages is believed.
const PATIENCE: &Patience = &Patience::USUAL;

/// One GPU's daemon, and the control pages that it writes.
#[derive(Debug)]
pub(super) struct Weft {
    tick: Span,
    daemon: Sharing,
    pages: Vec<Limits>,
    actions: Vec<Action>,
    in_turns: bool,
    slices: Vec<Option<Span>>,
    /// By tenant: how long its work stays off, whatever happens.
    preemptions: Vec<Preemption>,
}

impl Weft {
    pub(super) fn new(scenario: &Scenario, in_turns: bool, controller: Controller, config: SharingConfig) -> Weft {
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
            in_turns,
            slices: vec![None; tenants],
            preemptions: vec![Preemption::default(); tenants],
        }
    }
}

/// What a tenant reads on the pages of the more important ones.
fn rivals(tenant: usize, room: &Room) -> impl Iterator<Item = BusyPeriod> {
    let rank = room.seats[tenant].rank();
    room.seats.iter().filter(move |seat| seat.rank() < rank).map(|seat| BusyPeriod {
        // Zero means that there is none.
        since_ns: seat.burst_since.map_or(0, |since| since.nanos().max(1)),
        until_ns: seat.busy_until.nanos(),
        gap_ns: seat.last.map_or(0, |kernel| kernel.gap.nanos()),
        syncing_since_ns: seat.syncing_since.map_or(0, |since| since.nanos().max(1)),
    })
}

impl Control for Weft {
    fn may_launch(&mut self, now: Time, tenant: usize, room: &Room) -> Verdict {
        let seat = &room.seats[tenant];
        let launch = Launch {
            now_ns: now.nanos(),
            duration_ns: seat.head.map_or(0, |head| head.predicted.nanos()),
            busy_until_ns: (now + seat.outstanding).nanos(),
            charged_ns: seat.charged.nanos(),
            waited_ns: seat.head.map_or(0, |head| (now - head.since).nanos()),
        };
        match admit_launch(&launch, &self.pages[tenant], rivals(tenant, room), PATIENCE) {
            Decision::Admit => Verdict::Go,
            Decision::Wait { at_most_ns } => Verdict::Wait { until: now + Span::from_nanos(at_most_ns) },
        }
    }

    fn mode(&self, scenario: Mode) -> Mode {
        if self.in_turns { Mode::TimeSlice } else { scenario }
    }

    fn slice(&self, tenant: usize, _seat: &Seat) -> Option<Span> {
        self.slices[tenant]
    }

    fn off_until(&mut self, now: Time, tenant: usize, room: &Room) -> Option<Time> {
        if !self.in_turns {
            return None;
        }
        let reason = wants_preemption(now.nanos(), &self.pages[tenant], rivals(tenant, room), PATIENCE);
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

    fn tick(&self) -> Option<Span> {
        Some(self.tick)
    }

    fn on_tick(&mut self, now: Time, room: &Room) {
        let view = |(index, seat): (usize, &Seat)| TenantView {
            class: seat.class,
            priority: seat.priority,
            request: seat.request,
            limit: seat.limit,
            objective: seat.objective,
            charged: seat.charged,
            wanted: seat.wanted(now),
            burst: seat.burst,
            bursts: seat.bursts,
            ended: seat.ended.clone(),
            slices: self.in_turns,
            preemptible: self.in_turns,
            ..TenantView::new(TenantId::new(index))
        };
        let view = GpuView { tenants: room.seats.iter().enumerate().map(view).collect(), memory_total: 0 };
        self.daemon.look(now, &view, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::SetAllowance { tenant, allowed } => self.pages[tenant.index()].allowed_ns = allowed.nanos(),
                Action::SetGate { tenant, gate } => self.pages[tenant.index()].held = gate == Gate::Held,
                Action::SetBudget { tenant, budget } => self.pages[tenant.index()].budget_ns = budget.nanos(),
                Action::SetAdmission { tenant, admission } => self.pages[tenant.index()].admission = admission,
                Action::SetSlice { tenant, slice } => self.slices[tenant.index()] = slice,
                // Tenants of the simulated GPU are partitioned by nobody yet.
                Action::SetSpace { .. } => {}
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
