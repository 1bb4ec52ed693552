//! Random scenarios under every policy: the rules that a run checks hold, a seed gives one report, and the
//! figures in it make sense.
//!
//! A failing case is shrunk, printed, and followed by the command that runs it again.

use policy::{GpuId, LatencyTable, Network, Span, policies};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sim::{Failure, GpuGroup, ModelSpec, Report, Scenario, Spacing};

/// Runs random scenarios; `check` is given each with its report.
fn check(name: &str, scenarios: impl Strategy<Value = Scenario>, check: impl Fn(&Scenario, &Report)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, cases) = (number("PROPTEST_RNG_SEED").unwrap_or(1), number("PROPTEST_CASES").unwrap_or(100));
    let config = ProptestConfig {
        cases: cases as u32,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&scenarios, |scenario| {
        for policy in policies::NAMES {
            let scenario = Scenario { policy: policy.to_owned(), ..scenario.clone() };
            let report = sim::run(&scenario);
            assert_eq!(report, sim::run(&scenario), "{policy}: one seed, two reports");
            makes_sense(&scenario, &report);
            check(&scenario, &report);
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        let rerun = format!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} cargo test -p weft-sim --test rules");
        panic!("{failure}\nrun it again with: {rerun} -- {name}");
    }
}

fn makes_sense(scenario: &Scenario, report: &Report) {
    let policy = &scenario.policy;
    let seconds = scenario.duration.seconds();
    let count = |rps: f64| (rps * seconds).round() as i64;
    let (offered, good) = (count(report.offered_rps), count(report.good_rps));
    let bad = (report.bad_average * offered as f64).round() as i64;
    assert_eq!(offered, good + bad, "{policy}: offered, good and bad");
    let by_model: i64 = report.models.iter().map(|model| count(model.offered_rps)).sum();
    assert_eq!(offered, by_model, "{policy}: offered over all models");
    let causes = &report.bad_by_cause;
    let causes = causes.late + causes.too_late + causes.sacrificed + causes.gpu_lost;
    assert!((causes - report.bad_average).abs() < 1e-9, "{policy}: causes add up to {causes}");
    assert!(report.bad_worst >= report.bad_average - 1e-9, "{policy}: the worst model is not better than all");
    assert!(report.gpu_busy.iter().all(|busy| (0.0..=1.0 + 1e-9).contains(busy)), "{policy}: {:?}", report.gpu_busy);
    // Who came at the end of the measured time may still be served after it, for as long as an objective.
    let longest = scenario.models.iter().map(|model| model.objective).max().expect("there is a model").seconds();
    let luck = if scenario.noise > 0.0 { 1.3 } else { 1.0 };
    let most = report.bound_rps * (1.0 + longest / seconds) * luck + 1e-6;
    assert!(report.good_rps <= most, "{policy}: {} good a second, bound {}", report.good_rps, report.bound_rps);
    assert!((0.0..=(1.0 + longest / seconds) * luck + 1e-9).contains(&report.bound_fraction), "{policy}: {report:?}");
    assert!(!report.gave_up && report.requests as i64 >= offered, "{policy}: {report:?}");
}

#[test]
fn any_scenario_keeps_the_rules() {
    check("any_scenario_keeps_the_rules", scenario(), |_, _| ());
}

#[test]
fn a_policy_that_keeps_deadlines_is_never_late_when_all_goes_to_plan() {
    // Exact times, no jitter, nobody dies: a batch that was not known to be late is on time.
    let to_plan = scenario().prop_map(|mut scenario| {
        scenario.noise = 0.0;
        scenario.network.jitter = Span::ZERO;
        scenario.failures.clear();
        scenario
    });
    check("a_policy_that_keeps_deadlines_is_never_late_when_all_goes_to_plan", to_plan, |scenario, report| {
        if scenario.policy != "timeshare" {
            assert_eq!(report.bad_by_cause.late, 0.0, "{}", scenario.policy);
        }
        assert_eq!(report.bad_by_cause.gpu_lost, 0.0, "{}", scenario.policy);
    });
}

#[test]
fn light_traffic_is_served_by_every_policy() {
    // One request in a long while, and GPUs that can all run it. Nexus knows the rate, so it has a plan.
    let light = (scenario(), 1.0..5.0).prop_map(|(mut scenario, rate)| {
        scenario.rate = rate;
        scenario.arrivals = Spacing::Constant;
        scenario.noise = 0.0;
        scenario.network = Network::default();
        scenario.failures.clear();
        scenario.gpus.truncate(1);
        scenario.gpus[0].count = scenario.models.len() * 3;
        scenario.models.iter_mut().for_each(|model| model.tables.truncate(1));
        scenario.models.retain(|model| model.tables[0].max_batch() > 1);
        let total: f64 = scenario.models.iter().map(|model| model.share).sum();
        scenario.models.iter_mut().for_each(|model| model.share /= total);
        scenario
    });
    let light = light.prop_filter("some model runs on the first type", |scenario| !scenario.models.is_empty());
    check("light_traffic_is_served_by_every_policy", light, |scenario, report| {
        if scenario.policy != "timeshare" {
            assert_eq!(report.bad_average, 0.0, "{}", scenario.policy);
        }
    });
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let network = prop_oneof![Just((0, 0, 0, 0)), (0..3_000u64, 0..200u64, 0..2_000u64, 0..1_000u64)];
    let rate = prop_oneof![1.0..100.0, 100.0..4_000.0];
    let noise = prop_oneof![2 => Just(0.0), 1 => 0.01..0.3];
    let counts = (1..5usize, 0..4usize);
    let models = prop::collection::vec(model(), 1..5);
    let failures = prop_oneof![Just(Vec::new()), prop::collection::vec(failure(), 1..20)];
    (any::<u64>(), network, arrivals(), rate, noise, counts, models, failures).prop_map(
        |(seed, network, arrivals, rate, noise, (fast, slow), models, failures)| {
            let micros = Span::from_micros;
            let network = Network {
                control: micros(network.0),
                data_per_request: micros(network.1),
                response: micros(network.2),
                jitter: micros(network.3),
            };
            let group = |kind: &str, count, speed| GpuGroup { kind: kind.to_owned(), count, speed };
            let mut gpus = vec![group("fast", fast, 1.0)];
            if slow > 0 {
                gpus.push(group("slow", slow, 0.5));
            }
            let total: f64 = models.iter().map(|model| model.share).sum();
            let mut models: Vec<_> = models.into_iter().map(|model| feasible(model, gpus.len(), &network)).collect();
            models.iter_mut().for_each(|model| model.share /= total);
            let failures = failures.into_iter().map(|(gpu, at, down_for)| Failure {
                gpu: GpuId::new(gpu % (fast + slow)),
                at: micros(at),
                down_for: down_for.map(micros),
            });
            Scenario {
                seed,
                warmup: Span::from_millis(200),
                duration: Span::from_millis(800),
                policy: String::new(),
                rate,
                gpus,
                network,
                arrivals,
                noise,
                failures: failures.collect(),
                models,
                give_up_at: None,
            }
        },
    )
}

/// What the scenario reader makes sure of: a table holds what can be on time with all delays, and every model
/// can be run somewhere.
fn feasible(mut model: ModelSpec, types: usize, network: &Network) -> ModelSpec {
    let delays = network.control + network.data_per_request + network.response;
    let fastest = model.tables.iter().filter(|table| table.max_batch() > 0).map(|table| table.latency(1)).min();
    model.objective = model.objective.max(fastest.expect("it runs somewhere") + delays);
    model.tables.truncate(types);
    for table in &mut model.tables {
        let takes =
            |size: usize| table.latency(size) + network.control + network.data_per_request * size + network.response;
        let sizes = (1..=table.max_batch()).take_while(|size| takes(*size) <= model.objective).count();
        *table = table.clone().up_to(sizes);
    }
    model
}

fn arrivals() -> impl Strategy<Value = Spacing> {
    let weights = prop::collection::vec(prop_oneof![Just(0.0), 0.1..10.0], 2..6);
    let rows = prop::collection::vec(weights, 1..4).prop_filter_map("rows average 1", |mut rows| {
        for row in &mut rows {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            if mean == 0.0 {
                return None;
            }
            row.iter_mut().for_each(|weight| *weight /= mean);
        }
        Some(rows)
    });
    prop_oneof![
        Just(Spacing::Poisson),
        (0.1..3.0).prop_map(|shape| Spacing::Gamma { shape }),
        Just(Spacing::Constant),
        (20..400u64, rows).prop_map(|(slot, rows)| Spacing::Trace { slot: Span::from_millis(slot), rows }),
    ]
}

fn model() -> impl Strategy<Value = ModelSpec> {
    let table = (50..2_000u64, 500..8_000u64, 1..40usize);
    let runs_on = prop_oneof![4 => Just([true, true]), 1 => Just([true, false])];
    (table, 5_000..60_000u64, runs_on, 0.05..1.0).prop_map(|((alpha, beta, largest), objective, runs_on, share)| {
        let fast = LatencyTable::line(Span::from_micros(alpha), Span::from_micros(beta), largest);
        let tables = [fast.clone(), fast.at_speed(0.5)];
        let tables = tables.into_iter().zip(runs_on);
        let tables = tables.map(|(table, runs)| if runs { table } else { LatencyTable::default() });
        ModelSpec { name: "m".to_owned(), objective: Span::from_micros(objective), share, tables: tables.collect() }
    })
}

/// Which GPU, when, and for how long, in microseconds.
fn failure() -> impl Strategy<Value = (usize, u64, Option<u64>)> {
    let down_for = prop_oneof![
        3 => (1..3_000u64).prop_map(Some),
        3 => (3_000..300_000u64).prop_map(Some),
        1 => Just(None),
    ];
    (0..8usize, 0..1_000_000u64, down_for)
}
