//! What was measured, as kept in the JSON file.

use super::cells::Cell;
use crate::machine::Machine;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// All results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    /// What `weft --version` says.
    pub(super) weft: String,
    /// Where the last run was made.
    pub(super) machine: Option<Machine>,
    /// What makes them again.
    pub(super) command: String,
    /// Seeds of each cell.
    pub(super) seeds: u64,
    /// In the order of tables.
    pub(super) cells: Vec<CellResult>,
}

/// One cell's results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CellResult {
    pub(super) name: String,
    pub(super) workload: String,
    pub(super) gpus: usize,
    pub(super) duration_s: u64,
    /// Of the scenario and the files that it names; results for another are forgotten.
    pub(super) hash: String,
    pub(super) policies: Vec<PolicyResult>,
}

/// What one policy reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PolicyResult {
    pub(super) policy: String,
    pub(super) seeds: Vec<Sample>,
}

/// Goodput with one seed, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) seed: u64,
    pub(super) average: f64,
    pub(super) worst: f64,
}

/// The average of all models, or the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Average,
    Worst,
}

impl Measure {
    pub(super) const BOTH: [Measure; 2] = [Measure::Average, Measure::Worst];

    pub(super) fn name(self) -> &'static str {
        match self {
            Measure::Average => "average",
            Measure::Worst => "worst model",
        }
    }
}

/// Mean over seeds, with the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
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

    /// Forgets what these policies reached.
    pub(super) fn forget(&mut self, policies: &[String]) {
        for cell in &mut self.cells {
            cell.policies.retain(|result| !policies.contains(&result.policy));
        }
    }

    /// Forgets cells that there are no more and puts the rest in order.
    pub(super) fn keep_order(&mut self, cells: &[Cell]) {
        let place = |name: &str| cells.iter().position(|cell| cell.name() == name);
        self.cells.retain(|result| place(&result.name).is_some());
        self.cells.sort_by_key(|result| place(&result.name));
    }

    /// The results of a cell, empty when there are none for this very scenario.
    pub(super) fn cell(&mut self, cell: &Cell, hash: &str) -> &mut CellResult {
        let name = cell.name();
        let index = self.cells.iter().position(|result| result.name == name).unwrap_or_else(|| {
            self.cells.push(CellResult { name, ..CellResult::default() });
            self.cells.len() - 1
        });
        let kept = &mut self.cells[index];
        if kept.hash != hash {
            *kept = CellResult {
                name: cell.name(),
                workload: cell.workload.to_owned(),
                gpus: cell.gpus,
                duration_s: cell.duration,
                hash: hash.to_owned(),
                policies: Vec::new(),
            };
        }
        kept
    }
}

impl CellResult {
    pub(super) fn has(&self, policy: &str, seed: u64) -> bool {
        self.of(policy).is_some_and(|result| result.seeds.iter().any(|sample| sample.seed == seed))
    }

    pub(super) fn of(&self, policy: &str) -> Option<&PolicyResult> {
        self.policies.iter().find(|result| result.policy == policy)
    }

    /// Forgets seeds beyond the last.
    pub(super) fn keep_seeds(&mut self, last: u64) {
        for result in &mut self.policies {
            result.seeds.retain(|sample| sample.seed <= last);
        }
    }

    pub(super) fn insert(&mut self, policy: &str, sample: Sample) {
        let index = self.policies.iter().position(|result| result.policy == policy).unwrap_or_else(|| {
            self.policies.push(PolicyResult { policy: policy.to_owned(), seeds: Vec::new() });
            self.policies.len() - 1
        });
        let seeds = &mut self.policies[index].seeds;
        seeds.retain(|kept| kept.seed != sample.seed);
        seeds.push(sample);
        seeds.sort_by_key(|kept| kept.seed);
    }

    /// A policy's mean and spread; `None` when it was not measured.
    pub(super) fn spread(&self, policy: &str, measure: Measure) -> Option<Spread> {
        let values = self.of(policy)?.seeds.iter().map(|sample| match measure {
            Measure::Average => sample.average,
            Measure::Worst => sample.worst,
        });
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return None;
        }
        Some(Spread {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        })
    }
}
