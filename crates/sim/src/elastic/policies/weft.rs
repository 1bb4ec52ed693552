//! Weft's own: the code that runs live, `policy::autoscale` for each function and `policy::sharing::divide` for each GPU.
//!
//! What is claimed: a worker is a latency tenant that was promised its request, and is boosted to what its batch needs to
//! be in time, at least what it was stretched to. Training is a best-effort tenant and was promised nothing: its request
//! finds it a place, and it has what the others leave. While somebody trains, workers want no more than their boosts, which
//! is where the controller holds best-effort work live. Where a batch would be late even so, as slow as its worker was of
//! late, training is held until it is done. Where nobody trains or training is held, workers want all that they can use,
//! beyond their limits too: limits are for finding places, and live a share has none that nobody set.
//! What a worker can do is planned with what neighbours are expected to cost, as `policy::predict` says.
//! Training stays off GPUs with other training: two jobs take the same share from each other at all times, while workers
//! leave theirs most of the time.

use super::{Batch, Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::autoscale::{Action, Admission, Autoscaler, LOOK, Service, Size, View, sizes};
use policy::predict::slowdown;
use policy::sharing::{self, Class, SharingConfig, WHOLE};
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
    config: SharingConfig,
}

impl Weft {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Weft {
        let scaler = |(function, latency): (&Function, &Latency)| {
            let sizes = known(function, latency);
            let service = Service::new(function.objective, function.replicas, sizes, function.cold_start);
            service.ok().map(Autoscaler::new)
        };
        let scalers = functions.iter().zip(latencies).map(scaler).collect();
        Weft { scalers, config: SharingConfig::default() }
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

    fn wanted(&self, shape: &Shape, latency: &Latency, batch: Batch) -> u32 {
        let least = batch.stretched.clamp(shape.request, shape.limit);
        latency.share_for(batch.size, least, shape.limit, batch.left / batch.slower * MARGIN)
    }

    fn late(&self, shape: &Shape, latency: &Latency, batch: Batch) -> bool {
        latency.seconds(batch.size, f64::from(shape.limit)) * batch.slower > batch.left * MARGIN
    }

    fn reach(&self, shape: &Shape, latency: &Latency, batch: usize) -> u32 {
        latency.enough(batch).max(shape.limit)
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        let held = claims.iter().any(|claim| claim.late);
        let trains = !held && claims.iter().any(|claim| claim.training);
        let own = |claim: &Claim| match claim.training {
            true => {
                let (class, demand) = (Class::BestEffort, if held { 0 } else { WHOLE });
                sharing::Claim { class, rank: class as u32, request: 0, boost: 0, limit: WHOLE, demand, used: 0 }
            }
            false => {
                let (class, demand) = (Class::Latency, if trains { claim.wanted } else { claim.reach });
                let (request, boost, limit) = (claim.request, claim.wanted, claim.reach);
                sharing::Claim { class, rank: class as u32, request, boost, limit, demand, used: demand }
            }
        };
        let own: Vec<sharing::Claim> = claims.iter().map(own).collect();
        let given = sharing::divide(WHOLE, self.config.share_least, &own);
        // What was given is what may be used. Nobody uses more than it wants, and all together no more than there is: those
        // who may use more than that slow each other down.
        let used = || own.iter().zip(&given).map(|(claim, given)| f64::from(claim.demand.min(*given)));
        let fits = (f64::from(WHOLE) / used().sum::<f64>().max(1.0)).min(1.0);
        grants.extend(used().map(|share| Grant::always(share * fits)));
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
    fn a_gpu_is_divided_as_it_is_live() {
        let worker =
            Claim { training: false, request: 100, limit: 200, quota: 1_000, wanted: 100, late: false, reach: 600 };
        let job = Claim { training: true, request: 500, limit: 500, wanted: 500, reach: 500, ..worker };
        let shares = |claims: &[Claim]| {
            let mut grants = Vec::new();
            Weft::new(&[], &[]).divide(claims, &mut grants);
            grants.iter().map(|grant| (grant.share * 10.0).round() / 10.0).collect::<Vec<f64>>()
        };
        assert_eq!(shares(&[worker]), [600.0], "all that it can use");
        assert_eq!(shares(&[worker, worker]), [500.0, 500.0], "of what there is, each the same");
        let less = Claim { reach: 300, ..worker };
        assert_eq!(shares(&[worker, less]), [600.0, 300.0]);
        let boosted = Claim { wanted: 500, ..worker };
        assert_eq!(shares(&[worker, boosted]), [400.0, 600.0], "a boost comes before what is left");
        let full = [Claim { request: 500, limit: 500, ..worker }, Claim { request: 500, limit: 500, ..worker }];
        assert_eq!(shares(&full), [500.0, 500.0], "and nothing that is not there");
        assert_eq!(shares(&[worker, job]), [100.0, 900.0], "training has what is left");
        let most = Claim { wanted: 600, ..worker };
        assert_eq!(shares(&[most, most, job]), [495.0, 495.0, 9.9], "and what nobody is denied");
        let late = Claim { late: true, ..boosted };
        assert_eq!(shares(&[late, job]), [600.0, 0.0], "it is held while a batch would be late");
    }
}
