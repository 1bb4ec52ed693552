//! MPS as it is commonly set up: clients are placed by what they need on average, each may reach its limit (the active
//! thread percentage), and nobody is held. Where those who run reach for more than there is, all are slowed in
//! proportion, training and inference alike. As many workers as Knative's autoscaler says.

use super::profiled::profiled;
use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Limits, over-committed.
#[derive(Debug)]
pub(super) struct Mps {
    scalers: Vec<Reactive>,
}

impl Mps {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Mps {
        Mps { scalers: Reactive::each(functions, latencies, shapes) }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    let Some((request, limit)) = profiled(function) else { return Vec::new() };
    vec![Shape { request, limit, quota: 1_000, throughput: latency.throughput(request, function.execution()) }]
}

impl Policy for Mps {
    fn placement(&self) -> &'static str {
        "request"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.request.permille(), job.limit.permille())
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        let reach: f64 = claims.iter().map(|claim| f64::from(claim.limit)).sum();
        let part = (1_000.0 / reach).min(1.0);
        grants.extend(claims.iter().map(|claim| Grant::always(f64::from(claim.limit) * part)));
    }

    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action> {
        self.scalers[function].look(now, view)
    }

    fn every(&self) -> Span {
        Reactive::EVERY
    }
}
