//! What people do today: a GPU for every worker and for every part of a training job, and as many workers as Knative's
//! autoscaler says.

use super::division::{as_placed, fixed};
use super::reactive::Reactive;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Shares no GPU.
#[derive(Debug)]
pub(super) struct Exclusive {
    scalers: Vec<Reactive>,
}

impl Exclusive {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Exclusive {
        Exclusive { scalers: Reactive::each(functions, latencies, shapes) }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    fixed(1_000, function, latency)
}

impl Policy for Exclusive {
    fn placement(&self) -> &'static str {
        "exclusive"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, _job: &Job) -> (u32, u32) {
        (1_000, 1_000)
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
