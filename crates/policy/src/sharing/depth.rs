//! How much best-effort work may be outstanding: less at once and in proportion when a latency tenant's bursts take
//! longer than alone, more again step by step.
//!
//! Bursts are compared with what such a burst takes alone, which whoever measures it knows by its size; a minimum over
//! all bursts would make an emergency of every larger batch. Where the least depth is not little enough, the gate is
//! held until the next burst was better.

use super::{Gate, TenantView};
use crate::{Span, TenantId};
use std::collections::BTreeMap;

/// As much as may stand in a latency tenant's way.
pub(super) const DEPTH_MOST: Span = Span::from_micros(200);
const DEPTH_LEAST: Span = Span::from_micros(50);
/// A burst that takes up to this, in thousandths of what it takes alone, is as good as alone.
const FINE: u64 = 1_100;
/// Beyond this, and with no depth left to take, launches are held.
const BAD: u64 = 2_000;
/// What is given back after a fine burst.
const STEP: Span = Span::from_micros(10);
/// Held for no longer than this many ticks after the burst that was bad: the tenant may never come back.
const HELD_TICKS: u32 = 25;

/// One number for all best-effort tenants of a GPU.
#[derive(Clone, Debug)]
pub(super) struct Depth {
    depth: Span,
    held: u32,
    /// Bursts seen, by latency tenant.
    seen: BTreeMap<TenantId, u64>,
}

impl Depth {
    pub(super) fn new() -> Depth {
        Depth { depth: DEPTH_MOST, held: 0, seen: BTreeMap::new() }
    }

    /// Looks at the bursts that ended since the last look.
    pub(super) fn look<'a>(&mut self, latency: impl Iterator<Item = &'a TenantView> + Clone) {
        self.held = self.held.saturating_sub(1);
        self.seen.retain(|id, _| latency.clone().any(|tenant| tenant.id == *id));
        if self.seen.is_empty() && latency.clone().next().is_none() {
            *self = Depth::new();
        }
        let mut worst: Option<u64> = None;
        for tenant in latency {
            let before = self.seen.insert(tenant.id, tenant.bursts);
            let alone = tenant.burst_alone.nanos();
            if before.is_some_and(|before| before != tenant.bursts) && alone > 0 {
                worst = worst.max(Some(tenant.burst.scale(1_000, alone).nanos()));
            }
        }
        match worst {
            None => {}
            Some(ratio) if ratio <= FINE => {
                self.depth = (self.depth + STEP).min(DEPTH_MOST);
                self.held = 0;
            }
            Some(ratio) => {
                if ratio > BAD && self.depth == DEPTH_LEAST {
                    self.held = HELD_TICKS;
                }
                self.depth = self.depth.scale(FINE, ratio).max(DEPTH_LEAST);
            }
        }
    }

    pub(super) fn depth(&self) -> Span {
        self.depth
    }

    pub(super) fn gate(&self) -> Gate {
        if self.held > 0 { Gate::Held } else { Gate::Open }
    }
}
