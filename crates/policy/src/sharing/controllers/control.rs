//! What a controller does.

use crate::sharing::{Admission, Gate, GpuView, TenantView, WHOLE};
use crate::{Span, TenantId, Time};
use std::fmt::Debug;

/// How best-effort work is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sharing) struct Throttle {
    pub(in crate::sharing) gate: Gate,
    /// In flight, at most.
    pub(in crate::sharing) budget: Span,
    pub(in crate::sharing) admission: Admission,
    /// `None`: the driver's own.
    pub(in crate::sharing) slice: Option<Span>,
    /// Of the SMs, in thousandths.
    pub(in crate::sharing) sm_cap: u32,
    /// Its rate, in thousandths, where the controller sets one.
    pub(in crate::sharing) rate: u32,
    /// It is off the GPU from and until then, where somebody is expected to need it.
    pub(in crate::sharing) reserved: Option<(Time, Time)>,
}

impl Throttle {
    pub(in crate::sharing) const NONE: Throttle = Throttle {
        gate: Gate::Open,
        budget: Span::MAX,
        admission: Admission::Concurrent,
        slice: None,
        sm_cap: WHOLE,
        rate: WHOLE,
        reserved: None,
    };
}

/// A controller at work on one GPU.
pub(in crate::sharing) trait Control: Debug + Send {
    /// Takes the view at a tick.
    fn update(&mut self, _now: Time, _view: &GpuView) {}

    /// How a best-effort tenant is throttled.
    fn throttle(&self, tenant: &TenantView, view: &GpuView) -> Throttle;

    /// How another is: not at all, but for the length of its time slices.
    fn others(&self, _tenant: &TenantView, _view: &GpuView) -> Throttle {
        Throttle::NONE
    }

    /// Whether best-effort tenants have a share of what others leave. By the published rules, and where one thing alone is
    /// to be seen, they have whatever they get.
    fn divides(&self) -> bool {
        false
    }

    /// Whether a best-effort tenant gets the share that it was promised from the controller, so that nobody else has to be
    /// bound for it.
    fn keeps_promise(&self, _tenant: TenantId) -> bool {
        false
    }

    /// Whether that share is what it gets at this moment, and nothing else is to bound it.
    fn is_paid(&self, _tenant: TenantId) -> bool {
        false
    }

    /// Whether a best-effort tenant runs at the same time as the latency tenants.
    fn is_colocated(&self, _tenant: &TenantView, _view: &GpuView) -> bool {
        false
    }

    /// What a latency tenant's bursts take of what they take alone, in thousandths.
    fn slowdown(&self, _tenant: TenantId) -> Option<u64> {
        None
    }

    /// The latency tenant that is slowed down most while best-effort work is throttled, and by how much in thousandths.
    fn most_slowed(&self) -> Option<(TenantId, u64)> {
        None
    }
}
