//! FaST-GShare's case: eight functions that share four GPUs in time, and one GPU in shares.

use super::verdict;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Violations of any function, at most.
const VIOLATIONS_MAX: f64 = 0.01;
const RATIO_MIN: f64 = 3.15;
/// Loads are raised by so much at a time.
const STEP: f64 = 1.0 / 16.0;
const LOAD_MAX: f64 = 32.0;
const SEEDS: u64 = 3;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    seeds: u64,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Case {
    policy: String,
    gpus: usize,
    batching: bool,
    /// The largest load, of the scenario's, up to which every function keeps its objective at every step, with every seed.
    load: f64,
    /// Requests in time a second at that load, a mean over seeds.
    throughput: f64,
    /// The worst function's violations there.
    violations: f64,
}

#[derive(Debug, Deserialize)]
struct Report {
    throughput: f64,
    unplaced: u64,
    functions: Vec<Function>,
}

#[derive(Debug, Deserialize)]
struct Function {
    violations: f64,
}

pub(super) fn measure(workspace: &Workspace) -> Result<Results> {
    let mut cases = Vec::new();
    for batching in [false, true] {
        for (policy, gpus) in [("timeshare", 4), ("fast-gshare", 1), ("weft", 1)] {
            cases.push(case(workspace, policy, gpus, batching)?);
        }
    }
    Ok(Results { seeds: SEEDS, cases })
}

fn case(workspace: &Workspace, policy: &str, gpus: usize, batching: bool) -> Result<Case> {
    let path = if batching { "bench/elastic/eight-batched.toml" } else { "bench/elastic/eight.toml" };
    let mut held = Case { policy: policy.to_owned(), gpus, batching, load: 0.0, throughput: 0.0, violations: 0.0 };
    while held.load < LOAD_MAX {
        let load = held.load + STEP;
        let (throughput, violations) = at(workspace, path, policy, gpus, load)?;
        if violations > VIOLATIONS_MAX {
            break;
        }
        held = Case { load, throughput, violations, ..held };
    }
    Ok(held)
}

/// Throughput, a mean, and the worst violations of any function with any seed.
fn at(workspace: &Workspace, path: &str, policy: &str, gpus: usize, load: f64) -> Result<(f64, f64)> {
    let (mut throughput, mut worst) = (0.0, 0.0f64);
    for seed in 1..=SEEDS {
        let (gpus, load, seed) = (gpus.to_string(), load.to_string(), seed.to_string());
        let options = ["sim", "elastic", path, "--json", "--policies", policy, "--gpus", &gpus, "--load", &load];
        let weft = workspace.weft(options.into_iter().chain(["--seed", &seed]));
        eprintln!("{}", weft.shown());
        let reports: Vec<Report> =
            serde_json::from_str(&weft.read()?).with_context(|| format!("read what {path} gave"))?;
        for report in &reports {
            throughput += report.throughput / SEEDS as f64;
            let function = report.functions.iter().map(|function| function.violations).fold(0.0, f64::max);
            worst = worst.max(function);
            // A function without a worker has no requests in time, and no room is no result.
            worst = if report.unplaced > 0 && function > VIOLATIONS_MAX { 1.0 } else { worst };
        }
    }
    Ok((throughput, worst))
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Eight functions on one GPU\n")?;
        writeln!(
            out,
            "FaST-GShare\'s case: four ResNet, two RNN-T and two BERT functions. Four GPUs in time sharing, two functions on \
             each, against one GPU. The load is raised by a sixteenth at a time until some function has more than {:.0}% of its \
             requests late, dropped or refused with one of the seeds 1 to {}; the one before counts. ResNet is ResNet152 and BERT is \
             BERT-base of Dilu\'s grids; **there is no profile of RNN-T, and GPT2-large stands in for it**, a decoder that \
             runs small kernels one after the other as well. Requests run one by one, and then in batches, which help time \
             sharing more: `weft sim elastic bench/elastic/eight.toml --policies weft --gpus 1 --load FACTOR`.\n",
            VIOLATIONS_MAX * 100.0,
            self.seeds
        )?;
        writeln!(
            out,
            "| | policy | GPUs | load | in time/s | per GPU | worst violations | of time sharing, per GPU |"
        )?;
        writeln!(out, "|---|---|---:|---:|---:|---:|---:|---:|")?;
        for case in &self.cases {
            let per_gpu = case.throughput / case.gpus as f64;
            writeln!(
                out,
                "| {} | {} | {} | {:.2} | {:.0} | {per_gpu:.1} | {:.2}% | {:.2}x |",
                if case.batching { "batches" } else { "one by one" },
                case.policy,
                case.gpus,
                case.load,
                case.throughput,
                case.violations * 100.0,
                self.ratio(case)
            )?;
        }
        let own = |batching| self.cases.iter().find(|case| case.policy == "weft" && case.batching == batching);
        writeln!(out)?;
        for (batching, name) in [(false, "one by one"), (true, "in batches")] {
            if let Some(case) = own(batching) {
                let ratio = self.ratio(case);
                writeln!(
                    out,
                    "- At least {RATIO_MIN}x the throughput per GPU of time sharing, {name}: {ratio:.2}x, {}",
                    verdict(ratio >= RATIO_MIN)
                )?;
            }
        }
        Ok(())
    }

    fn ratio(&self, case: &Case) -> f64 {
        let shared = |other: &&Case| other.policy == "timeshare" && other.batching == case.batching;
        let per_gpu = |case: &Case| case.throughput / case.gpus as f64;
        self.cases.iter().find(shared).map_or(0.0, |other| per_gpu(case) / per_gpu(other).max(1e-9))
    }
}
