//! How long a request takes by itself, against its objective.

use config::{Kind, ModelSpec};
use policy::{Network, Span};

/// Steps in which objectives are proposed, in tenths.
const STEPS: [u64; 11] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100];

/// How long a request takes by itself, from its arrival to its answer.
pub(crate) fn alone(latency: Span, network: &Network) -> Span {
    latency + network.control + network.data_per_request + network.response
}

/// Why a model is not ready that takes so long for a request; none where it is fast enough.
pub(crate) fn too_slow(spec: &ModelSpec, latency: Span, network: &Network) -> Option<String> {
    let takes = alone(latency, network);
    (takes > spec.slo).then(|| {
        format!(
            "one request takes {} and its objective is {}: deploy it with `--slo {}` or more",
            rounded(takes),
            spec.slo,
            proposal(takes)
        )
    })
}

/// The same for a model that only takes time.
pub(crate) fn virtual_too_slow(spec: &ModelSpec, network: &Network) -> Option<String> {
    match spec.kind {
        Kind::Virtual { latency } => too_slow(spec, latency.alpha + latency.beta, network),
        _ => None,
    }
}

/// Three digits are enough for people.
fn rounded(span: Span) -> Span {
    let unit = 10u64.pow(span.nanos().max(1).ilog10().saturating_sub(2));
    Span::from_nanos(span.nanos().div_ceil(unit) * unit)
}

/// An objective with room for a quarter more than a request takes, in a round number.
fn proposal(takes: Span) -> Span {
    let least = takes.nanos().saturating_add(takes.nanos() / 4).max(10);
    let unit = 10u64.pow(least.ilog10()) / 10;
    let step = STEPS.into_iter().find(|step| step * unit >= least).unwrap_or(100);
    Span::from_nanos(step * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_that_would_do_is_a_round_number() {
        let check = |takes, expected: Span| assert_eq!(proposal(takes), expected, "{takes}");
        check(Span::from_millis(180), Span::from_millis(250));
        check(Span::from_millis(81), Span::from_millis(120));
        check(Span::from_millis(8), Span::from_millis(10));
        check(Span::from_micros(1_234_567), Span::from_secs(2));
        assert_eq!(rounded(Span::from_nanos(181_234_567)), Span::from_millis(182));
        for nanos in [0, 1, 9, 10, 11, 99, 1_000_000_007] {
            assert!(proposal(Span::from_nanos(nanos)) > Span::from_nanos(nanos));
        }
    }
}
