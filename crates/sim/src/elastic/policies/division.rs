//! What several policies do: shapes from a profile, and shares that do not change.

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
