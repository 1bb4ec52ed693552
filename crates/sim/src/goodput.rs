//! Goodput: the highest rate at which few enough requests are bad.
//!
//! Some policies are not monotone in load, so a bisection from both ends could settle on the wrong crossing.
//! The search walks a grid of rates down from the fluid bound, which no policy exceeds, until one passes, and
//! bisects between that rate and the one above it.
//!
//! The worst model is never better than the average. Its search walks on from where the average's ended,
//! through the same rates, and most of those were run already.

use crate::{Report, Scenario, bound, run};
use std::collections::BTreeMap;

/// From one rate of the grid to the next.
const STEP: f64 = 0.93;
/// Where the grid ends, as a part of the bound. A policy that serves less serves nothing.
const FLOOR: f64 = 0.01;

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The fraction of requests that may be bad.
    pub limit: f64,
    /// How closely the rate is found, as a part of it.
    pub precision: f64,
}

impl Default for Search {
    fn default() -> Search {
        Search { limit: 0.01, precision: 0.005 }
    }
}

/// What a policy can serve with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    /// Highest rate at which the bad fraction of all requests is within the limit; 0 when none was found.
    pub average: f64,
    /// Highest rate at which the bad fraction of every model is.
    pub worst: f64,
    /// All runs that were made, by rising rate.
    pub probes: Vec<Probe>,
}

/// A run at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Requests a second that were asked for.
    pub rate: f64,
    /// Fraction of requests that were bad.
    pub bad_average: f64,
    /// The same for the model that fared worst.
    pub bad_worst: f64,
    /// Requests per batch.
    pub mean_batch: f64,
    /// Fraction of the time that GPUs were busy, averaged over all of them.
    pub busy: f64,
    /// The run was cut short because it was certain to be bad. Its figures are of the part that was run.
    pub gave_up: bool,
}

/// Finds the goodput of a scenario's policy with its seed. The scenario's own rate does not matter.
pub fn goodput(scenario: &Scenario, search: &Search) -> Goodput {
    let highest = bound::goodput(scenario, search.limit);
    let mut at_rate = Scenario { give_up_at: Some(search.limit), ..scenario.clone() };
    find(highest, search, |rate| {
        at_rate.rate = rate;
        Probe::new(rate, &run(&at_rate))
    })
}

impl Probe {
    fn new(rate: f64, report: &Report) -> Probe {
        Probe {
            rate,
            bad_average: report.bad_average,
            bad_worst: report.bad_worst,
            mean_batch: report.mean_batch,
            busy: report.gpu_busy.iter().sum::<f64>() / report.gpu_busy.len().max(1) as f64,
            gave_up: report.gave_up,
        }
    }
}

fn find(highest: f64, search: &Search, run: impl FnMut(f64) -> Probe) -> Goodput {
    let mut runs = Runs { run, done: BTreeMap::new() };
    let grid: Vec<f64> = (0..)
        .map(|step| highest * STEP.powi(step))
        .take_while(|rate| *rate >= highest * FLOOR && *rate > 0.0)
        .collect();
    let average = |probe: &Probe| !probe.gave_up && probe.bad_average <= search.limit;
    let worst = |probe: &Probe| average(probe) && probe.bad_worst <= search.limit;
    let (place, average) = runs.highest(&grid, 0, search.precision, average);
    // Both searches halve the same stretches of the grid, so the second one meets the runs of the first.
    let (_, worst) = runs.highest(&grid, place, search.precision, worst);
    Goodput { average, worst, probes: runs.done.into_values().collect() }
}

/// Runs made so far, each rate once. The bits of positive numbers are in the order of the numbers.
struct Runs<F> {
    run: F,
    done: BTreeMap<u64, Probe>,
}

impl<F: FnMut(f64) -> Probe> Runs<F> {
    fn at(&mut self, rate: f64) -> &Probe {
        self.done.entry(rate.to_bits()).or_insert_with(|| (self.run)(rate))
    }

    /// The first rate of the grid from `place` on that passes, by its place, and how far above it still does.
    fn highest(&mut self, grid: &[f64], place: usize, precision: f64, passes: impl Fn(&Probe) -> bool) -> (usize, f64) {
        let Some(place) = (place..grid.len()).find(|place| passes(self.at(grid[*place]))) else {
            return (grid.len(), 0.0);
        };
        let mut low = grid[place];
        // Nothing lies above the first rate of the grid.
        let mut high = if place == 0 { low } else { grid[place - 1] };
        while high - low > precision * high {
            let middle = low + (high - low) / 2.0;
            // Neighbouring numbers have nothing between them, however fine the precision.
            if middle <= low || middle >= high {
                break;
            }
            if passes(self.at(middle)) { low = middle } else { high = middle }
        }
        (place, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuGroup, ModelSpec, Spacing};
    use policy::{LatencyTable, Network, Span};

    /// Searches curves of bad fractions by rate, under a bound of 1,000, and counts the runs.
    fn check(average: impl Fn(f64) -> f64, worst: impl Fn(f64) -> f64) -> (f64, f64, usize) {
        let mut rates = Vec::new();
        let found = find(1000.0, &Search::default(), |rate| {
            rates.push(rate);
            let (bad_average, bad_worst) = (average(rate), worst(rate));
            Probe { rate, bad_average, bad_worst, mean_batch: 1.0, busy: 0.5, gave_up: bad_average > 0.1 }
        });
        let runs = rates.len();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        assert_eq!(rates.len(), runs, "a rate was run twice");
        assert_eq!(found.probes.iter().map(|probe| probe.rate).collect::<Vec<_>>(), rates);
        assert!(found.worst <= found.average, "{found:?}");
        (found.average, found.worst, runs)
    }

    /// Bad from some rate on.
    fn above(rate: f64) -> impl Fn(f64) -> f64 {
        move |offered| if offered > rate { 0.05 } else { 0.0 }
    }

    #[test]
    fn the_crossing_is_found_closely() {
        for crossing in [999.0, 931.0, 700.0, 345.6, 12.0] {
            let (average, worst, _) = check(above(crossing), above(crossing * 0.8));
            assert!(average <= crossing && average >= crossing * 0.995, "{average} for {crossing}");
            let expected = if crossing * 0.8 > 10.5 { crossing * 0.8 } else { 0.0 };
            assert!(worst <= expected && worst >= expected * 0.995, "{worst} for {expected}");
        }
    }

    #[test]
    fn of_several_crossings_the_highest_counts() {
        let hole = |rate: f64| if rate > 800.0 || (200.0..600.0).contains(&rate) { 0.05 } else { 0.0 };
        let (average, worst, _) = check(hole, |rate| hole(rate).max(above(150.0)(rate)));
        assert!((796.0..=800.0).contains(&average), "{average}");
        assert!((149.0..=150.0).contains(&worst), "{worst}");
    }

    #[test]
    fn all_or_nothing() {
        assert_eq!(check(|_| 0.0, |_| 0.0), (1000.0, 1000.0, 1));
        let (average, worst, runs) = check(|_| 0.05, |_| 0.05);
        assert_eq!((average, worst), (0.0, 0.0));
        assert_eq!(runs, 64);
        assert_eq!(find(0.0, &Search::default(), |_| panic!("nothing to run")).average, 0.0);
    }

    #[test]
    fn a_run_that_gave_up_is_bad_for_both() {
        let found = find(1000.0, &Search::default(), |rate| Probe {
            rate,
            bad_average: 0.0,
            bad_worst: 0.0,
            mean_batch: 1.0,
            busy: 0.5,
            gave_up: rate > 500.0,
        });
        assert!(found.average <= 500.0 && found.worst == found.average, "{found:?}");
    }

    #[test]
    fn the_worst_model_costs_no_runs_where_it_is_like_the_average() {
        let (.., alone) = check(above(700.0), above(700.0));
        let (average, worst, runs) = check(above(700.0), above(699.0));
        assert!(worst <= average && runs <= alone + 1, "{runs} runs, {alone} for the average alone");
    }

    #[test]
    fn deferral_serves_most_of_the_bound() {
        let line = LatencyTable::line(Span::from_micros(1_053), Span::from_micros(5_072), 64);
        let objective = Span::from_millis(25);
        let scenario = Scenario {
            seed: 1,
            warmup: Span::from_secs(1),
            duration: Span::from_secs(5),
            policy: "deferred".into(),
            rate: 1.0,
            gpus: vec![GpuGroup { kind: "gpu".into(), count: 8, speed: 1.0 }],
            network: Network::default(),
            arrivals: Spacing::Poisson,
            noise: 0.0,
            failures: vec![],
            models: vec![ModelSpec { name: "m".into(), objective, share: 1.0, tables: vec![line.within(objective)] }],
            give_up_at: None,
        };
        let found = goodput(&scenario, &Search::default());
        assert!((5_000.0..5_700.0).contains(&found.average), "{found:?}");
        // With one model, the worst is the average.
        assert_eq!(found.worst, found.average);
        assert_eq!(found, goodput(&scenario, &Search::default()));
    }
}
