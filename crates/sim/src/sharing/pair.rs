//! What two programs will do to each other, from what each does alone.
//!
//! A program is taken for a loop of equal launches with equal pauses of its host between them, as many and as long as
//! were seen while it was alone, and the pair is simulated as everything else here is. That knows when launches come and
//! how long kernels are, and nothing of caches and memory bandwidth. The policy `weft` here is the gate
//! without slices and parts of the SMs, `weft-time` has slices and takes work off the GPU. How far it is off is for
//! whoever measures the pair.

use super::gpu::{GpuSpec, Mode};
use super::run::run;
use super::scenario::{Kernel, Load, Scenario, TenantSpec};
use policy::Span;
use policy::sharing::Class;
use serde::{Deserialize, Serialize};

/// A program alone on the GPU, for each of its requests or steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Solo {
    /// Launches, a graph counted as one.
    pub launches: f64,
    /// Milliseconds of the GPU.
    pub gpu_ms: f64,
    /// Milliseconds from one to the next.
    pub takes_ms: f64,
    /// Kernels of a request or step, where they are more than the launches because they are in graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<f64>,
}

/// What is expected of a pair, as ratios to alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// Requests a second of the latency program, one after the other.
    pub throughput: f64,
    /// The 99th percentile of its latency when requests come at random, at the given part of what it can do.
    pub p99: f64,
    /// Steps a second of the best-effort program beside requests one after the other.
    pub best_effort: f64,
    /// The same beside requests that come at random.
    pub best_effort_at_random: f64,
}

/// Launches of a step that are simulated; more, and more than a host can do in the time, are taken together.
const LAUNCHES_MAX: f64 = 2_000.0;
const LAUNCH_LEAST_US: f64 = 2.0;
/// How long is simulated, in steps of the slower program, and at least.
const STEPS: f64 = 40.0;
const LEAST: Span = Span::from_secs(2);
/// Time slices as an H200 gives them by itself. The slice is what the driver says. From graphs of 0.85 and 6.9 ms, each beside
/// training without end (docs/benchmarks/sharing-graphs.json): a program that has nothing to run loses its turn at once,
/// and every change of turns takes 0.17 to 0.19 ms.
const TURNS: GpuSpec = GpuSpec {
    mode: Mode::TimeSlice,
    slice: Span::from_micros(2_048),
    switch: Span::from_micros(180),
    linger: Span::ZERO,
    // One group of channels: bench/hardware/keeper.c, docs/benchmarks/keeper.json.
    preemption: Span::from_micros(330),
};
/// What passes at least between the end of a request on the GPU and the first launch of the next.
const HOST_LEAST_US: f64 = 10.0;
/// Kernels longer than this fill a GPU; shorter ones a part of it.
const FILLS_US: f64 = 100.0;

/// Requests that come at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtRandom {
    /// How many, as a part of what the program can do alone.
    pub load: f64,
    /// For how long before anything counts: where more come than can be done, the queue only grows.
    pub lead: Span,
    /// And for how long then.
    pub duration: Span,
}

/// What is shared, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The latency program alone.
    pub latency: Solo,
    /// Its objective, where it has one.
    pub objective: Option<Span>,
    /// The best-effort program alone.
    pub best_effort: Solo,
}

/// What a pair does under a policy; `None` where there is no such policy or nothing was done alone.
pub fn predict(policy: &str, pair: Pair, at_random: AtRandom, seed: u64) -> Option<Expected> {
    let closed = scenario(pair, Load::Closed { think: Span::ZERO }, seed)?;
    let AtRandom { load, lead, duration } = at_random;
    let rate = load * 1e3 / pair.latency.takes_ms;
    let poisson = scenario(pair, Load::Poisson { rate }, seed)?;
    let poisson = Scenario { warmup: lead, duration, ..poisson };
    let (closed, poisson) = (run(&closed, policy)?, run(&poisson, policy)?);
    Some(Expected {
        throughput: closed.tenants[0].throughput_alone,
        p99: poisson.tenants[0].p99_alone?,
        best_effort: closed.tenants[1].throughput_alone,
        best_effort_at_random: poisson.tenants[1].throughput_alone,
    })
}

fn scenario(pair: Pair, load: Load, seed: u64) -> Option<Scenario> {
    let Pair { latency, objective, best_effort } = pair;
    let longest = latency.takes_ms.max(best_effort.takes_ms);
    let duration = Span::from_millis_f64(longest * STEPS).max(LEAST);
    let tenant = |name: &str, class: Class, load: Load, solo: Solo| {
        let objective = objective.filter(|_| class == Class::Latency);
        Some(TenantSpec { class, load, objective, ..TenantSpec::new(name, kernels(solo)?) })
    };
    Some(Scenario {
        seed,
        warmup: duration.scale(1, 4),
        duration,
        noise: 0.05,
        gpu: TURNS,
        tenants: vec![
            tenant("latency", Class::Latency, load, latency)?,
            tenant("best-effort", Class::BestEffort, Load::Closed { think: Span::ZERO }, best_effort)?,
        ],
    })
}

/// What one request launches.
fn kernels(solo: Solo) -> Option<Vec<Kernel>> {
    let sensible = |number: f64| number.is_finite() && number > 0.0;
    if !(sensible(solo.launches) && sensible(solo.gpu_ms) && sensible(solo.takes_ms)) {
        return None;
    }
    let most = (solo.takes_ms * 1e3 / LAUNCH_LEAST_US).clamp(1.0, LAUNCHES_MAX);
    let launches = solo.launches.clamp(1.0, most).round();
    // Kernels of a graph follow each other without the host.
    let count = solo.kernels.map_or(launches, |kernels| kernels.clamp(launches, most.max(launches)).round());
    let gpu_us = solo.gpu_ms.min(solo.takes_ms - HOST_LEAST_US / 1e3).max(1e-3) * 1e3;
    let duration_us = gpu_us / count;
    // The host is done with the last launch when the GPU still has a kernel to run; where the GPU is what takes the
    // time, it is done long before.
    let host_us = (solo.takes_ms * 1e3 - gpu_us / launches).max(0.0);
    let gap_us = if solo.gpu_ms > 0.9 * solo.takes_ms { host_us / 2.0 } else { host_us };
    // A program that waits for its only launch is not ahead of the GPU.
    let gap_us = gap_us.max(HOST_LEAST_US);
    let kernel = Kernel {
        duration: Span::from_nanos((duration_us * 1e3) as u64).max(Span::from_nanos(100)),
        gap: Span::from_nanos((gap_us / launches * 1e3) as u64),
        sync: false,
        sms: (duration_us / FILLS_US * 1e3).clamp(50.0, 1_000.0) as u32,
        memory_bound: duration_us < FILLS_US / 2.0,
    };
    // Between kernels of one graph there is no host.
    let each = (count / launches).round().max(1.0) as usize;
    let within = Kernel { gap: Span::ZERO, ..kernel };
    let place = |index: usize| if (index + 1).is_multiple_of(each) { kernel } else { within };
    let mut kernels: Vec<Kernel> = (0..count as usize).map(place).collect();
    let last = kernels.last_mut()?;
    (last.gap, last.sync) = (kernel.gap, true);
    Some(kernels)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESNET: Solo = Solo { launches: 221.0, gpu_ms: 2.6, takes_ms: 5.3, kernels: None };
    const TRAINING: Solo = Solo { launches: 600.0, gpu_ms: 600.0, takes_ms: 620.0, kernels: None };
    const HALF: AtRandom = AtRandom { load: 0.5, lead: Span::from_secs(1), duration: Span::from_secs(4) };

    fn pair(latency: Solo, best_effort: Solo) -> Pair {
        Pair { latency, objective: None, best_effort }
    }

    #[test]
    fn a_program_alone_takes_as_long_as_it_took() {
        for solo in [RESNET, TRAINING, Solo { launches: 1.0, gpu_ms: 1.9, takes_ms: 2.0, kernels: None }] {
            let quiet = Solo { launches: 1.0, gpu_ms: 0.001, takes_ms: 1_000.0, kernels: None };
            let scenario = scenario(pair(solo, quiet), Load::Closed { think: Span::ZERO }, 1).unwrap();
            let report = run(&scenario, "default").unwrap();
            let takes = report.tenants[0].completion_ms.unwrap();
            assert!((takes / solo.takes_ms - 1.0).abs() < 0.1, "{takes} ms for {solo:?}");
        }
    }

    #[test]
    fn weft_is_expected_to_spare_the_latency_program_and_default_sharing_is_not() {
        let expect = |policy| predict(policy, pair(RESNET, TRAINING), HALF, 1).unwrap();
        let (weft, default) = (expect("weft"), expect("default"));
        assert!(weft.throughput > 0.8 && weft.p99 < 2.0, "{weft:?}");
        assert!(default.throughput < weft.throughput && default.p99 > weft.p99, "{default:?} {weft:?}");
        // There is no gap of a millisecond between the launches of a program that never pauses, but a launch that has
        // waited for 20 ms goes.
        assert!(default.best_effort > 0.4 && (0.02..0.3).contains(&weft.best_effort), "{default:?} {weft:?}");
        assert_eq!(predict("nothing", pair(RESNET, TRAINING), HALF, 1), None);
    }

    /// What was measured on an H200: throughput one after the other, and the training's beside it. Eager programs vary by
    /// a quarter there.
    #[test]
    fn turns_are_expected_to_cost_what_they_cost_on_a_gpu() {
        let training = Solo { launches: 886.0, gpu_ms: 580.0, takes_ms: 626.0, kernels: None };
        let check = |latency: Solo, measured: (f64, f64), within: f64| {
            let expected = predict("default", pair(latency, training), HALF, 1).unwrap();
            let off = [expected.throughput - measured.0, expected.best_effort - measured.1];
            assert!(off.iter().all(|off| off.abs() <= within), "{expected:?} for {measured:?}");
        };
        check(Solo { launches: 1.0, gpu_ms: 0.84, takes_ms: 0.85, kernels: None }, (0.26, 0.63), 0.03);
        check(Solo { launches: 1.0, gpu_ms: 6.9, takes_ms: 7.0, kernels: None }, (0.42, 0.49), 0.03);
        check(Solo { launches: 221.0, gpu_ms: 1.5, takes_ms: 5.5, kernels: None }, (0.85, 0.70), 0.15);
    }

    /// What was measured on an H200 (docs/benchmarks/frontier.json): programs as they are alone, and the p99 and the
    /// training's part beside requests at random.
    #[test]
    fn weft_in_turns_is_expected_to_be_what_it_is_on_a_gpu() {
        let training = Solo { launches: 913.0, gpu_ms: 598.0, takes_ms: 629.0, kernels: None };
        let at_random = AtRandom { load: 0.5, lead: Span::from_secs(12), duration: Span::from_secs(20) };
        let check = |latency: Solo, p99: f64, at_random_part: f64| {
            let expected = predict("weft-time", pair(latency, training), at_random, 1).unwrap();
            assert!((expected.throughput - 1.0).abs() < 0.03 && expected.best_effort < 0.03, "{expected:?}");
            assert!((expected.p99 / p99 - 1.0).abs() < 0.1, "{expected:?} for {p99}");
            assert!(
                (expected.best_effort_at_random - at_random_part).abs() < 0.15,
                "{expected:?} for {at_random_part}"
            );
        };
        check(Solo { launches: 1.0, gpu_ms: 1.34, takes_ms: 1.37, kernels: None }, 1.03, 0.29);
        check(Solo { launches: 1.0, gpu_ms: 4.05, takes_ms: 4.10, kernels: None }, 1.0, 0.25);
    }

    #[test]
    fn nothing_is_expected_of_what_did_nothing() {
        for solo in
            [Solo { launches: 0.0, ..RESNET }, Solo { gpu_ms: f64::NAN, ..RESNET }, Solo { takes_ms: -1.0, ..RESNET }]
        {
            assert_eq!(predict("weft", pair(solo, TRAINING), HALF, 1), None);
        }
        let odd = Solo { launches: 1e9, gpu_ms: 500.0, takes_ms: 1.0, kernels: None };
        assert!(predict("default", pair(RESNET, odd), HALF, 1).is_some());
    }
}
