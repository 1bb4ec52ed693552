//! The fluid upper bound: what no policy can beat.
//!
//! Treat requests as a fluid and let every batch have its cheapest feasible size. A request of model `m` then
//! costs at least `c[m][t]` seconds of a GPU of type `t`, and with `G[t]` GPUs of each type
//!
//! ```text
//! good <= max sum x[m][t]   with   sum_t x[m][t] <= rate[m],   sum_m c[m][t] * x[m][t] <= G[t]
//! ```
//!
//! By duality every price list `y` of GPU time gives an upper bound, `sum G*y + sum rate * max(0, 1 -
//! min_t c*y)`, so the answer is a bound even where the search for the best prices stops early. With one type
//! of GPU the search is exact.

use crate::Scenario;

/// No policy can answer more requests a second in time than this, at the scenario's rate.
pub fn good_rate(scenario: &Scenario) -> f64 {
    good_rate_at(scenario, scenario.rate)
}

fn good_rate_at(scenario: &Scenario, rate: f64) -> f64 {
    let costs = costs(scenario);
    let gpus: Vec<f64> = scenario.gpus.iter().map(|group| group.count as f64).collect();
    let shares: Vec<f64> = scenario.models.iter().map(|model| model.share * rate).collect();
    let bound = |prices: &[f64]| {
        let idle: f64 = gpus.iter().zip(prices).map(|(count, price)| count * price).sum();
        let served = costs.iter().zip(&shares).map(|(costs, share)| {
            let cheapest = costs.iter().zip(prices).map(|(cost, price)| cost * price).fold(f64::INFINITY, f64::min);
            share * (1.0 - cheapest).max(0.0)
        });
        idle + served.sum::<f64>()
    };
    let mut prices = vec![0.0; gpus.len()];
    let mut best = bound(&prices);
    // The bound is convex and piecewise linear in each price, with corners where a model's cheapest type
    // changes hands or its worth is used up; the best corner is exact for that price.
    for _round in 0..8 {
        let before = best;
        for kind in 0..prices.len() {
            let mut corners = vec![0.0];
            for costs in &costs {
                let others = (0..prices.len()).filter(|other| *other != kind);
                let rival = others.map(|other| costs[other] * prices[other]).fold(1.0, f64::min);
                if costs[kind].is_finite() {
                    corners.extend([1.0 / costs[kind], rival / costs[kind]]);
                }
            }
            for corner in corners {
                let old = std::mem::replace(&mut prices[kind], corner);
                let here = bound(&prices);
                if here < best {
                    best = here;
                } else {
                    prices[kind] = old;
                }
            }
        }
        if before - best <= 1e-9 * best {
            break;
        }
    }
    best
}

/// The highest rate at which the bound still lets all but `bad` of the requests be good.
pub fn goodput(scenario: &Scenario, bad: f64) -> f64 {
    let enough = |rate: f64| good_rate_at(scenario, rate) >= (1.0 - bad) * rate * (1.0 - 1e-12);
    let (mut low, mut high) = (0.0, 1.0);
    while enough(high) && high < 1e12 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if enough(middle) { low = middle } else { high = middle }
    }
    low
}

/// How many GPUs an oracle would need for the scenario's traffic, were requests a fluid. With several types,
/// each model counts on the type that is cheapest for it.
pub fn gpus_needed(scenario: &Scenario) -> f64 {
    let cheapest = costs(scenario).into_iter().map(|costs| costs.into_iter().fold(f64::INFINITY, f64::min));
    scenario.models.iter().zip(cheapest).map(|(model, cost)| model.share * scenario.rate * cost).sum()
}

/// Seconds of GPU time that a request costs at least, by model and GPU type.
fn costs(scenario: &Scenario) -> Vec<Vec<f64>> {
    let cost = |table: &policy::LatencyTable| table.cheapest().map_or(f64::INFINITY, |span| span.seconds());
    scenario.models.iter().map(|model| model.tables.iter().map(cost).collect()).collect()
}
