//! The launch gate alone: best-effort work fills predicted gaps, and little of it is in flight when somebody comes.

use super::{Admission, Control, GpuView, Span, TenantView, Throttle};

/// With what may be in flight.
#[derive(Debug)]
pub(super) struct GateAlone(pub(super) Span);

impl Control for GateAlone {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { budget: self.0, admission: Admission::GapFill, ..Throttle::NONE }
    }
}
