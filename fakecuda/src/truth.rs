//! What really happened, for tests to compare with what others saw: every process's counters on every GPU, those of
//! processes that ended as well.

use crate::book::Slot;
use crate::state::{Machine, State};
use std::fmt::Write;
use std::io::Result;
use std::path::Path;

/// One process on one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    /// The GPU's number.
    pub gpu: usize,
    /// Whether the process is still there.
    pub alive: bool,
    /// Its counters.
    pub counters: Slot,
}

/// Everybody's truth, those who ended first. A state file that is not there is made, with nobody in it.
pub fn read(path: &Path, machine: Machine) -> Result<Vec<Truth>> {
    Ok(read_state(&State::open(path, machine)?))
}

/// Everybody's truth in a state that is open.
pub fn read_state(state: &State) -> Vec<Truth> {
    let mut found = Vec::new();
    for gpu in (0..state.gpus()).filter_map(|index| state.gpu(index)) {
        let (living, dead) = gpu.everybody();
        let gpu = gpu.index();
        found.extend(dead.into_iter().map(|counters| Truth { gpu, alive: false, counters }));
        found.extend(living.into_iter().map(|counters| Truth { gpu, alive: true, counters }));
    }
    found
}

/// One line for each process on each GPU: `name=value` and spaces.
pub fn text(truths: &[Truth]) -> String {
    let mut text = String::new();
    for Truth { gpu, alive, counters } in truths {
        let _ = writeln!(
            text,
            "gpu={gpu} pid={} alive={} launches={} graph_launches={} graph_kernels={} synchronizations={} given_ns={} \
             submitted_ns={} used_bytes={} peak_bytes={} allocations={} refused={} turns={} slice_us={} held={}",
            counters.pid,
            u32::from(*alive),
            counters.launches,
            counters.graph_launches,
            counters.graph_kernels,
            counters.synchronizations,
            counters.given_ns,
            counters.submitted_ns,
            counters.used_bytes,
            counters.peak_bytes,
            counters.allocations,
            counters.refused,
            counters.turns,
            counters.slice_ns / 1000,
            counters.held,
        );
    }
    text
}
