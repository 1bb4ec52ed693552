//! What more important tenants are doing, as far as their pages say.

#![deny(unsafe_code)]

use crate::bits::bits;
use share_core::BusyPeriod;
use shm::{PageWindow, STATE_LIVE};

/// What more important tenants are doing.
pub(crate) fn rivals(window: &PageWindow, above: u64) -> impl Iterator<Item = BusyPeriod> {
    bits(above).filter_map(|slot| rival(window, slot))
}

fn rival(window: &PageWindow, slot: usize) -> Option<BusyPeriod> {
    let page = window.slot(slot);
    if page.half(|page| &page.state) != STATE_LIVE {
        return None;
    }
    Some(BusyPeriod {
        since_ns: page.word(|page| &page.burst_since_ns),
        until_ns: page.word(|page| &page.busy_until_ns),
        gap_ns: page.word(|page| &page.gap_ns),
        syncing_since_ns: page.word(|page| &page.syncing_since_ns),
    })
}
