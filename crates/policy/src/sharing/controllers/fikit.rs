//! FIKIT: gaps between the kernels of a more important task are filled with what fits; nothing holds a launch when no such
//! task runs.

use super::{Admission, Control, GpuView, TenantView, Throttle};

#[derive(Debug)]
pub(super) struct Fikit;

impl Control for Fikit {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { admission: Admission::GapFill, ..Throttle::NONE }
    }
}
