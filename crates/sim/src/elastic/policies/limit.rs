//! Static shares as large as a worker ever needs: the limit that its profile found, held for it alone. As many workers as
//! Knative's autoscaler says.

use super::division::{as_placed, fixed, profiled};
use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Everybody has its limit for itself.
#[derive(Debug)]
pub(super) struct Limit {
    scalers: Vec<Reactive>,
}

impl Limit {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Limit {
        Limit { scalers: Reactive::each(functions, latencies, shapes) }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    profiled(function).map_or(Vec::new(), |(_, limit)| fixed(limit, function, latency))
}

impl Policy for Limit {
    fn placement(&self) -> &'static str {
        "limit"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.limit.permille(), job.limit.permille())
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        as_placed(claims, grants);
    }

    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action> {
        self.scalers[function].look(now, view)
    }

    fn every(&self) -> Span {
        Reactive::EVERY
    }
}
