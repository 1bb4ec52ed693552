//! The launch gate alone: best-effort work fills predicted gaps, and little of it is in flight when somebody comes.

use super::control::{Control, Throttle};
use crate::Span;
use crate::sharing::{Admission, GpuView, TenantView};

/// With what may be in flight.
#[derive(Debug)]
pub(super) struct GateAlone(pub(super) Span);

impl Control for GateAlone {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { budget: self.0, admission: Admission::GapFill, ..Throttle::NONE }
    }
}
