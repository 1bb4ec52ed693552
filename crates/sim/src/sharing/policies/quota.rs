//! Time quota alone, as libraries that hook launches do it: each tenant has its limit of every period, and launches as
//! long as some of it is left. Requests and priorities play no part, and a kernel that runs over the end of its period
//! costs the next one nothing.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::room::Room;
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
    fn may_launch(&mut self, _now: Time, tenant: usize, room: &Room) -> Verdict {
        let seat = &room.seats[tenant];
        let may_use = PERIOD.scale(u64::from(seat.limit), u64::from(WHOLE));
        let used = seat.charged - self.begun.get(tenant).copied().unwrap_or(Span::ZERO);
        if seat.limit >= WHOLE || used < may_use { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(PERIOD)
    }

    fn on_tick(&mut self, _now: Time, room: &Room) {
        self.begun = room.seats.iter().map(|seat| seat.charged).collect();
    }
}
