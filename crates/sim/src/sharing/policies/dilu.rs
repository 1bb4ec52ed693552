//! Dilu's kernel manager (Dilu, ASPLOS 2025): every 5 ms each training task is given tokens, and a launch costs as many
//! as it has thread blocks. The length of a latency task's burst over its shortest, r, moves them: from 1.6 to 4 they are
//! divided by r; below 1.2, at every fifth burst, they are multiplied by 1.3; otherwise they stay; and when all latency
//! tasks have been idle for 600 ms training has its limit.
//!
//! A kernel's SMs stand for its blocks here. The published faults are kept: blocks are not time, the shortest burst of
//! all makes an emergency of every longer one, and latency tasks' own tokens never bind.

use super::control::HOLD;
use super::{Control, Verdict};
use crate::sharing::snapshot::Snapshot;
use policy::sharing::Class;
use policy::{Span, Time};

const TICK: Span = Span::from_millis(5);
const IDLE: Span = Span::from_millis(600);
/// Blocks in a tick, in thousandths of all SMs: as many as 50 us kernels on all of them.
const MOST: u64 = 100_000;
const LEAST: u64 = 1_000;

/// Tokens and the bursts that move them.
#[derive(Debug)]
pub(super) struct Dilu {
    tokens: u64,
    spent: Vec<u64>,
    shortest: Vec<Span>,
    seen: Vec<u64>,
    fine: u32,
    active: Time,
}

impl Dilu {
    pub(super) fn new(tenants: usize) -> Dilu {
        Dilu {
            tokens: MOST,
            spent: vec![0; tenants],
            shortest: vec![Span::MAX; tenants],
            seen: vec![0; tenants],
            fine: 0,
            active: Time::ZERO,
        }
    }

    fn burst(&mut self, thousandths: u64) {
        match thousandths {
            1_600.. => self.tokens = (self.tokens * 1_000 / thousandths.min(4_000)).max(LEAST),
            ..1_200 => {
                self.fine += 1;
                if self.fine == 5 {
                    self.fine = 0;
                    self.tokens = (self.tokens * 13 / 10).min(MOST);
                }
            }
            _ => {}
        }
    }
}

impl Control for Dilu {
    fn may_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) -> Verdict {
        let state = &snapshot.states[tenant];
        if state.class == Class::Latency || self.spent[tenant] < self.tokens { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(TICK)
    }

    fn on_launch(&mut self, _now: Time, tenant: usize, snapshot: &Snapshot) {
        self.spent[tenant] += snapshot.states[tenant].last.map_or(0, |kernel| u64::from(kernel.sms));
    }

    fn on_tick(&mut self, now: Time, snapshot: &Snapshot) {
        self.spent.fill(0);
        for (index, state) in snapshot.states.iter().enumerate().filter(|(_, state)| state.class == Class::Latency) {
            if state.is_active() {
                self.active = now;
            }
            if self.seen[index] != state.bursts && state.burst > Span::ZERO {
                self.seen[index] = state.bursts;
                self.shortest[index] = self.shortest[index].min(state.burst);
                let ratio = state.burst.scale(1_000, self.shortest[index].nanos()).nanos();
                self.burst(ratio);
            }
        }
        if now >= self.active + IDLE {
            self.tokens = MOST;
        }
    }
}
