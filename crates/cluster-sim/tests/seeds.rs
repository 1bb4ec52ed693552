//! The simulated cluster over many seeds, and over bugs that it must find.
//!
//! A failure names its seed: `cargo run -p weft-cluster-sim -- --seed SEED --trace` shows all that happened.

use cluster_sim::{Bug, Plan, Takeover, Violation, run, run_plan};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Seeds of an ordinary run; `WEFT_CLUSTER_SEEDS` asks for more.
const SEEDS: u64 = 10_000;
/// A bug must show within so many seeds.
const PATIENCE: u64 = 4_000;

fn seeds() -> u64 {
    std::env::var("WEFT_CLUSTER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

/// The first seed below `end` for which something does not hold, on all cores.
fn first_violation(end: u64, bug: Option<Bug>) -> Option<(u64, Violation)> {
    let next = AtomicU64::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let search = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= end {
                return None;
            }
            if let Err(violation) = run(seed, bug, None) {
                // Nobody need begin with another one.
                next.store(end, Relaxed);
                return Some((seed, violation));
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(search)).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("no machine panics")).min_by_key(|(seed, _)| *seed)
    })
}

#[test]
fn what_must_hold_holds_whatever_goes_wrong() {
    if let Some((seed, violation)) = first_violation(seeds(), None) {
        panic!("seed {seed}: {violation}\nrun it again: cargo run -p weft-cluster-sim -- --seed {seed} --trace");
    }
}

#[test]
fn every_bug_is_found_and_replays_from_its_seed() {
    for bug in Bug::ALL {
        let (seed, violation) = first_violation(PATIENCE, Some(bug)).unwrap_or_else(|| panic!("{bug:?} is not found"));
        assert_eq!(run(seed, Some(bug), None), Err(violation), "{bug:?}, seed {seed}");
        assert!(run(seed, None, None).is_ok(), "{bug:?}: seed {seed} holds without it");
    }
}

/// The lead passes on after each of so many events under load.
const STEPS: u64 = 400;

#[test]
fn a_standby_takes_over_at_every_step() {
    for how in Takeover::ALL {
        for seed in 1..=4 {
            for step in 1..=STEPS {
                let report = run_plan(Plan::with_takeover(seed, step, how), seed, None, None);
                let report =
                    report.unwrap_or_else(|violation| panic!("seed {seed}, {how:?} after {step}: {violation}"));
                assert!(report.served > 0, "seed {seed}, {how:?} after {step} events");
            }
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..50 {
        assert_eq!(run(seed, None, None), run(seed, None, None), "seed {seed}");
    }
}
