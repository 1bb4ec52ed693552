//! Workers that the cluster counts against worker processes that there are.

use super::gauges::Gauges;
use crate::server::{Process, command_line, is_alive, tree};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);

/// Worker processes that were ever seen below this program. Those of a node that died have another parent.
#[derive(Debug, Default)]
struct Workers(BTreeSet<Process>);

impl Workers {
    /// How many there are now.
    fn count(&mut self) -> usize {
        let is_python = |process: &Process| {
            let command = command_line(process);
            command.split(' ').next().is_some_and(|program| program.contains("python"))
        };
        self.0.extend(tree(std::process::id()).into_iter().filter(is_python));
        self.0.retain(is_alive);
        self.0.len()
    }
}

/// The most workers that were counted for some time and not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Phantoms {
    pub(super) longest: Duration,
    pub(super) most: usize,
}

#[derive(Debug, Default)]
struct State {
    workers: Workers,
    phantoms: Phantoms,
}

/// Counts again and again until it goes out of scope.
#[derive(Debug)]
pub(super) struct Census {
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
}

impl Census {
    /// Begins to ask the gateways whose metrics are on these ports.
    pub(super) fn start(ports: Vec<u16>) -> Census {
        let census = Census { state: Arc::default(), over: Arc::default() };
        let (state, over) = (census.state.clone(), census.over.clone());
        std::thread::spawn(move || {
            let mut since = vec![None; ports.len()];
            while !over.load(Relaxed) {
                for (port, since) in ports.iter().zip(&mut since) {
                    // Who counts is asked first: a worker that has just come is counted after it was there.
                    let counted = Gauges::of(*port).map_or(0, |gauges| gauges.workers as usize);
                    let mut state = lock(&state);
                    let there = state.workers.count();
                    if counted <= there {
                        *since = None;
                        continue;
                    }
                    let longest = since.get_or_insert_with(Instant::now).elapsed();
                    if longest >= state.phantoms.longest {
                        state.phantoms = Phantoms { longest, most: counted - there };
                    }
                }
                std::thread::sleep(EVERY);
            }
        });
        census
    }

    /// Worker processes that there are.
    pub(super) fn workers(&self) -> usize {
        lock(&self.state).workers.count()
    }

    /// The worst since this was asked last.
    pub(super) fn take(&self) -> Phantoms {
        std::mem::take(&mut lock(&self.state).phantoms)
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
