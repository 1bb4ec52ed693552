//! Weft: the code that runs live. Every tick the slow plane reads what the tenants' pages would say and sets
//! allowances, gates and depths; every launch is decided by the fast plane from those and from what the neighbours'
//! pages say.
//!
//! As `weft` it has the gate alone; as `weft-time` tenants take turns, whose length it sets, and best-effort work is taken
//! off the GPU within bursts.
//!
//! Live, a best-effort tenant's outstanding time is its own clock's; here it is what the GPU has not done.

use super::{Control, Mode, Room, Scenario, Seat, Time, Verdict};
use policy::sharing::{self, Action, Filling, Gate, GpuView, Neighbour, Own, Sharing, TICK, TenantView};
use policy::{Span, TenantId};
use share_core::{LEASE, Preemption, Step};

/// One GPU's daemon, and the control pages that it writes.
#[derive(Debug)]
pub(super) struct Weft {
    daemon: Sharing,
    pages: Vec<sharing::Control>,
    actions: Vec<Action>,
    neighbours: Vec<Neighbour>,
    in_turns: bool,
    slices: Vec<Option<Span>>,
    /// By tenant: how long its work stays off, whatever happens.
    preemptions: Vec<Preemption>,
}

impl Weft {
    pub(super) fn new(scenario: &Scenario, in_turns: bool) -> Weft {
        let tenants = scenario.tenants.len();
        let page = |tenant: &super::super::TenantSpec| sharing::Control {
            heartbeat: Time::ZERO,
            class: tenant.class,
            priority: tenant.priority,
            gate: Gate::Open,
            allowed: Span::ZERO,
            depth: Span::ZERO,
            filling: Filling::default(),
        };
        let pages = scenario.tenants.iter().map(page).collect();
        Weft {
            daemon: Sharing::default(),
            pages,
            actions: Vec::new(),
            neighbours: Vec::new(),
            in_turns,
            slices: vec![None; tenants],
            preemptions: vec![Preemption::default(); tenants],
        }
    }

    /// What a tenant reads on the pages of the others.
    fn read_neighbours(&mut self, tenant: usize, room: &Room) {
        let others = room.seats.iter().enumerate().filter(|(index, _)| *index != tenant);
        self.neighbours.clear();
        self.neighbours.extend(others.map(|(_, seat)| Neighbour {
            class: seat.class,
            priority: seat.priority,
            in_burst: seat.burst_since.is_some(),
            busy_until: seat.busy_until,
            gap: seat.last.map_or(Span::ZERO, |kernel| kernel.gap),
        }));
    }
}

impl Control for Weft {
    fn may_launch(&mut self, now: Time, tenant: usize, room: &Room) -> Verdict {
        let seat = &room.seats[tenant];
        self.read_neighbours(tenant, room);
        let own = Own { charged: seat.charged, outstanding: seat.outstanding };
        let predicted = seat.head.map_or(Span::ZERO, |head| head.predicted);
        sharing::may_launch(now, own, &self.pages[tenant], &self.neighbours, predicted)
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
        self.read_neighbours(tenant, room);
        let reason = sharing::is_off(now, &self.pages[tenant], &self.neighbours);
        let preemption = &mut self.preemptions[tenant];
        match preemption.poll(now.nanos(), reason, &LEASE) {
            Step::Stay => {}
            Step::Disable => preemption.disabled(true),
            Step::Enable => preemption.enabled(true),
        }
        preemption.until_ns().map(Time::from_nanos)
    }

    fn tick(&self) -> Option<Span> {
        Some(TICK)
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
            burst_alone: seat.burst_alone,
            bursts: seat.bursts,
            slices: self.in_turns,
            preemptible: self.in_turns,
            ..TenantView::new(TenantId::new(index))
        };
        let view = GpuView { tenants: room.seats.iter().enumerate().map(view).collect(), memory_total: 0 };
        self.daemon.look(now, &view, &mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::SetAllowance { tenant, allowed } => self.pages[tenant.index()].allowed = allowed,
                Action::SetGate { tenant, gate } => self.pages[tenant.index()].gate = gate,
                Action::SetDepth { tenant, depth } => self.pages[tenant.index()].depth = depth,
                Action::SetYield { tenant, filling } => self.pages[tenant.index()].filling = filling,
                Action::SetSlice { tenant, slice } => self.slices[tenant.index()] = slice,
                // Tenants of the simulated GPU are partitioned by nobody yet.
                Action::SetSpace { .. } => {}
                Action::SetMemoryLimit { .. } | Action::Evict { .. } => {}
            }
        }
        for page in &mut self.pages {
            page.heartbeat = now;
        }
    }
}
