//! What a profile gives every policy.

use crate::elastic::scenario::Function;

/// Request and limit of the most efficient size, in thousandths; nothing where no size meets the objective.
pub(super) fn profiled(function: &Function) -> Option<(u32, u32)> {
    let (request, limit) = policy::autoscale::profiled(&function.surface, function.execution())?;
    Some((request.permille(), limit.permille()))
}
