//! At 30% of what Weft can serve, GPUs that nobody needs stay idle as a whole, so that they can be given back.
//!
//! The oracle knows the traffic and serves it on as few GPUs as a fluid would need; Weft must leave at least half
//! as many GPUs idle (under 1% busy).

use policy::{LatencyTable, Network, Span};
use sim::{GpuGroup, ModelSpec, Scenario, Spacing, bound};

/// Models of 1.053b + 5.072 ms, by share, on eight GPUs.
fn scenario(objective: Span, shares: &[f64], rate: f64) -> Scenario {
    let table = LatencyTable::line(Span::from_micros(1_053), Span::from_micros(5_072), 512).within(objective);
    let total: f64 = shares.iter().sum();
    let model = |(index, share): (usize, &f64)| ModelSpec {
        name: format!("model-{index}"),
        objective,
        share: share / total,
        tables: vec![table.clone()],
    };
    Scenario {
        seed: 1,
        warmup: Span::from_secs(5),
        duration: Span::from_secs(60),
        policy: "weft".to_owned(),
        rate,
        gpus: vec![GpuGroup { kind: "gpu".to_owned(), count: 8, speed: 1.0 }],
        network: Network::default(),
        arrivals: Spacing::Poisson,
        noise: 0.0,
        failures: Vec::new(),
        models: shares.iter().enumerate().map(model).collect(),
        give_up_at: None,
    }
}

#[track_caller]
fn check(scenario: &Scenario) {
    let report = sim::run(scenario);
    let oracle = 8 - bound::gpus_needed(scenario).ceil() as usize;
    let idle = report.gpu_busy.iter().filter(|busy| **busy < 0.01).count();
    assert!(2 * idle >= oracle, "{idle} idle, an oracle leaves {oracle}: {:?}", report.gpu_busy);
    assert!(report.bad_worst < 0.001, "{} of {} are bad", report.bad_worst, report.worst_model);
}

#[test]
fn one_model() {
    check(&scenario(Span::from_millis(25), &[1.0], 1_640.0));
}

#[test]
fn twenty_models_of_falling_popularity() {
    let zipf: Vec<f64> = (1..=20).map(|rank| f64::from(rank).powf(-0.9)).collect();
    check(&scenario(Span::from_millis(100), &zipf, 1_870.0));
}
