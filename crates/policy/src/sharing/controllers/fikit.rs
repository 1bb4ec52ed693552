//! FIKIT: gaps between the kernels of a more important task are filled with what fits; nothing holds a launch when no such
//! task runs.

use super::control::{Control, Throttle};
use crate::sharing::{Admission, GpuView, TenantView};

#[derive(Debug)]
pub(super) struct Fikit;

impl Control for Fikit {
    fn throttle(&self, _: &TenantView, _: &GpuView) -> Throttle {
        Throttle { admission: Admission::GapFill, ..Throttle::NONE }
    }
}
