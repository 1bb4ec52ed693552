//! GPUs, as far as there are any: whoever can ask the driver tells the metrics port.

/// A GPU at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuView {
    /// The node it is in.
    pub node: String,
    /// Its number there.
    pub gpu: u32,
    /// What the driver calls this very one.
    pub uuid: String,
    /// What it is sold as.
    pub name: String,
    /// The part of the last moments in which it ran something, 0 to 1.
    pub utilization: f64,
    /// Memory in use.
    pub memory_bytes: u64,
    /// Memory it has.
    pub memory_total_bytes: u64,
}

/// Where the metrics port learns of GPUs.
pub trait GpuSource: Send + Sync {
    /// All GPUs at this moment. Called once a second on a thread that may wait.
    fn gpus(&self) -> Vec<GpuView>;
}
