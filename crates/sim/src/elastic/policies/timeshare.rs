//! Time slices of whole GPUs, as the driver and Kubernetes' time-slicing plugin give them: workers are placed by the part
//! of the time that they need on average, and whoever has work has an equal part of the time of all SMs. As many workers
//! as Knative's autoscaler says.

use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Tenants that a GPU is sliced for.
const TENANTS: u32 = 2;

/// One at a time.
#[derive(Debug)]
pub(super) struct TimeShare {
    scalers: Vec<Reactive>,
}

impl TimeShare {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> TimeShare {
        TimeShare { scalers: Reactive::each(functions, latencies, shapes) }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    let part = 1_000 / TENANTS;
    // Within its slices a batch takes as much longer as there are tenants.
    let throughput = latency.throughput(1_000, function.execution().scale(1, TENANTS.into())) / f64::from(TENANTS);
    let shape = Shape { request: part, limit: part, quota: 1_000, throughput };
    if throughput > 0.0 { vec![shape] } else { Vec::new() }
}

impl Policy for TimeShare {
    fn placement(&self) -> &'static str {
        "request"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, _job: &Job) -> (u32, u32) {
        (1_000 / TENANTS, 1_000 / TENANTS)
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        let part = 1.0 / claims.len() as f64;
        grants.extend(claims.iter().map(|_| Grant { share: 1_000.0, part }));
    }

    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action> {
        self.scalers[function].look(now, view)
    }

    fn every(&self) -> Span {
        Reactive::EVERY
    }
}
