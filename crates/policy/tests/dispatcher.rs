//! What holds of the dispatcher whatever the policy and whatever happens.
//!
//! A case is a small cluster and a list of steps: requests with the model's deadline or one of their own, GPUs
//! of two types that join, drain, die in the middle of a batch and return, batches that end on time, early or
//! late, word of batches nobody waits for. The driver here keeps books of its own and compares.
//!
//! A failing case is shrunk, printed, and followed by the command that runs it again.

mod driver;

use driver::{Case, Driver, Step};
use policy::{Action, LatencyTable, Model, Network, Span, policies};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// Runs a case twice and compares.
fn check(name: &str, network: impl Strategy<Value = Network>) {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(250);
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&case(network), |case| {
        for policy in policies::NAMES {
            let first = Driver::new(&case, policy).run();
            let second = Driver::new(&case, policy).run();
            assert!(first == second, "{policy} decides differently the second time");
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        let rerun =
            format!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} cargo test -p weft-policy --test dispatcher");
        panic!("{failure}\nrun it again with: {rerun} -- {name}");
    }
}

#[test]
fn the_rules_hold_without_delays() {
    check("the_rules_hold_without_delays", Just(Network::default()));
}

#[test]
fn the_rules_hold_with_delays() {
    let micros = |range: std::ops::Range<u64>| range.prop_map(Span::from_micros);
    let network = (micros(0..3_000), micros(0..200), micros(0..2_000), micros(0..500));
    let network = network.prop_map(|(control, data_per_request, response, jitter)| Network {
        control,
        data_per_request,
        response,
        jitter,
    });
    check("the_rules_hold_with_delays", network);
}

fn case(network: impl Strategy<Value = Network>) -> impl Strategy<Value = Case> {
    let models = prop::collection::vec(model(), 1..5);
    // Every GPU id has its type for good; the first few are there from the start.
    let gpus = (prop::collection::vec(0..2u32, 1..7), 0..5usize);
    // In hundredths of the planned time.
    let paces = prop::collection::vec(prop_oneof![3 => Just(100u64), 1 => 40..100u64, 1 => 100..180u64], 1..8);
    let steps = prop::collection::vec((gap(), step()), 1..120);
    (network, models, gpus, paces, steps, any::<bool>()).prop_map(
        |(network, models, (kinds, present), paces, steps, timers_first)| Case {
            network,
            models,
            present: present.min(kinds.len()),
            kinds,
            paces,
            steps,
            timers_first,
        },
    )
}

fn model() -> impl Strategy<Value = Model> {
    let table = (50..2_000u64, 500..8_000u64, 1..40usize);
    let runs_on = prop_oneof![4 => Just((true, true)), 1 => Just((true, false)), 1 => Just((false, true))];
    // One model in many can be run nowhere; the scenario reader refuses it, the dispatcher survives it.
    let runs_on = prop_oneof![20 => runs_on, 1 => Just((false, false))];
    let expected_gap = prop_oneof![Just(Span::MAX), (100..20_000u64).prop_map(Span::from_micros)];
    (table, 5_000..60_000u64, runs_on, 20..100u64, expected_gap).prop_map(
        |((alpha, beta, largest), objective, (first, second), speed, expected_gap)| {
            let objective = Span::from_micros(objective);
            let fast = LatencyTable::line(Span::from_micros(alpha), Span::from_micros(beta), largest);
            let slow = fast.at_speed(speed as f64 / 100.0);
            let tables = [(first, fast), (second, slow)];
            let tables =
                tables.map(|(runs, table)| if runs { table.within(objective) } else { LatencyTable::default() });
            Model { objective, tables: tables.to_vec(), expected_gap }
        },
    )
}

/// Often nothing, so that things happen at one instant; sometimes long enough for all queues to run dry.
fn gap() -> impl Strategy<Value = Span> {
    let micros = prop_oneof![4 => Just(0u64), 12 => 1..800u64, 3 => 800..8_000u64, 1 => 8_000..200_000u64];
    micros.prop_map(Span::from_micros)
}

fn step() -> impl Strategy<Value = Step> {
    // In hundredths of the model's objective; zero is hopeless on arrival.
    let own = prop_oneof![6 => Just(100u64), 1 => 0..100u64];
    let gpu = || 0..12usize;
    prop_oneof![
        80 => (0..12usize, own).prop_map(|(model, hundredths)| Step::Arrive { model, hundredths }),
        8 => (0..200usize).prop_map(Step::Withdraw),
        4 => gpu().prop_map(Step::Join),
        3 => gpu().prop_map(Step::Leave),
        4 => gpu().prop_map(Step::Lose),
        1 => Just(Step::LoseAll),
        2 => (gpu(), 0..200u64).prop_map(|(gpu, batch)| Step::UnknownDone { gpu, batch }),
        1 => gpu().prop_map(Step::UnaskedPreempted),
    ]
}

#[test]
fn requests_that_sat_out_an_outage_are_served_when_a_gpu_returns() {
    let table = LatencyTable::line(Span::from_millis(1), Span::from_millis(5), 16);
    let model = Model { objective: Span::from_millis(50), tables: vec![table; 2], expected_gap: Span::from_millis(5) };
    let arrive = Step::Arrive { model: 0, hundredths: 100 };
    let case = Case {
        network: Network::default(),
        models: vec![model],
        kinds: vec![0],
        present: 1,
        paces: vec![100],
        steps: [(0, Step::LoseAll), (1, arrive), (20, Step::Join(0))]
            .map(|(gap, step)| (Span::from_millis(gap), step))
            .to_vec(),
        timers_first: false,
    };
    for policy in policies::NAMES {
        let decisions = Driver::new(&case, policy).run();
        let actions: Vec<_> = decisions.iter().flat_map(|(_, actions, _)| actions).collect();
        assert!(matches!(actions[..], [Action::Run { .. }]), "{policy}: {decisions:?}");
    }
}
