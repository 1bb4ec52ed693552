//! FIKIT's setting: ten pairs of a high-priority and a low-priority task on one GPU that runs kernels in the order of
//! launches. The figures that `docs/benchmarks/fikit.md` tells, held by a shorter run.

use policy::Span;
use policy::sharing::Class;
use sim::sharing::{GpuSpec, Load, Mode, Report, Scenario, TenantSpec, model, run};

const PAIRS: &str = include_str!("../../../bench/fikit/pairs.txt");

fn pairs() -> Vec<(&'static str, &'static str)> {
    let lines = PAIRS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("two models a line")).collect()
}

fn task(name: &str, class: Class, priority: u8, load: Load) -> TenantSpec {
    TenantSpec { class, priority, load, ..TenantSpec::new(name, model(name).expect("it is a model")) }
}

fn share(high: &str, low: &str, load: Load, policy: &str) -> Report {
    let again = Load::Closed { think: Span::ZERO };
    let tenants = vec![task(high, Class::Latency, 0, load), task(low, Class::BestEffort, 9, again)];
    let gpu = GpuSpec { mode: Mode::Fifo, ..GpuSpec::default() };
    let (warmup, duration) = (Span::from_millis(500), Span::from_secs(10));
    run(&Scenario { seed: 1, warmup, duration, noise: 0.05, gpu, tenants }, policy).expect("there is such a policy")
}

fn completion(report: &Report, tenant: usize) -> f64 {
    report.tenants[tenant].completion_ms.expect("requests were answered")
}

fn told(values: &[f64]) -> String {
    pairs().iter().zip(values).map(|((high, low), value)| format!("{high} beside {low}: {value:.2}\n")).collect()
}

/// How many times faster the high-priority task is than with default sharing, both tasks running without pause.
fn high(policy: &str) -> Vec<f64> {
    let again = Load::Closed { think: Span::ZERO };
    let faster = |(high, low): &(&str, &str)| {
        completion(&share(high, low, again, "default"), 0) / completion(&share(high, low, again, policy), 0)
    };
    pairs().iter().map(faster).collect()
}

/// The low-priority task's speed over default sharing, the high-priority one coming once a second.
fn low(policy: &str) -> Vec<f64> {
    let seldom = Load::Every { interval: Span::from_secs(1) };
    let speed = |(high, low): &(&str, &str)| {
        completion(&share(high, low, seldom, "default"), 1) / completion(&share(high, low, seldom, policy), 1)
    };
    pairs().iter().map(speed).collect()
}

fn check(policy: &str) {
    let high = high(policy);
    let mut sorted = high.clone();
    sorted.sort_by(f64::total_cmp);
    assert!(sorted[0] >= 1.33, "{policy}, high priority:\n{}", told(&high));
    assert!(sorted[4] > 3.5 && sorted[9] >= 14.87, "{policy}, high priority:\n{}", told(&high));
    let low = low(policy);
    assert!(low.iter().all(|speed| *speed >= 0.84), "{policy}, low priority:\n{}", told(&low));
}

#[test]
fn fikit_reaches_its_figures() {
    check("fikit");
}

#[test]
fn weft_reaches_the_same() {
    check("weft");
}
