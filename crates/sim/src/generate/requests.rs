//! All requests of a run, in order. They do not depend on the policy.

use super::scenario::{Lengths, Scenario, Source};
use crate::workload::{Arrivals, Purpose, Rng, stream};
use policy::{Span, Time};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

/// A request that is to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// Which model, by place.
    pub model: usize,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens of the whole answer.
    pub output: u32,
    /// After how many tokens the client leaves, if it does.
    pub leaves: Option<u32>,
}

/// The requests of a scenario.
pub fn requests(scenario: &Scenario) -> Vec<Arrival> {
    let end = Time::ZERO + scenario.warmup + scenario.duration;
    let mut models = stream(scenario.seed, Purpose::Demands, 0);
    let mut lengths = stream(scenario.seed, Purpose::Demands, 1);
    let mut leaving = stream(scenario.seed, Purpose::Demands, 2);
    let mut arrival = |at: Time, prompt: u32, output: u32| {
        let leaves = leaving.random::<f64>() < scenario.leave;
        let part: f64 = leaving.random();
        let output = output.clamp(1, scenario.max_tokens);
        Arrival {
            at,
            model: model(scenario, &mut models),
            prompt,
            output,
            leaves: leaves.then(|| (part * f64::from(output)) as u32),
        }
    };
    match &scenario.source {
        Source::Trace(recorded) => {
            let last = recorded.last().map_or(0.0, |last| last.at);
            // As many a second, on average, as the scenario says.
            let scale = if last > 0.0 { recorded.len() as f64 / last / scenario.rate } else { 0.0 };
            let all = recorded.iter().map(|one| {
                let at = Time::ZERO + Span::from_secs_f64(one.at * scale);
                arrival(at, one.prompt, one.output)
            });
            all.filter(|arrival| arrival.at < end).collect()
        }
        Source::Drawn { spacing, prompt, output } => {
            let mut arrivals = Arrivals::new(spacing, 0, scenario.rate, scenario.seed);
            let mut at = arrivals.first();
            let mut all = Vec::new();
            while at < end {
                let (prompt, output) = (draw(prompt, &mut lengths), draw(output, &mut lengths));
                all.push(arrival(at, prompt, output));
                at = arrivals.after(at);
            }
            all
        }
    }
}

fn model(scenario: &Scenario, rng: &mut Rng) -> usize {
    let mut part: f64 = rng.random();
    for (place, model) in scenario.models.iter().enumerate() {
        part -= model.share;
        if part < 0.0 {
            return place;
        }
    }
    scenario.models.len() - 1
}

fn draw(lengths: &Lengths, rng: &mut Rng) -> u32 {
    let deviation: f64 = StandardNormal.sample(rng);
    ((lengths.median * (lengths.sigma * deviation).exp()).round() as u32).clamp(1, lengths.max)
}
