//! What a policy may know: of each tenant, what its shim could know without asking the GPU, and what was measured
//! while it was alone. How long a kernel really takes and when the next one comes is nobody's to know.

use super::gpu::GpuSpec;
use policy::sharing::{Burst, Class};
use policy::{Span, Time};

/// Everybody, in the order of the scenario.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The GPU.
    pub gpu: GpuSpec,
    /// Tenants.
    pub states: Vec<TenantState>,
}

/// A launch that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Position in the tenant's sequence: what kernel it is.
    pub kernel: usize,
    /// Mean duration when it was measured.
    pub predicted: Span,
    /// Mean gap on the GPU after it, when it was measured.
    pub gap: Span,
    /// SMs that it keeps busy, in thousandths.
    pub sms: u32,
    /// Bound by memory rather than by arithmetic.
    pub memory_bound: bool,
    /// When it was first asked for.
    pub since: Time,
}

/// One tenant.
#[derive(Clone, Debug)]
pub struct TenantState {
    /// What it was promised.
    pub class: Class,
    /// 0, the most important, to 9.
    pub priority: u8,
    /// Guaranteed, in thousandths.
    pub request: u32,
    /// Never to be exceeded, in thousandths.
    pub limit: u32,
    /// How long its bursts may take, where that was said.
    pub objective: Option<Span>,
    /// The launch that it asks for.
    pub head: Option<Head>,
    /// What it launched last.
    pub last: Option<Head>,
    /// Launches that are not done.
    pub in_flight: u32,
    /// GPU time predicted for them.
    pub outstanding: Span,
    /// When what it launched would be done, by its own clock: predictions added up, corrected at every sync.
    pub busy_until: Time,
    /// Since when it has launched without a sync.
    pub burst_since: Option<Time>,
    /// Since when it has been waiting for the GPU.
    pub syncing_since: Option<Time>,
    /// How long its last burst took.
    pub burst: Span,
    /// How long that burst took when it was measured.
    pub burst_alone: Span,
    /// Bursts that have ended.
    pub bursts: u64,
    /// Those since the policy's clock last ticked.
    pub ended: Vec<Burst>,
    /// GPU time x SMs charged so far.
    pub charged: Span,
    /// It works on a request: known to those who are told where tasks begin and end.
    pub in_request: bool,
    /// Launches so far.
    pub launches: u64,
    /// Requests answered so far.
    pub answered: u64,
    pub(super) wanted: Span,
    pub(super) wants_since: Option<Time>,
}

impl TenantState {
    /// Class, then priority; less is more important.
    pub fn rank(&self) -> (Class, u8) {
        (self.class, self.priority)
    }

    /// It has work on the GPU, or is in the middle of launching some.
    pub fn is_active(&self) -> bool {
        self.in_flight > 0 || self.burst_since.is_some() || self.head.is_some()
    }

    /// Time so far in which it had work on the GPU or waited to launch some.
    pub fn wanted(&self, now: Time) -> Span {
        self.wanted + self.wants_since.map_or(Span::ZERO, |since| now - since)
    }

    pub(super) fn note_wants(&mut self, now: Time) {
        match (self.in_flight > 0 || self.head.is_some(), self.wants_since) {
            (true, None) => self.wants_since = Some(now),
            (false, Some(since)) => {
                self.wanted += now - since;
                self.wants_since = None;
            }
            _ => {}
        }
    }
}
