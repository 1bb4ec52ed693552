//! TGS (Wu et al., NSDI 2023), as far as it concerns one GPU: the others' rate of work is watched over seconds, and the
//! best-effort rate moved every 50 ms: doubled while nothing is lost, then raised by small steps, halved on a loss.

use super::control::{Control, Throttle};
use crate::sharing::{Class, GpuView, TenantView, WHOLE};
use crate::{Span, Time};

const STEP: Span = Span::from_millis(50);
const WATCH: Span = Span::from_secs(5);
/// A rate of bursts below this part of the best one is a loss, in thousandths.
const LOSS: u64 = 950;
const START: u32 = 10;
const RAISE: u32 = 10;

#[derive(Clone, Debug)]
pub(super) struct Tgs {
    rate: u32,
    slow_start: bool,
    stepped: Time,
    /// Bursts of all the others when this watch began.
    began: (Time, u64),
    /// The best rate that was seen, in bursts per thousand seconds.
    best: u64,
    lost: bool,
}

impl Tgs {
    pub(super) fn new() -> Tgs {
        Tgs { rate: START, slow_start: true, stepped: Time::ZERO, began: (Time::ZERO, 0), best: 0, lost: false }
    }
}

impl Control for Tgs {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { rate: self.rate, ..Throttle::NONE }
    }

    fn update(&mut self, now: Time, view: &GpuView) {
        let others = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        let bursts = others.fold(0u64, |sum, tenant| sum.saturating_add(tenant.bursts));
        let (since, before) = self.began;
        if now >= since + WATCH {
            let rate =
                bursts.saturating_sub(before).saturating_mul(1_000_000) / ((now - since).nanos() / 1_000_000).max(1);
            self.best = self.best.max(rate);
            self.lost = rate.saturating_mul(1_000) < self.best.saturating_mul(LOSS);
            self.began = (now, bursts);
            if self.lost {
                (self.rate, self.slow_start) = ((self.rate / 2).max(START), false);
            }
        }
        if now >= self.stepped + STEP && !self.lost {
            self.stepped = now;
            self.rate = if self.slow_start { self.rate * 2 } else { self.rate + RAISE }.min(WHOLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantId;

    #[test]
    fn it_starts_slowly_and_gives_way_within_seconds() {
        let mut tgs = Tgs::new();
        let mut tenant = TenantView { class: Class::Latency, ..TenantView::new(TenantId(0)) };
        for step in 0..10_000 {
            // 100 bursts a second alone, 60 where the other has more than half.
            tenant.bursts += u64::from(step % 5 == 0 && (tgs.rate < 500 || step % 10 == 0));
            let view = GpuView { tenants: vec![tenant.clone()], memory_total: 0 };
            tgs.update(Time::ZERO + Span::from_millis(2 * step), &view);
            if step == 24 {
                assert!(tgs.rate < 100, "{}", tgs.rate);
            }
        }
        assert!(tgs.rate < WHOLE, "{}", tgs.rate);
    }
}
