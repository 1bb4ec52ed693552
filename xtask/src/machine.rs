//! The machine that a benchmark ran on, in words that name it to nobody.

use serde::{Deserialize, Serialize};

/// What matters of a machine for a benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's model.
    pub(crate) cpu: String,
    /// Cores that may be used.
    pub(crate) cores: usize,
}

impl Machine {
    /// The machine this runs on.
    pub(crate) fn here() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let cpu = model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned());
        Machine { cpu, cores }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(f, "{}, {} core{plural}", self.cpu, self.cores)
    }
}
