//! A tenant's host thread: what it does next, and the lengths that its kernels and gaps turn out to have. Draws come
//! from streams of the tenant's own, in the order of its launches, so that every policy meets the same ones.

use super::scenario::{Kernel, Load, TenantSpec};
use crate::workload::{Arrivals, Purpose, Rng, Spacing, stream};
use policy::{Span, Time};
use rand_distr::{Distribution, StandardNormal};
use std::collections::VecDeque;

/// Launches that CUDA takes before it blocks the next.
pub(super) const QUEUE: u32 = 1024;

/// What the host thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Waits for a request.
    Nothing,
    /// Computes, until an event.
    Computing,
    /// Asks for the launch of its next kernel.
    Asking,
    /// Launched more than fits the queue.
    Blocked,
    /// Waits for what it launched.
    Syncing,
}

/// The request that it works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) arrived: Time,
    /// The next kernel.
    pub(super) next: usize,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) kernels: Vec<Kernel>,
    pub(super) load: Load,
    pub(super) doing: Doing,
    pub(super) request: Option<Request>,
    pub(super) waiting: VecDeque<Time>,
    noise: f64,
    durations: Rng,
    gaps: Rng,
    arrivals: Arrivals,
}

impl Tenant {
    pub(super) fn new(spec: &TenantSpec, index: usize, seed: u64, noise: f64) -> Tenant {
        let (spacing, rate) = match spec.load {
            Load::Closed { .. } => (Spacing::Poisson, 0.0),
            Load::Poisson { rate } => (Spacing::Poisson, rate),
            Load::Every { interval } => (Spacing::Constant, 1e9 / interval.nanos() as f64),
        };
        Tenant {
            kernels: spec.kernels.clone(),
            load: spec.load,
            doing: Doing::Nothing,
            request: None,
            waiting: VecDeque::new(),
            noise,
            durations: stream(seed, Purpose::Kernels, index),
            gaps: stream(seed, Purpose::Gaps, index),
            arrivals: Arrivals::new(&spacing, index, rate, seed),
        }
    }

    /// When the first request comes.
    pub(super) fn first(&mut self) -> Time {
        match self.load {
            Load::Closed { .. } => Time::ZERO,
            _ => self.arrivals.first(),
        }
    }

    /// When the next request comes after one that came now; a closed loop has none until that one is answered.
    pub(super) fn after(&mut self, now: Time) -> Time {
        match self.load {
            Load::Closed { .. } => Time::NEVER,
            _ => self.arrivals.after(now),
        }
    }

    /// How long a kernel takes this time.
    pub(super) fn duration(&mut self, kernel: usize) -> Span {
        let length = self.kernels[kernel].duration;
        vary(length, self.noise, &mut self.durations).max(Span::from_nanos(1))
    }

    /// How long the host computes this time.
    pub(super) fn gap(&mut self, length: Span) -> Span {
        vary(length, self.noise, &mut self.gaps)
    }
}

/// A length that varies, by no more than to a third and to three times of it.
fn vary(length: Span, noise: f64, rng: &mut Rng) -> Span {
    if noise == 0.0 {
        return length;
    }
    let draw: f64 = StandardNormal.sample(rng);
    let thousandths = ((1.0 + noise * draw).clamp(0.333, 3.0) * 1e3) as u64;
    length.scale(thousandths, 1_000)
}
