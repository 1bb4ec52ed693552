//! From runs to figures: ratios to alone, within a round, and their spread over rounds.
//!
//! A ratio compares a run with the mean of the runs alone of the same pair, load and round, so that a machine that is
//! slower an hour later changes nothing. What could not be measured is absent, never zero.

use crate::results::{Given, Load, Results, Run, Side};
use crate::settings::{ALONE, WEFT};
use serde::Serialize;

/// The setting of runs in which best-effort programs were by themselves.
pub(super) const BEST_EFFORT_ALONE: &str = "best-effort-alone";

/// A request counts for goodput when it took at most so many times the 99th percentile alone, unless it was said how long
/// it may take.
pub(super) const GOOD_WITHIN: f64 = 2.0;

/// How sure it is at least that the median lies between the lower and the upper end of a [`Spread`], of values enough.
const SURE: f64 = 0.95;

/// A figure over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// What the median of all rounds that there could be lies between, 19 times in 20. Up to eight values that is the least
    /// and the most; of fewer than six it is not even so sure.
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Of at least one number. What is not a number does not count.
    pub(super) fn new(mut values: Vec<f64>) -> Option<Spread> {
        values.retain(|value| value.is_finite());
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        let beyond = beyond(values.len());
        Some(Spread { median, least, most, low: values[beyond], high: values[values.len() - 1 - beyond] })
    }
}

/// How many of so many values may be left out at either end, where the median is still [`SURE`] to be between the others:
/// each value is as likely above it as below.
fn beyond(count: usize) -> usize {
    let (mut left_out, mut exactly, mut outside) = (0, 0.5f64.powi(count as i32), 0.0);
    loop {
        outside += 2.0 * exactly;
        if 1.0 - outside < SURE || 2 * left_out >= count {
            return left_out.saturating_sub(1);
        }
        left_out += 1;
        exactly *= (count + 1 - left_out) as f64 / left_out as f64;
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2}, {:.2}]", self.median, self.low, self.high)
    }
}

/// The figures of one pair.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PairFigures {
    pub(super) pair: String,
    /// What the latency programs do a second alone, one request after the other.
    pub(super) capacity_rps: Option<Spread>,
    /// What the best-effort programs do a second alone.
    pub(super) best_effort_rps: Option<Spread>,
    /// The 99th percentile alone, in milliseconds.
    pub(super) closed_p99_ms: Option<Spread>,
    pub(super) poisson_p99_ms: Option<Spread>,
    pub(super) settings: Vec<SettingFigures>,
}

/// The figures of a pair in a setting.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SettingFigures {
    pub(super) setting: String,
    pub(super) closed: LoadFigures,
    pub(super) poisson: LoadFigures,
    /// What best-effort programs do beside latency programs that have nothing to do, over what they do alone.
    pub(super) idle: Option<Spread>,
    /// Rounds that were measured.
    pub(super) rounds: usize,
    /// Why rounds are missing.
    pub(super) refused: Option<String>,
}

/// Ratios to alone, under one load.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LoadFigures {
    pub(super) throughput: Option<Spread>,
    pub(super) p50: Option<Spread>,
    pub(super) p99: Option<Spread>,
    pub(super) p999: Option<Spread>,
    pub(super) best_effort: Option<Spread>,
    /// What both sides do, each over its own capacity alone. Of requests at random the good ones count: all that came are
    /// answered, sooner or later.
    pub(super) sum: Option<Spread>,
    /// Requests that took at most [`GOOD_WITHIN`] times the 99th percentile alone, over those alone.
    pub(super) goodput: Option<Spread>,
    /// The same, in requests a second.
    pub(super) goodput_rps: Option<Spread>,
    /// Throughput and p99 over those of the same programs in the same setting, while those beside had nothing to do.
    pub(super) throughput_apart: Option<Spread>,
    pub(super) p99_apart: Option<Spread>,
    /// How long a request takes on average, over how long it takes under Weft.
    pub(super) over_weft: Option<Spread>,
    /// What Weft did about the best-effort programs, where it did.
    pub(super) given: Option<Given>,
}

/// What the runs of a round are compared with.
#[derive(Clone, Copy, Debug)]
struct Alone {
    rate_rps: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// A request that took at most so long is good.
    good_us: f64,
    goodput_rps: f64,
    /// One request after the other, whichever load this is of.
    capacity_rps: f64,
    best_effort_rps: Option<f64>,
}

/// Ratios of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Ratios {
    throughput: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    best_effort: Option<f64>,
    sum: Option<f64>,
    goodput: Option<f64>,
    goodput_rps: Option<f64>,
    throughput_apart: Option<f64>,
    p99_apart: Option<f64>,
}

/// All figures, pairs and settings in the order of the results.
pub(super) fn figures(results: &Results) -> Vec<PairFigures> {
    results.pairs.iter().map(|pair| of_pair(results, &pair.name)).collect()
}

fn of_pair(results: &Results, pair: &str) -> PairFigures {
    let runs: Vec<&Run> = results.runs.iter().filter(|run| run.pair == pair).collect();
    let alone = |load| runs.iter().filter(move |run| run.setting == ALONE && run.load == load).copied();
    let sides = |load| alone(load).filter_map(|run| run.latency.as_ref());
    let p99_ms = |load| {
        let latencies = sides(load).filter_map(|side| side.latencies.as_ref());
        Spread::new(latencies.map(|latencies| latencies.p99_us as f64 / 1e3).collect())
    };
    let best_effort = runs.iter().filter(|run| run.setting == BEST_EFFORT_ALONE);
    let best_effort = best_effort.filter_map(|run| run.best_effort.as_ref()).map(|side| side.rate_rps);
    PairFigures {
        pair: pair.to_owned(),
        capacity_rps: Spread::new(sides(Load::Closed).map(|side| side.rate_rps).collect()),
        best_effort_rps: Spread::new(best_effort.collect()),
        closed_p99_ms: p99_ms(Load::Closed),
        poisson_p99_ms: p99_ms(Load::Poisson),
        settings: results.settings.iter().map(|setting| of_setting(results, &runs, setting, pair)).collect(),
    }
}

fn of_setting(results: &Results, runs: &[&Run], setting: &str, pair: &str) -> SettingFigures {
    let of = |load, apart| {
        runs.iter().filter(move |run| run.setting == setting && run.load == load && run.apart == apart).copied()
    };
    let own = |load| of(load, false);
    let figures = |load| {
        let ratios = own(load).filter_map(|run| {
            let apart = of(load, true).find(|apart| apart.round == run.round).and_then(|apart| apart.latency.as_ref());
            Some(ratios(run, &alone(runs, run.round, load, results.options.objective_ms)?, apart))
        });
        let given: Vec<Given> = own(load).filter_map(|run| run.given).collect();
        let over_weft = own(load).filter_map(|run| Some(mean_us(run)? / weft_mean_us(runs, run.round, load)?));
        let over_weft = Spread::new(over_weft.filter(|_| ![ALONE, WEFT].contains(&setting)).collect());
        LoadFigures { given: Given::mean(&given), over_weft, ..spread(&ratios.collect::<Vec<Ratios>>()) }
    };
    let idle = own(Load::Idle)
        .filter_map(|run| Some(run.best_effort.as_ref()?.rate_rps / best_effort_alone(runs, run.round)?));
    let mut rounds: Vec<usize> = own(Load::Closed).map(|run| run.round).collect();
    rounds.dedup();
    let refused = results.refusals.iter().find(|refusal| refusal.pair == pair && refusal.setting == setting);
    SettingFigures {
        setting: setting.to_owned(),
        closed: figures(Load::Closed),
        poisson: figures(Load::Poisson),
        idle: Spread::new(idle.collect()),
        rounds: rounds.len(),
        refused: refused.map(|refusal| refusal.reason.clone()),
    }
}

/// How long requests of a run took on average.
fn mean_us(run: &Run) -> Option<f64> {
    Some(run.latency.as_ref()?.latencies.as_ref()?.mean_us)
}

/// The same under Weft, as it chooses.
fn weft_mean_us(runs: &[&Run], round: usize, load: Load) -> Option<f64> {
    let weft = |run: &&&Run| run.setting == WEFT && run.round == round && run.load == load && !run.apart;
    runs.iter().find(weft).and_then(|run| mean_us(run)).filter(|mean| *mean > 0.0)
}

/// What best-effort programs did by themselves in a round.
fn best_effort_alone(runs: &[&Run], round: usize) -> Option<f64> {
    let alone = runs.iter().filter(|run| run.setting == BEST_EFFORT_ALONE && run.round == round);
    mean(alone.filter_map(|run| Some(run.best_effort.as_ref()?.rate_rps)))
}

/// What the latency programs did by themselves in a round, the mean of all runs.
fn alone(runs: &[&Run], round: usize, load: Load, objective_ms: Option<f64>) -> Option<Alone> {
    let sides = |load| {
        let own = runs.iter().filter(move |run| run.setting == ALONE && run.round == round && run.load == load);
        own.filter_map(|run| run.latency.as_ref())
    };
    let latency = |of: fn(&super::latencies::Latencies) -> u64| {
        mean(sides(load).filter_map(|side| side.latencies.as_ref()).map(|latencies| of(latencies) as f64))
    };
    let p99_us = latency(|latencies| latencies.p99_us)?;
    let good_us = objective_ms.map_or(p99_us * GOOD_WITHIN, |millis| millis * 1e3);
    Some(Alone {
        rate_rps: mean(sides(load).map(|side| side.rate_rps))?,
        p50_us: latency(|latencies| latencies.p50_us)?,
        p99_us,
        p999_us: latency(|latencies| latencies.p999_us)?,
        good_us,
        goodput_rps: mean(sides(load).map(|side| goodput_rps(side, good_us)))?,
        capacity_rps: mean(sides(Load::Closed).map(|side| side.rate_rps))?,
        best_effort_rps: best_effort_alone(runs, round),
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Requests a second that were good.
fn goodput_rps(side: &Side, good_us: f64) -> f64 {
    let Some(latencies) = &side.latencies else { return 0.0 };
    side.rate_rps * latencies.histogram.within(good_us) as f64 / side.done as f64
}

fn ratios(run: &Run, alone: &Alone, apart: Option<&Side>) -> Ratios {
    let best_effort = run.best_effort.as_ref().zip(alone.best_effort_rps).map(|(side, alone)| side.rate_rps / alone);
    let Some(side) = &run.latency else { return Ratios { best_effort, ..Ratios::default() } };
    let latencies = side.latencies.as_ref();
    let goodput_rps = goodput_rps(side, alone.good_us);
    let counted_rps = if run.load == Load::Poisson { goodput_rps } else { side.rate_rps };
    Ratios {
        throughput: Some(side.rate_rps / alone.rate_rps),
        p50: latencies.map(|own| own.p50_us as f64 / alone.p50_us),
        p99: latencies.map(|own| own.p99_us as f64 / alone.p99_us),
        p999: latencies.map(|own| own.p999_us as f64 / alone.p999_us),
        best_effort,
        sum: best_effort.map(|best_effort| counted_rps / alone.capacity_rps + best_effort),
        goodput: Some(goodput_rps / alone.goodput_rps),
        goodput_rps: Some(goodput_rps),
        throughput_apart: apart.map(|apart| side.rate_rps / apart.rate_rps),
        p99_apart: latencies
            .zip(apart.and_then(|apart| apart.latencies.as_ref()))
            .map(|(own, apart)| own.p99_us as f64 / apart.p99_us.max(1) as f64),
    }
}

fn spread(ratios: &[Ratios]) -> LoadFigures {
    let of = |figure: fn(&Ratios) -> Option<f64>| Spread::new(ratios.iter().filter_map(figure).collect());
    LoadFigures {
        throughput: of(|ratios| ratios.throughput),
        p50: of(|ratios| ratios.p50),
        p99: of(|ratios| ratios.p99),
        p999: of(|ratios| ratios.p999),
        best_effort: of(|ratios| ratios.best_effort),
        sum: of(|ratios| ratios.sum),
        goodput: of(|ratios| ratios.goodput),
        goodput_rps: of(|ratios| ratios.goodput_rps),
        throughput_apart: of(|ratios| ratios.throughput_apart),
        p99_apart: of(|ratios| ratios.p99_apart),
        over_weft: None,
        given: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::latencies::Latencies;
    use crate::pairs;
    use crate::results::{Machine, Options, Refusal};

    fn side(rate_rps: f64, latencies_us: Vec<u64>) -> Option<Side> {
        Some(Side { done: latencies_us.len() as u64, rate_rps, latencies: Latencies::new(latencies_us) })
    }

    fn run(setting: &str, round: usize, load: Load, latency: Option<Side>, best_effort: Option<Side>) -> Run {
        let (pair, setting) = ("one".to_owned(), setting.to_owned());
        Run { pair, round, setting, load, apart: false, offered_rps: 0.0, latency, best_effort, given: None }
    }

    /// Two rounds of alone, default and a weft that was refused in the second one; the machine is half as fast then.
    pub(crate) fn sample() -> Results {
        let mut runs = Vec::new();
        for (round, slow) in [(1, 1), (2, 2)] {
            let pace = |rate: f64| rate / slow as f64;
            let us = |latency: u64| vec![latency * slow; 100];
            runs.push(run(BEST_EFFORT_ALONE, round, Load::Closed, None, side(pace(10.0), us(100_000))));
            for rate in [90.0, 110.0] {
                runs.push(run(ALONE, round, Load::Closed, side(pace(rate), us(10_000)), None));
                runs.push(run(ALONE, round, Load::Poisson, side(pace(50.0), us(12_000)), None));
            }
            let late = [vec![11_000 * slow; 90], vec![60_000 * slow; 10]].concat();
            let apart = |load, rate, latency| Run {
                apart: true,
                ..run("default", round, load, side(pace(rate), us(latency)), None)
            };
            runs.push(apart(Load::Closed, 100.0, 10_000));
            runs.push(apart(Load::Poisson, 50.0, 15_000));
            runs.push(run("default", round, Load::Closed, side(pace(70.0), us(14_000)), side(pace(7.0), us(1))));
            runs.push(run("default", round, Load::Poisson, side(pace(50.0), late), side(pace(8.0), us(1))));
            runs.push(run("default", round, Load::Idle, None, side(pace(9.0), us(1))));
        }
        let given = Some(Given { held: 0.25, space: 0.75, slice_us: 0.0, takes: Some(1.02) });
        runs.push(Run { given, ..run("weft", 1, Load::Closed, side(99.0, vec![10_100; 100]), side(0.0, vec![])) });
        Results {
            command: "weft bench sharing --rounds 2".into(),
            weft: "0.1.0".into(),
            machine: Machine { gpu: "a <GPU>".into(), driver: "580".into(), cpu: "a processor".into(), cores: 2 },
            options: Options {
                rounds: 2,
                closed_seconds: 2.0,
                poisson_seconds: 4.0,
                idle_seconds: None,
                alternate_seconds: None,
                restart_each_round: false,
                poisson_load: 0.5,
                objective_ms: None,
                warmup_seconds: 1.2,
                seed: 1,
            },
            pairs: pairs::read("one = a | b").unwrap(),
            settings: ["alone", "default", "mps", "weft"].map(String::from).into(),
            solos: Vec::new(),
            refusals: vec![
                Refusal { pair: "one".into(), setting: "mps".into(), round: 1, reason: "there is no MPS".into() },
                Refusal { pair: "one".into(), setting: "weft".into(), round: 2, reason: "it died".into() },
            ],
            runs,
        }
    }

    fn exactly(value: f64) -> Option<Spread> {
        Spread::new(vec![value])
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let figures = figures(&sample());
        let default = &figures[0].settings[1];
        // The machine was half as fast in the second round, and no ratio shows it.
        assert_eq!(default.closed.throughput, exactly(0.7));
        assert_eq!((default.closed.p50, default.closed.p99), (exactly(1.4), exactly(1.4)));
        assert_eq!(default.closed.best_effort, exactly(0.7));
        assert_eq!(default.closed.sum, exactly(1.4));
        assert_eq!(default.poisson.p99, exactly(5.0));
        assert_eq!(default.poisson.sum, exactly(0.45 + 0.8));
        assert_eq!(default.idle, exactly(0.9));
        assert_eq!((default.closed.throughput_apart, default.closed.p99_apart), (exactly(0.7), exactly(1.4)));
        assert_eq!(default.poisson.p99_apart, exactly(4.0));
        assert_eq!((default.rounds, &default.refused), (2, &None));
        // Weft was measured in the first round, one request after the other.
        assert_eq!((default.closed.over_weft, default.poisson.over_weft), (exactly(14_000.0 / 10_100.0), None));
        assert_eq!([0, 3].map(|place| figures[0].settings[place].closed.over_weft), [None, None]);
        // Nine of ten took less than twice what one of a hundred exceeds alone.
        assert_eq!(default.poisson.goodput, exactly(0.9));
        let goodput = default.poisson.goodput_rps.unwrap();
        assert_eq!((goodput.least, goodput.most), (22.5, 45.0));
    }

    #[test]
    fn what_is_good_can_be_said() {
        let goodput = |objective_ms| {
            let sample = sample();
            let options = Options { objective_ms, ..sample.options.clone() };
            figures(&Results { options, ..sample })[0].settings[1].poisson.goodput_rps.unwrap().most
        };
        assert_eq!(goodput(None), 45.0);
        assert_eq!(goodput(Some(1e6)), 50.0, "all of them");
        assert_eq!(goodput(Some(1e-3)), 0.0, "none of them");
    }

    #[test]
    fn alone_shows_its_own_noise() {
        let figures = figures(&sample());
        let alone = figures[0].settings[0].closed.throughput.unwrap();
        assert_eq!((alone.least, alone.median, alone.most), (0.9, 1.0, 1.1));
        assert_eq!(figures[0].settings[0].closed.best_effort, None);
        let capacity = figures[0].capacity_rps.unwrap();
        assert_eq!((capacity.least, capacity.most), (45.0, 110.0));
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let figures = figures(&sample());
        let [mps, weft] = [&figures[0].settings[2], &figures[0].settings[3]];
        assert_eq!((mps.closed.throughput, mps.rounds), (None, 0));
        assert_eq!(mps.refused.as_deref(), Some("there is no MPS"));
        // Nothing done is a ratio of zero; nothing asked is none.
        assert_eq!((weft.closed.best_effort, weft.poisson.p99), (exactly(0.0), None));
        assert_eq!((weft.rounds, weft.refused.as_deref()), (1, Some("it died")));
    }

    #[test]
    fn more_rounds_say_more_of_the_median() {
        // By the tables of the binomial distribution, as for the sign test.
        let counts = [1, 5, 6, 8, 9, 11, 12, 15, 20, 25, 100];
        assert_eq!(counts.map(beyond), [0, 0, 0, 0, 1, 1, 2, 3, 5, 7, 39]);
        let spread = Spread::new((1..=12).map(f64::from).collect()).unwrap();
        assert_eq!((spread.least, spread.low, spread.high, spread.most), (1.0, 3.0, 10.0, 12.0));
        assert_eq!(spread.to_string(), "6.50 [3.00, 10.00]");
    }

    #[test]
    fn a_median_lies_in_the_middle() {
        let spread = |values: &[f64]| Spread::new(values.to_vec());
        let of_three = Spread { median: 2.0, least: 1.0, most: 3.0, low: 1.0, high: 3.0 };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(of_three));
        assert_eq!(spread(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(spread(&[f64::NAN, 1.0]).unwrap().most, 1.0);
        assert_eq!([spread(&[]), spread(&[f64::INFINITY])], [None, None]);
        assert_eq!(spread(&[1.0, 2.0]).unwrap().to_string(), "1.50 [1.00, 2.00]");
    }
}
