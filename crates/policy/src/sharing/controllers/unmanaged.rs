//! Nobody interferes: what the driver does by itself.

use super::{Control, GpuView, TenantView, Throttle};

#[derive(Debug)]
pub(super) struct Unmanaged;

impl Control for Unmanaged {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle::NONE
    }
}
