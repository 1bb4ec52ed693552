//! Weft's own: the code that runs live, `policy::autoscale`, for each function.
//!
//! Shares as `policy::sharing` gives them: a worker has what it was stretched to, or more, up to its limit, where its
//! batch would be late otherwise; training is best-effort and has all that is left, so its limit reserves nothing. Where
//! a batch would be late even so, as slow as its worker was of late, training is held until it is done. Where nobody
//! trains, what would be idle goes to whoever has a batch, beyond its limit too: limits are for finding places, and live
//! a share has none that nobody set.
//! What a worker can do is planned with what neighbours are expected to cost, as `policy::predict` says.
//! Training stays off GPUs with other training: two jobs take the same share from each other at all times, while workers
//! leave theirs most of the time.

use super::division::stretched;
use super::{Batch, Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, Admission, Autoscaler, LOOK, Service, Size, View, sizes};
use policy::predict::slowdown;
use policy::surface::Share;
use policy::{Span, Time};

/// The part of the time left that a batch is planned to take.
const MARGIN: f64 = 0.8;
/// The part of what a worker leaves of a GPU that others are thought to compute on, where it is planned what it can do.
const NEIGHBOURS: f64 = 0.5;

/// A scaler for each function; none for one that no size is fast enough for.
#[derive(Debug)]
pub(super) struct Weft {
    scalers: Vec<Option<Autoscaler>>,
}

impl Weft {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Weft {
        let scaler = |(function, latency): (&Function, &Latency)| {
            let sizes = known(function, latency);
            let service = Service::new(function.objective, function.replicas, sizes, function.cold_start);
            service.ok().map(Autoscaler::new)
        };
        Weft { scalers: functions.iter().zip(latencies).map(scaler).collect() }
    }
}

/// Gives what is idle to those who can use it, in proportion to what they lack.
fn lend(claims: &[Claim], grants: &mut [Grant]) {
    let idle = 1_000.0 - grants.iter().map(|grant| grant.share).sum::<f64>();
    let lacks = |claim: &Claim, grant: &Grant| (claim.reach - grant.share).max(0.0);
    let lacking: f64 = claims.iter().zip(&*grants).map(|(claim, grant)| lacks(claim, grant)).sum();
    if idle <= 0.0 || lacking <= 0.0 {
        return;
    }
    let part = (idle / lacking).min(1.0);
    for (claim, grant) in claims.iter().zip(grants) {
        grant.share += lacks(claim, grant) * part;
    }
}

/// Sizes of the profile, with what batches of this function's largest size do.
fn known(function: &Function, latency: &Latency) -> Vec<Size> {
    let does = |share: Share| {
        let part = f64::from(share.permille()) / 1e3;
        let slower = slowdown(part, (1.0 - part) * NEIGHBOURS);
        latency.throughput(share.permille(), Span::from_secs_f64(function.execution().seconds() / slower)) / slower
    };
    let sizes = sizes(&function.surface, function.execution()).into_iter();
    let sizes = sizes.map(|size| {
        let throughput = does(size.request);
        Size { throughput, throughput_limit: does(size.limit).max(throughput), ..size }
    });
    sizes.filter(|size| size.throughput > 0.0).collect()
}

impl Policy for Weft {
    fn placement(&self) -> &'static str {
        "weft"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        let shape = |size: Size| Shape {
            request: size.request.permille(),
            limit: size.limit.permille(),
            quota: 1_000,
            throughput: size.throughput,
        };
        known(function, latency).into_iter().map(shape).collect()
    }

    fn begins(&self, shapes: usize) -> usize {
        // The smallest that is stretched, where there is one.
        1.min(shapes - 1)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.request.permille(), job.request.permille())
    }

    fn trains_apart(&self) -> bool {
        true
    }

    fn wanted(&self, shape: &Shape, latency: &Latency, batch: Batch) -> f64 {
        let least = batch.stretched.clamp(shape.request, shape.limit);
        latency.share_for(batch.size, least, shape.limit, batch.left / batch.slower * MARGIN)
    }

    fn late(&self, shape: &Shape, latency: &Latency, batch: Batch) -> bool {
        latency.seconds(batch.size, f64::from(shape.limit)) * batch.slower > batch.left * MARGIN
    }

    fn reach(&self, shape: &Shape, latency: &Latency, batch: usize) -> f64 {
        latency.enough(batch).max(f64::from(shape.limit))
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        stretched(claims, grants, |_| 1_000);
        if claims.iter().all(|claim| !claim.training) {
            lend(claims, grants);
        }
        if claims.iter().any(|claim| claim.late) {
            let training = claims.iter().zip(grants).filter(|(claim, _)| claim.training);
            training.for_each(|(_, grant)| grant.share = 0.0);
        }
    }

    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action> {
        self.scalers[function].as_mut().map_or(Vec::new(), |scaler| scaler.look(now, view))
    }

    fn every(&self) -> Span {
        LOOK
    }

    fn admits(&self, now: Time, function: usize, left: Span) -> bool {
        let scaler = self.scalers[function].as_ref();
        scaler.is_some_and(|scaler| matches!(scaler.admit(now, left), Admission::Wait { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_idle_is_lent_and_not_where_somebody_trains() {
        let worker =
            Claim { training: false, request: 100, limit: 200, quota: 1_000, wanted: 100.0, late: false, reach: 600.0 };
        let job = Claim { training: true, request: 500, limit: 500, wanted: 500.0, reach: 500.0, ..worker };
        let shares = |claims: &[Claim]| {
            let mut grants = Vec::new();
            Weft::new(&[], &[]).divide(claims, &mut grants);
            grants.iter().map(|grant| grant.share).collect::<Vec<f64>>()
        };
        assert_eq!(shares(&[worker]), [600.0], "all that it can use");
        assert_eq!(shares(&[worker, worker]), [500.0, 500.0], "of what there is, each the same");
        let less = Claim { reach: 300.0, ..worker };
        assert_eq!(shares(&[worker, less]), [600.0, 300.0]);
        let full = [Claim { request: 500, limit: 500, ..worker }, Claim { request: 500, limit: 500, ..worker }];
        assert_eq!(shares(&full), [500.0, 500.0], "and nothing that is not there");
        assert_eq!(shares(&[worker, job]), [100.0, 900.0], "training has what is left");
    }
}
