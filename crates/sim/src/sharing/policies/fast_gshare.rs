//! FaST-GShare's manager (Gu et al., ICPP 2023): over windows of 40 ms a tenant holds a token for its request's part of
//! the window. Tokens go to whoever misses the most of its request, missing / (missing + usage), then to whoever used
//! the least, and several are out at once as long as the SMs of their holders come to no more than all.
//!
//! Usage is host time between getting a token and giving it back, as published: what was launched and is not done when
//! the token ends is free, so that little is limited where queues are long.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::gpu::Mode;
use crate::sharing::room::Room;
use policy::sharing::WHOLE;
use policy::{Span, Time};

const WINDOW: Span = Span::from_millis(40);

/// Tokens that are out, and what each tenant used in this window.
#[derive(Debug)]
pub(super) struct FastGShare {
    used: Vec<Span>,
    /// Since when each holds a token.
    token: Vec<Option<Time>>,
    began: Time,
}

impl FastGShare {
    pub(super) fn new(tenants: usize) -> FastGShare {
        FastGShare { used: vec![Span::ZERO; tenants], token: vec![None; tenants], began: Time::ZERO }
    }

    fn usage(&self, now: Time, tenant: usize) -> Span {
        self.used[tenant] + self.token[tenant].map_or(Span::ZERO, |since| now - since)
    }

    /// What a tenant may hold of a window: its request, or an equal part of what nobody requested.
    fn part(room: &Room, tenant: usize) -> Span {
        let requested: u32 = room.seats.iter().map(|seat| seat.request).sum();
        let others = room.seats.iter().filter(|seat| seat.request == 0).count().max(1) as u32;
        let seat = &room.seats[tenant];
        let share = if seat.request > 0 { seat.request } else { WHOLE.saturating_sub(requested) / others };
        WINDOW.scale(u64::from(share.max(10)), u64::from(WHOLE))
    }

    fn sms(room: &Room, tenant: usize) -> u32 {
        let seat = &room.seats[tenant];
        if room.gpu.mode == Mode::Concurrent { seat.head.or(seat.last).map_or(WHOLE, |head| head.sms) } else { WHOLE }
    }

    /// Takes tokens back and hands out those that are free.
    fn hand_out(&mut self, now: Time, room: &Room) {
        for tenant in 0..room.seats.len() {
            let over = self.usage(now, tenant) >= FastGShare::part(room, tenant);
            if self.token[tenant].is_some() && (over || !room.seats[tenant].is_active()) {
                self.used[tenant] = self.usage(now, tenant);
                self.token[tenant] = None;
            }
        }
        let mut asking: Vec<(u64, Span, usize)> = (0..room.seats.len())
            .filter(|tenant| room.seats[*tenant].head.is_some() && self.token[*tenant].is_none())
            .filter_map(|tenant| {
                let (part, used) = (FastGShare::part(room, tenant), self.usage(now, tenant));
                let missing = (part - used).nanos();
                let urgency = (missing * 1_000).checked_div(missing + used.nanos())?;
                (missing > 0).then_some((1_000 - urgency, used, tenant))
            })
            .collect();
        asking.sort();
        for (_, _, tenant) in asking {
            let holders = (0..room.seats.len()).filter(|other| self.token[*other].is_some());
            let out: u32 = holders.map(|other| FastGShare::sms(room, other)).sum();
            if out + FastGShare::sms(room, tenant) <= WHOLE {
                self.token[tenant] = Some(now);
            }
        }
    }
}

impl Control for FastGShare {
    fn may_launch(&mut self, now: Time, tenant: usize, room: &Room) -> Verdict {
        self.hand_out(now, room);
        if self.token[tenant].is_some() { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(Span::from_millis(1))
    }

    fn on_tick(&mut self, now: Time, room: &Room) {
        if now >= self.began + WINDOW {
            self.began = now;
            self.used.fill(Span::ZERO);
            for since in self.token.iter_mut().flatten() {
                *since = now;
            }
        }
        self.hand_out(now, room);
    }
}
