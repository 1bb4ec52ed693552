//! What every policy answers, and what it is told.

use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// A worker as a policy makes it. Shares and quota in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::elastic) struct Shape {
    /// The share that it can count on.
    pub(in crate::elastic) request: u32,
    /// The share that it may reach.
    pub(in crate::elastic) limit: u32,
    /// The part of the time in which it may run.
    pub(in crate::elastic) quota: u32,
    /// Requests a second on its request, in its part of the time, in batches that leave time to wait.
    pub(in crate::elastic) throughput: f64,
}

/// Somebody on a GPU who has something to run.
#[derive(Clone, Copy, Debug)]
pub(in crate::elastic) struct Claim {
    /// Whether it trains.
    pub(in crate::elastic) training: bool,
    /// As it was placed.
    pub(in crate::elastic) request: u32,
    /// As it was placed.
    pub(in crate::elastic) limit: u32,
    /// As it was placed.
    pub(in crate::elastic) quota: u32,
    /// The share that a worker's batch wants, as [`Policy::wanted`] says.
    pub(in crate::elastic) wanted: u32,
    /// Whether its batch is in danger of being late, as [`Policy::late`] says.
    pub(in crate::elastic) late: bool,
    /// The share that its batch can use, as [`Policy::reach`] says.
    pub(in crate::elastic) reach: u32,
}

/// What somebody gets of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::elastic) struct Grant {
    /// Thousandths of the SMs while it runs.
    pub(in crate::elastic) share: f64,
    /// The part of the time in which it runs.
    pub(in crate::elastic) part: f64,
}

impl Grant {
    pub(super) fn always(share: f64) -> Grant {
        Grant { share, part: 1.0 }
    }
}

/// A batch that is about to run.
#[derive(Clone, Copy, Debug)]
pub(in crate::elastic) struct Batch {
    pub(in crate::elastic) size: usize,
    /// Seconds until the first of it must be answered.
    pub(in crate::elastic) left: f64,
    /// How many times as long as planned its worker's last batches took, neighbours being why.
    pub(in crate::elastic) slower: f64,
    /// Requests that wait beside it.
    pub(in crate::elastic) behind: usize,
    /// The share that its worker was stretched to.
    pub(in crate::elastic) stretched: u32,
}

/// How functions scale and who has how much of a GPU.
pub(in crate::elastic) trait Policy {
    /// The policy of `policy::placement` that places workers and training.
    fn placement(&self) -> &'static str;

    /// Shapes of a function's workers, none where none is fast enough.
    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape>;

    /// The shape that a function begins with, of so many.
    fn begins(&self, shapes: usize) -> usize {
        shapes - 1
    }

    /// What a part of a training job asks for: request, limit.
    fn training(&self, job: &Job) -> (u32, u32);

    /// Whether training stays off GPUs with other training.
    fn trains_apart(&self) -> bool {
        false
    }

    /// The share that a worker wants for a batch.
    fn wanted(&self, shape: &Shape, _latency: &Latency, _batch: Batch) -> u32 {
        shape.limit
    }

    /// Whether a worker's batch would be late on all of its limit. For who does not ask, none is.
    fn late(&self, _shape: &Shape, _latency: &Latency, _batch: Batch) -> bool {
        false
    }

    /// The share that a worker can have while nobody else wants it: its limit, unless idle shares may go beyond.
    fn reach(&self, shape: &Shape, _latency: &Latency, _batch: usize) -> u32 {
        shape.limit
    }

    /// Who gets how much of a GPU now, in the order of the claims.
    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>);

    /// What to do about a function.
    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action>;

    /// How often to look.
    fn every(&self) -> Span {
        Span::from_secs(1)
    }

    /// Whether a request with so much time left that meets no worker should wait.
    fn admits(&self, _now: Time, _function: usize, _left: Span) -> bool {
        true
    }
}
