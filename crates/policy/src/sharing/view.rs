//! What the slow plane sees of a GPU and what it can do: its inputs and powers, as plain data.

use super::WHOLE;
use crate::{Span, TenantId, Time};
use share_core::{Admission, Class};

/// Work of a process, from the first launch to the end of the wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Whose: requests of one process wait for each other.
    pub process: u32,
    /// When it began.
    pub began: Time,
    /// How long it took.
    pub took: Span,
    /// How long it would have taken alone; zero when that is not known.
    pub alone: Span,
    /// No best-effort work was on the GPU during it.
    pub undisturbed: bool,
}

/// One tenant, as its page and its registration say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView {
    /// Its name.
    pub id: TenantId,
    /// What it was promised.
    pub class: Class,
    /// 0, the most important, to 9.
    pub priority: u8,
    /// Guaranteed when it wants it, in thousandths of the GPU.
    pub request: u32,
    /// The share that its load asks for at present, in thousandths of the GPU; it comes after every tenant's guarantee.
    pub boost: u32,
    /// Never exceeded, in thousandths of the GPU.
    pub limit: u32,
    /// GPU time x share of the SMs that it used so far. Less than at the last look: it started over.
    pub charged: Span,
    /// Time so far in which it had work on the GPU or waited to launch some.
    pub wanted: Span,
    /// How long its last burst took, from the first launch to the end of the sync; zero before the first.
    pub burst: Span,
    /// Bursts that it has finished.
    pub bursts: u64,
    /// Those that ended since the last look, each process's in the order of their ends. Some may be missing.
    pub ended: Vec<Burst>,
    /// How long a request may take, where it was said.
    pub objective: Option<Span>,
    /// It is in spatial mode: its kernels run at the same time as those of others in it.
    pub spatial: bool,
    /// Its time slices can be set.
    pub slices: bool,
    /// Its work can be preempted.
    pub preemptible: bool,
    /// How long a slow preemption of it took; zero until one was seen.
    pub preempts_within: Span,
    /// Bytes it may allocate; `None`: as many as there are.
    pub memory_limit: Option<u64>,
}

impl TenantView {
    /// A tenant that has done nothing yet, of the standard class and without a share of its own.
    pub fn new(id: TenantId) -> TenantView {
        TenantView {
            id,
            class: Class::Standard,
            priority: 5,
            request: 0,
            boost: 0,
            limit: WHOLE,
            charged: Span::ZERO,
            wanted: Span::ZERO,
            burst: Span::ZERO,
            bursts: 0,
            ended: Vec::new(),
            objective: None,
            spatial: false,
            slices: false,
            preemptible: false,
            preempts_within: Span::ZERO,
            memory_limit: None,
        }
    }

    /// Who comes first when not everybody can: class, then priority. Less is more important.
    pub fn rank(&self) -> u32 {
        self.class.rank(self.priority)
    }
}

/// Everybody on one GPU, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuView {
    /// All tenants that live.
    pub tenants: Vec<TenantView>,
    /// Bytes of memory on the GPU.
    pub memory_total: u64,
}

/// Whether a tenant may launch at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It decides launch by launch.
    Open,
    /// It launches nothing.
    Held,
}

/// What the slow plane wants done. Nothing else is in its power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The tenant's charge may grow to this and then it waits; `Span::MAX` for no bound.
    SetAllowance {
        /// Whose.
        tenant: TenantId,
        /// The bound, on the same scale as [`TenantView::charged`].
        allowed: Span,
    },
    /// Hold or open a best-effort tenant's gate.
    SetGate {
        /// Whose.
        tenant: TenantId,
        /// Held or open.
        gate: Gate,
    },
    /// Bound what a best-effort tenant may have outstanding on the GPU.
    SetBudget {
        /// Whose.
        tenant: TenantId,
        /// GPU time.
        budget: Span,
    },
    /// Say what a best-effort tenant may launch in the middle of somebody's burst.
    SetAdmission {
        /// Whose.
        tenant: TenantId,
        /// What.
        admission: Admission,
    },
    /// Set the length of a tenant's time slices.
    SetSlice {
        /// Whose.
        tenant: TenantId,
        /// `None` for the driver's own.
        slice: Option<Span>,
    },
    /// Confine a tenant's long kernels to a part of the SMs.
    SetSmCap {
        /// Whose.
        tenant: TenantId,
        /// In thousandths.
        permille: u32,
    },
    /// Keep a tenant off the GPU around the time at which somebody is expected to need it; an end of zero for nobody.
    Reserve {
        /// Whom.
        tenant: TenantId,
        /// From when.
        from: Time,
        /// Until when.
        until: Time,
    },
    /// Bound what a tenant may allocate.
    SetMemoryLimit {
        /// Whose.
        tenant: TenantId,
        /// Bytes; never more than the GPU has.
        bytes: u64,
    },
}
