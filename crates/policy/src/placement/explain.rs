//! Plans in words.

use super::{Demand, Piece, Plan, Reason, State, WHOLE};
use crate::InstanceId;

/// A line for each step of a plan, as it stands before the plan is carried out.
pub fn explain(state: &State, demand: &Demand, plan: &Plan) -> Vec<String> {
    let mut after = state.clone();
    let mut lines = Vec::new();
    for step in &plan.moves {
        let Some(service) = state.instances().get(&step.instance).map(|instance| &instance.demand.service) else {
            lines.push(format!("instance {} moves, and is not there", step.instance.0));
            continue;
        };
        let moved = after.shift(std::slice::from_ref(step));
        let to: Vec<String> = step.to.iter().map(|piece| line(&after, piece)).collect();
        lines.push(match moved {
            Ok(()) => format!("{service} moves to {}", to.join(" and ")),
            Err(stale) => format!("{service} cannot move: {stale}"),
        });
    }
    // A name that nobody has, so that it is only looked at.
    let id = state.instances().last_key_value().map_or(InstanceId(0), |(last, _)| InstanceId(last.0.wrapping_add(1)));
    let last = Plan { moves: Vec::new(), pieces: plan.pieces.clone() };
    match after.apply(id, demand.clone(), &last) {
        _ if plan.pieces.is_empty() => {}
        Ok(()) => lines.extend(plan.pieces.iter().map(|piece| line(&after, piece))),
        Err(stale) => lines.push(format!("{} cannot be placed: {stale}", demand.service)),
    }
    lines
}

/// What a GPU looks like with this piece on it, and why it was chosen.
fn line(after: &State, piece: &Piece) -> String {
    let (gpu, room) = (&after.gpus()[piece.gpu.index()], &after.rooms()[piece.gpu.index()]);
    let why = match piece.reason {
        Reason::Opens => "no GPU in use has room".to_owned(),
        Reason::Complements(other) => match after.instances().get(&other) {
            Some(other) => format!("complements {}", other.demand.service),
            None => "complements what is there".to_owned(),
        },
        Reason::Fits => "leaves the least memory free".to_owned(),
        Reason::Fragment => format!("holds {} GB of it in a fragment", giga(piece.need.memory)),
        Reason::Cleared => "others moved to make room".to_owned(),
        Reason::Alone => "shares with nobody".to_owned(),
    };
    let request = f64::from(WHOLE - room.request) / f64::from(WHOLE);
    format!(
        "gpu {}: request {request:.2} of 1.00 taken, {why}; memory {} of {} GB",
        piece.gpu.0,
        giga(gpu.memory - room.memory),
        giga(gpu.memory)
    )
}

/// Bytes in GB of 2^30, without needless decimals.
pub(super) fn giga(bytes: u64) -> String {
    let value = bytes as f64 / (1u64 << 30) as f64;
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
