//! Time quota alone, as libraries that hook launches do it: each tenant has its limit of every period, and launches as
//! long as some of it is left. Requests and priorities play no part, and a kernel that runs over the end of its period
//! costs the next one nothing.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::snapshot::Snapshot;
use policy::Span;
use policy::Time;
use policy::sharing::WHOLE;

const PERIOD: Span = Span::from_millis(100);

/// A limit per period.
#[derive(Debug)]
pub(super) struct Quota {
    /// What each was charged when the period began.
    begun: Vec<Span>,
}

impl Quota {
    pub(super) fn new(tenants: usize) -> Quota {
        Quota { begun: vec![Span::ZERO; tenants] }
    }
}

impl Control for Quota {
    fn may_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let state = &snapshot.states[tenant];
        let may_use = PERIOD.scale(u64::from(state.limit), u64::from(WHOLE));
        let used = state.charged - self.begun.get(tenant).copied().unwrap_or(Span::ZERO);
        if state.limit >= WHOLE || used < may_use { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(PERIOD)
    }

    fn on_tick(&mut self, _now: Time, snapshot: &Snapshot) {
        self.begun = snapshot.states.iter().map(|state| state.charged).collect();
    }
}
