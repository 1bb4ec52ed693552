//! The highest rate that a policy serves well.

use super::run::run;
use super::scenario::Scenario;

/// Rates in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// At which all but a part of all requests meet both objectives.
    pub average: f64,
    /// At which the same holds for every model.
    pub worst: f64,
}

/// Each rate tried is this part of the one before, until one is served well.
const COARSE: f64 = 0.85;
/// Below this part of the bound nothing is looked for.
const LEAST: f64 = 1.0 / 500.0;

/// Looks for the goodput of a policy, to within `precision`: down from the bound in coarse steps, then between the two last.
/// The first rate from above counts: a policy that is not monotone in load is taken at its best.
///
/// Panics when there is no such policy.
pub fn goodput(scenario: &Scenario, policy: &str, limit: f64, precision: f64) -> Goodput {
    let bad = |rate: f64| {
        let report = run(&Scenario { rate, ..scenario.clone() }, policy).expect("the policy exists");
        let worst = report.models.iter().filter(|model| model.requests > 0).map(|model| 1.0 - model.good);
        (1.0 - report.good, worst.fold(0.0, f64::max))
    };
    let bound = super::bound(scenario);
    let average = search(bound, precision, |rate| bad(rate).0 <= limit);
    // One model is all of them.
    let worst = match scenario.models.len() {
        1 => average,
        _ => search(average.max(bound * LEAST), precision, |rate| bad(rate).1 <= limit),
    };
    Goodput { average, worst }
}

fn search(from: f64, precision: f64, fine: impl Fn(f64) -> bool) -> f64 {
    let (mut good, mut bad) = (from, from * 1.05);
    while !fine(good) {
        (good, bad) = (good * COARSE, good);
        if good < from * LEAST {
            return 0.0;
        }
    }
    while bad / good > 1.0 + precision {
        let middle = (good * bad).sqrt();
        if fine(middle) { good = middle } else { bad = middle }
    }
    good
}
