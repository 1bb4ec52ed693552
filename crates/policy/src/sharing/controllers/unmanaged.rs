//! Nobody interferes: what the driver does by itself.

use super::control::{Control, Throttle};
use crate::sharing::{GpuView, TenantView};

#[derive(Debug)]
pub(super) struct Unmanaged;

impl Control for Unmanaged {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle::NONE
    }
}
