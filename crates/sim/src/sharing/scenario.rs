//! What is simulated: a GPU and its tenants. Plain data, checked when it was read.

use super::gpu::GpuSpec;
use policy::Span;
use policy::sharing::{Class, WHOLE};

/// Everything a run depends on, but for the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// From which all randomness is drawn.
    pub seed: u64,
    /// Simulated but not counted.
    pub warmup: Span,
    /// Counted.
    pub duration: Span,
    /// Relative standard deviation of kernels and gaps around their lengths.
    pub noise: f64,
    /// The GPU.
    pub gpu: GpuSpec,
    /// Who shares it.
    pub tenants: Vec<TenantSpec>,
}

/// One program.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSpec {
    /// Its name.
    pub name: String,
    /// What it was promised.
    pub class: Class,
    /// 0, the most important, to 9.
    pub priority: u8,
    /// Guaranteed, in thousandths of the GPU.
    pub request: u32,
    /// Never to be exceeded, in thousandths of the GPU.
    pub limit: u32,
    /// How long it may take from a launch after a pause to the end of what follows; as alone where nothing was said.
    pub objective: Option<Span>,
    /// What one request launches, in order; the last waits for all.
    pub kernels: Vec<Kernel>,
    /// When requests come.
    pub load: Load,
}

/// One launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// How long it takes with the GPU to itself.
    pub duration: Span,
    /// How long the host is busy before it launches the next one: after this launch or, with `sync`, after the wait.
    pub gap: Span,
    /// The host waits until all it launched is done.
    pub sync: bool,
    /// SMs that it keeps busy, in thousandths.
    pub sms: u32,
    /// Bound by memory rather than by arithmetic.
    pub memory_bound: bool,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// The next comes this long after the last was answered.
    Closed {
        /// How long after.
        think: Span,
    },
    /// Memoryless, at this many a second on average, however long they take.
    Poisson {
        /// Requests a second.
        rate: f64,
    },
    /// At equal intervals, however long they take.
    Every {
        /// From one to the next.
        interval: Span,
    },
}

impl TenantSpec {
    /// A closed loop of these kernels, of the standard class and without a share of its own.
    pub fn new(name: &str, kernels: Vec<Kernel>) -> TenantSpec {
        TenantSpec {
            name: name.to_owned(),
            class: Class::Standard,
            priority: 5,
            request: 0,
            limit: WHOLE,
            objective: None,
            kernels,
            load: Load::Closed { think: Span::ZERO },
        }
    }

    /// The same with every stretch between two syncs launched as one graph.
    pub fn as_graphs(mut self) -> TenantSpec {
        let mut graphs: Vec<Kernel> = Vec::new();
        let mut open = false;
        for kernel in &self.kernels {
            match graphs.last_mut().filter(|_| open) {
                Some(graph) => {
                    graph.duration += kernel.duration;
                    graph.sms = graph.sms.max(kernel.sms);
                    (graph.gap, graph.sync) = (kernel.gap, kernel.sync);
                }
                None => graphs.push(*kernel),
            }
            open = !kernel.sync;
        }
        self.kernels = graphs;
        self
    }
}
