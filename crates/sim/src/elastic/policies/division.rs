//! What several policies do: shapes from a profile, and who has how much of a GPU.

use super::{Claim, Grant, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::Function;

/// What a profile gives everybody: request and limit of the most efficient size, in thousandths; nothing where no size
/// meets the objective.
pub(super) fn profiled(function: &Function) -> Option<(u32, u32)> {
    let (request, limit) = policy::autoscale::profiled(&function.surface, function.execution())?;
    Some((request.permille(), limit.permille()))
}

/// One shape with a fixed share.
pub(super) fn fixed(share: u32, function: &Function, latency: &Latency) -> Vec<Shape> {
    let throughput = latency.throughput(share, function.execution());
    let shape = Shape { request: share, limit: share, quota: 1_000, throughput };
    if throughput > 0.0 { vec![shape] } else { Vec::new() }
}

/// Everybody has the share it was placed with.
pub(super) fn as_placed(claims: &[Claim], grants: &mut Vec<Grant>) {
    grants.extend(claims.iter().map(|claim| Grant::always(f64::from(claim.request))));
}

/// Serving first: requests, then what batches want beyond them, which is their limit where nobody trains. Training has what
/// is left, up to `training`: requests, or the same part of each, then the rest in proportion to them.
pub(super) fn stretched(claims: &[Claim], grants: &mut Vec<Grant>, training: impl Fn(&Claim) -> u32) {
    let serving = || claims.iter().filter(|claim| !claim.training);
    let alone = claims.iter().all(|claim| !claim.training);
    let wanted = |claim: &Claim| if alone { f64::from(claim.limit) } else { claim.wanted };
    let floor = |claim: &Claim| wanted(claim).min(f64::from(claim.request));
    let sure: f64 = serving().map(floor).sum();
    let more: f64 = serving().map(|claim| wanted(claim) - floor(claim)).sum();
    let part = if more > 0.0 { ((1_000.0 - sure).max(0.0) / more).min(1.0) } else { 0.0 };
    let left = (1_000.0 - sure - more * part).max(0.0);
    let jobs = || claims.iter().filter(|claim| claim.training);
    let asked: f64 = jobs().map(|claim| f64::from(claim.request)).sum();
    let beyond: f64 = jobs().map(|claim| f64::from(training(claim) - claim.request)).sum();
    let kept = if asked > left { left / asked } else { 1.0 };
    let rest = if beyond > 0.0 { ((left - asked).max(0.0) / beyond).min(1.0) } else { 0.0 };
    for claim in claims {
        let share = match claim.training {
            true => f64::from(claim.request) * kept + f64::from(training(claim) - claim.request) * rest,
            false => floor(claim) + (wanted(claim) - floor(claim)) * part,
        };
        grants.push(Grant::always(share));
    }
}
