//! Like Orion (Strati et al., EuroSys 2024): short kernels beside others, in flight for a small part of how long their work
//! takes. Orion also ticks at what kernels are bound by and at how many SMs they need, which nobody here knows.

use super::control::{Control, Throttle};
use crate::Span;
use crate::sharing::{Admission, Class, GpuView, TenantView};

/// What may be in flight, in thousandths of the shortest burst: the paper's.
const IN_FLIGHT: u64 = 25;

#[derive(Debug)]
pub(super) struct OrionLike;

impl Control for OrionLike {
    fn throttle(&self, _: &TenantView, view: &GpuView) -> Throttle {
        let latency = view.tenants.iter().filter(|tenant| tenant.class == Class::Latency);
        let shortest = latency.map(|tenant| tenant.burst).filter(|burst| *burst > Span::ZERO).min();
        let budget = shortest.map_or(Span::MAX, |burst| burst.scale(IN_FLIGHT, 1_000));
        Throttle { budget, admission: Admission::ShortOnly, ..Throttle::NONE }
    }
}
