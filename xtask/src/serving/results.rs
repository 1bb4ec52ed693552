//! What was measured, as kept in the JSON file.

use crate::machine::Machine;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// What `weft --version` says.
    pub(super) weft: String,
    pub(super) machine: Option<Machine>,
    /// What makes them again.
    pub(super) command: String,
    pub(super) echo: Vec<Rounds<EchoSample>>,
    pub(super) steady: Vec<Rounds<SteadySample>>,
    pub(super) overload: Vec<Rounds<OverloadSample>>,
    #[serde(default)]
    pub(super) lone: Vec<Rounds<LoneSample>>,
    #[serde(default)]
    pub(super) fidelity: Vec<Rounds<FidelitySample>>,
}

/// One contender's turns in one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rounds<Sample> {
    pub(super) contender: String,
    pub(super) title: String,
    /// How it was measured; results for other settings are forgotten.
    pub(super) settings: String,
    pub(super) rounds: Vec<Sample>,
}

/// One turn with the echo model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EchoSample {
    pub(super) round: u64,
    pub(super) requests_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) cpu_ms_per_request: f64,
    /// Of the idle server and all its processes, shared pages divided among those that share them.
    pub(super) memory_mb: f64,
    /// The same with shared pages counted for each.
    pub(super) resident_mb: f64,
    /// From the start to the first answer.
    pub(super) start_s: f64,
    pub(super) failed: u64,
    /// The part of the machine that others used meanwhile.
    pub(super) others: f64,
}

/// One turn with the echo model at a given rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SteadySample {
    pub(super) round: u64,
    pub(super) rate: f64,
    pub(super) good_rps: f64,
    pub(super) p99_ms: Option<f64>,
}

/// One turn with `magika`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OverloadSample {
    pub(super) round: u64,
    /// Of Triton with its defaults, in this round.
    pub(super) capacity: f64,
    pub(super) times_capacity: f64,
    pub(super) good_rps: f64,
    /// The part of the machine that others used meanwhile.
    pub(super) others: f64,
}

/// One turn with requests that meet nobody.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoneSample {
    pub(super) round: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// What the server says that the model took, in the mean.
    #[serde(default)]
    pub(super) computed_ms: Option<f64>,
}

/// One turn of the live server against the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FidelitySample {
    pub(super) round: u64,
    pub(super) rate: u32,
    pub(super) simulated_good_rps: f64,
    pub(super) live_good_rps: f64,
}

/// The median of several turns, with the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, least, most })
    }
}

impl Results {
    /// What was kept; nothing when there is no file.
    pub(super) fn load(path: &Path) -> Result<Results> {
        if !path.exists() {
            return Ok(Results::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {} (--fresh starts over)", path.display()))
    }

    /// Writes all of it, so that the file is whole at every moment.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("write results as JSON")?;
        let beside = path.with_extension("json.new");
        std::fs::write(&beside, text + "\n").with_context(|| format!("write {}", beside.display()))?;
        std::fs::rename(&beside, path).with_context(|| format!("write {}", path.display()))
    }

    /// Forgets contenders with one of these in their names.
    pub(super) fn forget(&mut self, parts: &[String]) {
        let kept = |name: &str| !parts.iter().any(|part| name.contains(part.as_str()));
        self.echo.retain(|result| kept(&result.contender));
        self.steady.retain(|result| kept(&result.contender));
        self.overload.retain(|result| kept(&result.contender));
        self.lone.retain(|result| kept(&result.contender));
        self.fidelity.retain(|result| kept(&result.contender));
    }

    /// Forgets contenders that there are no more and puts the rest in order.
    pub(super) fn keep_order(&mut self, names: &[String]) {
        fn keep<Sample>(results: &mut Vec<Rounds<Sample>>, names: &[String]) {
            let place = |name: &String| names.iter().position(|other| other == name);
            results.retain(|result| place(&result.contender).is_some());
            results.sort_by_key(|result| place(&result.contender));
        }
        keep(&mut self.echo, names);
        keep(&mut self.steady, names);
        keep(&mut self.overload, names);
        keep(&mut self.lone, names);
    }

    pub(super) fn echo_of(&mut self, name: &str, title: String, settings: &str) -> &mut Rounds<EchoSample> {
        of(&mut self.echo, name, title, settings)
    }

    pub(super) fn steady_of(&mut self, name: &str, title: String, settings: &str) -> &mut Rounds<SteadySample> {
        of(&mut self.steady, name, title, settings)
    }

    pub(super) fn overload_of(&mut self, name: &str, title: String, settings: &str) -> &mut Rounds<OverloadSample> {
        of(&mut self.overload, name, title, settings)
    }

    pub(super) fn lone_of(&mut self, name: &str, title: String, settings: &str) -> &mut Rounds<LoneSample> {
        of(&mut self.lone, name, title, settings)
    }

    pub(super) fn fidelity_of(&mut self, settings: &str) -> &mut Rounds<FidelitySample> {
        of(&mut self.fidelity, "weft", "weft".to_owned(), settings)
    }

    /// Requests a second that a contender answered in a round.
    pub(super) fn echo_rate(&self, name: &str, round: u64) -> Option<f64> {
        let result = self.echo.iter().find(|result| result.contender == name)?;
        result.rounds.iter().find(|sample| sample.round == round).map(|sample| sample.requests_per_second)
    }

    /// The capacity that a round's rates are multiples of, when it is known.
    pub(super) fn capacity(&self, round: u64) -> Option<f64> {
        let samples = self.overload.iter().flat_map(|result| &result.rounds);
        samples.filter(|sample| sample.round == round).map(|sample| sample.capacity).next()
    }
}

/// The turns of a contender, empty when there are none with these settings.
fn of<'a, Sample>(
    results: &'a mut Vec<Rounds<Sample>>,
    name: &str,
    title: String,
    settings: &str,
) -> &'a mut Rounds<Sample> {
    let place = results.iter().position(|result| result.contender == name);
    if place.is_none_or(|place| results[place].settings != settings) {
        results.retain(|result| result.contender != name);
        let (contender, settings) = (name.to_owned(), settings.to_owned());
        results.push(Rounds { contender, title, settings, rounds: Vec::new() });
    }
    let kept = results.iter_mut().find(|result| result.contender == name);
    kept.expect("it was there or was added")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_two_lies_between_them() {
        let spread = Spread::of([4.0, 1.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of([3.0, 9.0, 1.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn results_with_other_settings_are_forgotten() {
        let mut results = Results::default();
        let sample = SteadySample { round: 1, rate: 5.0, good_rps: 4.0, p99_ms: None };
        results.steady_of("weft", "weft".to_owned(), "10 s").rounds.push(sample);
        assert_eq!(results.steady_of("weft", "weft".to_owned(), "10 s").rounds.len(), 1);
        assert_eq!(results.steady_of("weft", "weft".to_owned(), "20 s").rounds.len(), 0);
        assert_eq!(results.steady.len(), 1);
    }
}
