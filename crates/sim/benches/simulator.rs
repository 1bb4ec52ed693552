//! The simulator on one core: simulated requests a second, 100 models on 128 GPUs.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use policy::{LatencyTable, Network, Span};
use sim::{GpuGroup, ModelSpec, Scenario, Spacing};
use std::time::Duration;

const POLICIES: [&str; 3] = ["deferred", "eager", "weft"];
const MODELS: usize = 100;
/// Alpha, beta and objective in milliseconds, measured on an A100; models take them in turn.
const A100: [(f64, f64, f64); 11] = [
    (3.3278, 10.957, 128.4),
    (0.321, 10.237, 30.7),
    (0.3699, 14.754, 41.3),
    (0.4794, 17.426, 50.2),
    (0.1962, 7.829, 21.9),
    (0.1676, 3.948, 13.3),
    (0.4197, 6.956, 27.3),
    (0.5463, 10.92, 39.3),
    (0.3021, 3.681, 17.0),
    (0.5759, 0.946, 20.3),
    (0.6618, 1.138, 23.5),
];

fn scenario(policy: &str) -> Scenario {
    let weights: Vec<f64> = (1..=MODELS).map(|rank| (rank as f64).powf(-0.9)).collect();
    let total: f64 = weights.iter().sum();
    let model = |(index, weight): (usize, &f64)| {
        let (alpha, beta, objective) = A100[index % A100.len()];
        let objective = Span::from_millis_f64(objective);
        let table = LatencyTable::line(Span::from_millis_f64(alpha), Span::from_millis_f64(beta), 512);
        ModelSpec { name: format!("m{index}"), objective, share: weight / total, tables: vec![table.within(objective)] }
    };
    Scenario {
        seed: 1,
        warmup: Span::from_millis(500),
        duration: Span::from_secs(2),
        policy: policy.to_owned(),
        rate: 80_000.0,
        gpus: vec![GpuGroup { kind: "a100".to_owned(), count: 128, speed: 1.0 }],
        network: Network::default(),
        arrivals: Spacing::Poisson,
        noise: 0.0,
        failures: Vec::new(),
        models: weights.iter().enumerate().map(model).collect(),
        give_up_at: None,
    }
}

fn simulator(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulator");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(5));
    for policy in POLICIES {
        let scenario = scenario(policy);
        // Every policy is given the same arrivals.
        let seconds = (scenario.warmup + scenario.duration).seconds();
        group.throughput(Throughput::Elements((scenario.rate * seconds) as u64));
        group.bench_function(policy, |bencher| bencher.iter(|| sim::run(&scenario)));
    }
    group.finish();
}

criterion_group!(benches, simulator);
criterion_main!(benches);
