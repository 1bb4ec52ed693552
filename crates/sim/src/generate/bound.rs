//! What no policy can do better: the time that requests take when floors are shared as far as objectives allow.

use super::requests::requests;
use super::scenario::Scenario;

/// Requests a second that the GPUs could answer on average if steps cost nothing but what they are made of: no floors, no
/// bursts, no queues, and models spread evenly over GPUs.
pub fn bound(scenario: &Scenario) -> f64 {
    let all = requests(scenario);
    let work: f64 = all
        .iter()
        .map(|request| {
            let truth = &scenario.models[request.model].truth;
            let (prompt, output) = (f64::from(request.prompt), f64::from(request.output));
            let decodes = output - 1.0;
            truth.prefill_token * prompt
                + truth.attention * prompt * prompt / 2.0
                + truth.sequence * output
                + truth.cached_token * decodes * (prompt + output / 2.0)
        })
        .sum();
    if work > 0.0 { all.len() as f64 * scenario.gpus.len() as f64 / (work / 1e9) } else { 0.0 }
}
