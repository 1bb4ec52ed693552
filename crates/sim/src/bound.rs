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
//! min_t c*y)`, so the answer is a bound even where the search for the best prices stops early. With up to
//! six types of GPU the search is exact.

use crate::Scenario;

/// No policy can answer more requests a second in time than this, at the scenario's rate.
pub fn good_rate(scenario: &Scenario) -> f64 {
    good_rate_at(scenario, scenario.rate)
}

fn good_rate_at(scenario: &Scenario, rate: f64) -> f64 {
    let rates: Vec<f64> = scenario.models.iter().map(|model| model.share * rate).collect();
    good_rate_of(scenario, &rates)
}

/// The same for requests a second by model.
pub(crate) fn good_rate_of(scenario: &Scenario, rates: &[f64]) -> f64 {
    let costs = costs(scenario);
    let gpus: Vec<f64> = scenario.gpus.iter().map(|group| group.count as f64).collect();
    let bound = |prices: &[f64]| {
        let idle: f64 = gpus.iter().zip(prices).map(|(count, price)| count * price).sum();
        let served = costs.iter().zip(rates).map(|(costs, rate)| {
            let cheapest = costs.iter().zip(prices).map(|(cost, price)| cost * price).fold(f64::INFINITY, f64::min);
            rate * (1.0 - cheapest).max(0.0)
        });
        idle + served.sum::<f64>()
    };
    // The bound is convex and piecewise linear in the prices. It bends where a model's worth is used up or its
    // cheapest type changes, so along every edge some types keep their price and the others rise and fall
    // together. Where no such step leads down, there is no way down.
    let mut prices = vec![1.0; gpus.len()];
    let mut best = bound(&vec![0.0; gpus.len()]);
    for _round in 0..100 {
        let before = best;
        for group in groups(gpus.len()) {
            let cheapest = |costs: &[f64], inside: bool| {
                let types = (0..costs.len()).filter(|kind| group.contains(kind) == inside);
                types.map(|kind| costs[kind] * prices[kind]).fold(f64::INFINITY, f64::min)
            };
            let mut corners = vec![NEXT_TO_NOTHING];
            for costs in costs.iter().filter(|costs| cheapest(costs, true).is_finite()) {
                let here = cheapest(costs, true);
                corners.extend([1.0 / here, cheapest(costs, false).min(1.0) / here]);
            }
            corners.sort_by(f64::total_cmp);
            corners.dedup();
            let at = |corner: f64| {
                let scaled = prices
                    .iter()
                    .enumerate()
                    .map(|(kind, price)| if group.contains(&kind) { price * corner } else { *price });
                scaled.collect::<Vec<f64>>()
            };
            // The lowest of a convex row of points, and its neighbours in case rounding hid it.
            let (mut low, mut high) = (0, corners.len() - 1);
            while low < high {
                let middle = (low + high) / 2;
                if bound(&at(corners[middle])) <= bound(&at(corners[middle + 1])) {
                    high = middle
                } else {
                    low = middle + 1
                }
            }
            let near = low.saturating_sub(3)..(low + 4).min(corners.len());
            let values = near.map(|index| (bound(&at(corners[index])), corners[index]));
            let (value, corner) = values.min_by(|left, right| left.0.total_cmp(&right.0)).expect("there is a corner");
            if value < best {
                best = value;
                prices = at(corner);
            }
        }
        if before - best <= 1e-12 * best {
            break;
        }
    }
    best
}

/// A price that is as good as none and can still be raised by a factor.
const NEXT_TO_NOTHING: f64 = 1e-15;

/// Types whose prices move together: every subset, or with many types the single ones, pairs and all.
fn groups(types: usize) -> Vec<Vec<usize>> {
    let members = |set: u64| (0..types).filter(|kind| set >> kind & 1 == 1).collect();
    if types <= 6 {
        return (1..1u64 << types).map(members).collect();
    }
    let singles = (0..types).map(|kind| vec![kind]);
    let pairs = (0..types).flat_map(|left| (left + 1..types).map(move |right| vec![left, right]));
    singles.chain(pairs).chain([(0..types).collect()]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuGroup, ModelSpec, Spacing};
    use policy::{LatencyTable, Network, Span};
    use proptest::prelude::*;

    /// Models as microseconds of GPU time a request, by type (zero: cannot run), and a rate.
    fn scenario(gpus: &[usize], models: &[(Vec<u64>, f64)]) -> Scenario {
        let total: f64 = models.iter().map(|(_, rate)| rate).sum();
        let table = |cost: &u64| match cost {
            0 => LatencyTable::default(),
            cost => LatencyTable::from_sizes([Span::from_micros(*cost)]),
        };
        let model = |(costs, rate): &(Vec<u64>, f64)| ModelSpec {
            name: "m".to_owned(),
            objective: Span::from_secs(1),
            share: rate / total,
            tables: costs.iter().map(table).collect(),
        };
        Scenario {
            seed: 1,
            warmup: Span::ZERO,
            duration: Span::from_secs(1),
            policy: "weft".to_owned(),
            rate: total,
            gpus: gpus.iter().map(|count| GpuGroup { kind: "x".to_owned(), count: *count, speed: 1.0 }).collect(),
            network: Network::default(),
            arrivals: Spacing::Poisson,
            noise: 0.0,
            failures: Vec::new(),
            models: models.iter().map(model).collect(),
            give_up_at: None,
        }
    }

    /// What can be served with so many GPU-seconds a second: cheapest first, the last in part.
    fn knapsack(mut gpus: f64, mut demand: Vec<(f64, f64)>) -> f64 {
        demand.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut served = 0.0;
        for (cost, rate) in demand {
            let here = if cost.is_finite() { rate.min(gpus / cost) } else { 0.0 };
            served += here;
            gpus -= if here > 0.0 { here * cost } else { 0.0 };
        }
        served
    }

    #[test]
    fn the_dearest_models_go_without() {
        // Two GPUs: 1,000 a second at 1 ms take one of them, the other serves 500 of the 800 at 2 ms.
        let models = [(vec![2_000], 800.0), (vec![1_000], 1_000.0), (vec![9_000], 10.0)];
        assert!((good_rate(&scenario(&[2], &models)) - 1_500.0).abs() < 1e-6);
        assert!((gpus_needed(&scenario(&[2], &models)) - 2.69).abs() < 1e-9);
    }

    #[test]
    fn each_model_goes_where_it_is_relatively_cheap() {
        // Both types are full when each runs what it is good at: 1,000 + 1,000 a second.
        let models = [(vec![1_000, 4_000], 1_000.0), (vec![4_000, 1_000], 1_000.0)];
        assert!((good_rate(&scenario(&[1, 1], &models)) - 2_000.0).abs() < 1e-6);
        // A model that one type cannot run is bounded by the other.
        assert!((good_rate(&scenario(&[1, 9], &[(vec![1_000, 0], 5_000.0)])) - 1_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_highest_rate_leaves_the_allowed_part_unserved() {
        // 99% of the rate at 1 ms keep 4 GPUs busy at 4,040.4 a second.
        let rate = goodput(&scenario(&[4], &[(vec![1_000], 1.0)]), 0.01);
        assert!((rate - 4_000.0 / 0.99).abs() < 1e-3, "{rate}");
    }

    fn models(types: usize) -> impl Strategy<Value = Vec<(Vec<u64>, f64)>> {
        let cost = prop_oneof![1 => Just(0u64), 5 => 200..20_000u64];
        prop::collection::vec((prop::collection::vec(cost, types), 1.0..2_000.0), 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn with_one_type_it_is_the_knapsack(gpus in 1..9usize, models in models(1)) {
            let scenario = scenario(&[gpus], &models);
            let costs = costs(&scenario);
            let demand = models.iter().zip(&costs).map(|((_, rate), costs)| (costs[0], *rate));
            let expected = knapsack(gpus as f64, demand.collect());
            let bound = good_rate(&scenario);
            prop_assert!((bound - expected).abs() <= 1e-6 * expected.max(1.0), "{bound}, knapsack {expected}");
        }

        /// Every split of the traffic between two types, in steps: no split serves more than the bound, and the
        /// best comes close to it.
        #[test]
        fn with_two_types_no_split_beats_it(gpus in (1..9usize, 1..9usize), models in models(2)) {
            const STEPS: usize = 24;
            let scenario = scenario(&[gpus.0, gpus.1], &models);
            let costs = costs(&scenario);
            let mut best: f64 = 0.0;
            for split in 0..(STEPS + 1).pow(models.len() as u32) {
                let part = |model: usize| (split / (STEPS + 1).pow(model as u32) % (STEPS + 1)) as f64 / STEPS as f64;
                let demand = |kind: usize| (0..models.len()).map(|model| {
                    let part = if kind == 0 { part(model) } else { 1.0 - part(model) };
                    (costs[model][kind], models[model].1 * part)
                }).collect();
                best = best.max(knapsack(gpus.0 as f64, demand(0)) + knapsack(gpus.1 as f64, demand(1)));
            }
            let bound = good_rate(&scenario);
            prop_assert!(bound >= best * (1.0 - 1e-9), "{bound}, yet a split serves {best}");
            prop_assert!(bound <= best * 1.02 + 1e-6, "{bound}, the best split serves {best}");
        }
    }
}
