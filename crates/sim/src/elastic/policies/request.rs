//! Static shares as small as a worker can do with: the request that its profile found, at which it does most for its share.
//! As many workers as Knative's autoscaler says.

use super::division::{as_placed, fixed, profiled};
use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Everybody has its request and no more.
#[derive(Debug)]
pub(super) struct Request {
    scalers: Vec<Reactive>,
}

impl Request {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Request {
        Request { scalers: Reactive::each(functions, latencies, shapes) }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    profiled(function).map_or(Vec::new(), |(request, _)| fixed(request, function, latency))
}

impl Policy for Request {
    fn placement(&self) -> &'static str {
        "request"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.request.permille(), job.request.permille())
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
