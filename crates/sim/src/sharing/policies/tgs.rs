//! TGS: transparent GPU sharing (Wu et al., NSDI 2023). The most important tenant is the production job; its rate of
//! launches over the last 5 s says whether it suffers. The others' rates move in windows of 50 ms: doubled from little
//! until it suffers for the first time, then halved when it suffers and raised by a step when it does not.
//!
//! Rates are watched for seconds, so requests that come and go look like suffering or like nothing.

use super::{Control, HOLD, Room, Span, Time, Verdict};

const TICK: Span = Span::from_millis(50);
const WATCHED: usize = 100;
const STEP: u64 = 4;

/// Launches per window that the others may make.
#[derive(Debug)]
pub(super) struct Tgs {
    rate: u64,
    slow_start: bool,
    launched: Vec<u64>,
    /// The production job's launches, window by window.
    watched: Vec<u64>,
    before: u64,
}

impl Tgs {
    pub(super) fn new(tenants: usize) -> Tgs {
        Tgs { rate: STEP, slow_start: true, launched: vec![0; tenants], watched: Vec::new(), before: 0 }
    }

    fn production(room: &Room) -> Option<usize> {
        (0..room.seats.len()).min_by_key(|tenant| (room.seats[*tenant].rank(), *tenant))
    }
}

impl Control for Tgs {
    fn may_launch(&mut self, _now: Time, tenant: usize, room: &Room) -> Verdict {
        let free = Tgs::production(room) == Some(tenant) || self.launched[tenant] < self.rate;
        if free { Verdict::Go } else { HOLD }
    }

    fn tick(&self) -> Option<Span> {
        Some(TICK)
    }

    fn on_launch(&mut self, _now: Time, tenant: usize, _room: &Room) {
        self.launched[tenant] += 1;
    }

    fn on_tick(&mut self, _now: Time, room: &Room) {
        self.launched.fill(0);
        let Some(production) = Tgs::production(room) else { return };
        let total = room.seats[production].launches;
        if self.watched.len() == WATCHED {
            self.watched.remove(0);
        }
        self.watched.push(total - self.before);
        self.before = total;
        let best = self.watched.iter().copied().max().unwrap_or(0);
        let suffers = self.watched.last().is_some_and(|last| last * 100 < best * 95);
        (self.rate, self.slow_start) = match (suffers, self.slow_start) {
            (true, _) => ((self.rate / 2).max(1), false),
            (false, true) => (self.rate.saturating_mul(2).min(1 << 32), true),
            (false, false) => (self.rate + STEP, false),
        };
    }
}
