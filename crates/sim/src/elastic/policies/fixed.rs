//! Shares that do not change, as large as they are said to be, and as many workers as Knative's autoscaler says.

use super::profiled::profiled;
use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// How large shares are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    /// A GPU for every worker and for every part of a training job: what people do today.
    Whole,
    /// As large as a worker ever needs: the limit that its profile found.
    Limit,
    /// As small as a worker can do with: the request that its profile found, at which it does most for its share.
    Request,
}

/// Everybody has its share for itself, and no more.
#[derive(Debug)]
pub(super) struct Fixed {
    size: Size,
    scalers: Vec<Reactive>,
}

impl Fixed {
    pub(super) fn new(size: Size, functions: &[Function], latencies: &[Latency]) -> Fixed {
        Fixed {
            size,
            scalers: Reactive::each(functions, latencies, |function, latency| size.shapes(function, latency)),
        }
    }
}

impl Size {
    /// One shape of this size, where it is fast enough.
    fn shapes(self, function: &Function, latency: &Latency) -> Vec<Shape> {
        let share = match self {
            Size::Whole => Some(1_000),
            Size::Limit => profiled(function).map(|(_, limit)| limit),
            Size::Request => profiled(function).map(|(request, _)| request),
        };
        let Some(share) = share else { return Vec::new() };
        let throughput = latency.throughput(share, function.execution());
        let shape = Shape { request: share, limit: share, quota: 1_000, throughput };
        if throughput > 0.0 { vec![shape] } else { Vec::new() }
    }
}

impl Policy for Fixed {
    fn placement(&self) -> &'static str {
        match self.size {
            Size::Whole => "exclusive",
            Size::Limit => "limit",
            Size::Request => "request",
        }
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        self.size.shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        let share = match self.size {
            Size::Whole => 1_000,
            Size::Limit => job.limit.permille(),
            Size::Request => job.request.permille(),
        };
        (share, share)
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        grants.extend(claims.iter().map(|claim| Grant::always(f64::from(claim.request))));
    }

    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action> {
        self.scalers[function].look(now, view)
    }

    fn every(&self) -> Span {
        Reactive::EVERY
    }
}
