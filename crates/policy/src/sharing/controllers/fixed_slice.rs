//! Best-effort time slices of one length.

use super::control::{Control, Throttle};
use crate::Span;
use crate::sharing::{GpuView, TenantView};

#[derive(Debug)]
pub(super) struct FixedSlice(pub(super) Span);

impl Control for FixedSlice {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { slice: Some(self.0), ..Throttle::NONE }
    }
}
