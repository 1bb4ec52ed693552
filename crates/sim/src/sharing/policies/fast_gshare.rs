//! FaST-GShare's manager (Gu et al., ICPP 2023): over windows of 40 ms a tenant holds a token for its request's part of
//! the window. Tokens go to whoever misses the most of its request, missing / (missing + usage), then to whoever used
//! the least, and several are out at once as long as the SMs of their holders come to no more than all.
//!
//! Usage is host time between getting a token and giving it back, as published: what was launched and is not done when
//! the token ends is free, so that little is limited where queues are long.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::snapshot::Snapshot;
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
    fn part(snapshot: &Snapshot, tenant: usize) -> Span {
        let requested: u32 = snapshot.states.iter().map(|state| state.request).sum();
        let others = snapshot.states.iter().filter(|state| state.request == 0).count().max(1) as u32;
        let state = &snapshot.states[tenant];
        let share = if state.request > 0 { state.request } else { WHOLE.saturating_sub(requested) / others };
        WINDOW.scale(u64::from(share.max(10)), u64::from(WHOLE))
    }

    fn sms(snapshot: &Snapshot, tenant: usize) -> u32 {
        let state = &snapshot.states[tenant];
        if snapshot.gpu.mode.is_at_once() { state.head.or(state.last).map_or(WHOLE, |head| head.sms) } else { WHOLE }
    }

    /// Takes tokens back and hands out those that are free.
    fn hand_out(&mut self, now: Time, snapshot: &Snapshot) {
        for tenant in 0..snapshot.states.len() {
            let over = self.usage(now, tenant) >= FastGShare::part(snapshot, tenant);
            if self.token[tenant].is_some() && (over || !snapshot.states[tenant].is_active()) {
                self.used[tenant] = self.usage(now, tenant);
                self.token[tenant] = None;
            }
        }
        let mut asking: Vec<(u64, Span, usize)> = (0..snapshot.states.len())
            .filter(|tenant| snapshot.states[*tenant].head.is_some() && self.token[*tenant].is_none())
            .filter_map(|tenant| {
                let (part, used) = (FastGShare::part(snapshot, tenant), self.usage(now, tenant));
                let missing = (part - used).nanos();
                let urgency = (missing * 1_000).checked_div(missing + used.nanos())?;
                (missing > 0).then_some((1_000 - urgency, used, tenant))
            })
            .collect();
        asking.sort();
        for (_, _, tenant) in asking {
            let holders = (0..snapshot.states.len()).filter(|other| self.token[*other].is_some());
            let out: u32 = holders.map(|other| FastGShare::sms(snapshot, other)).sum();
            if out + FastGShare::sms(snapshot, tenant) <= WHOLE {
                self.token[tenant] = Some(now);
            }
        }
    }
}

impl Control for FastGShare {
    fn may_launch(&mut self, now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        self.hand_out(now, snapshot);
        if self.token[tenant].is_some() { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(Span::from_millis(1))
    }

    fn on_tick(&mut self, now: Time, snapshot: &Snapshot) {
        if now >= self.began + WINDOW {
            self.began = now;
            self.used.fill(Span::ZERO);
            for since in self.token.iter_mut().flatten() {
                *since = now;
            }
        }
        self.hand_out(now, snapshot);
    }
}
