//! Functions whose load comes and goes beside training, under every way to scale them: `weft sim elastic` over published
//! traces.

use super::{percent, verdict};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Scenarios, by the trace that they are made from.
const TRACES: [&str; 4] = ["bursty", "periodic", "sporadic", "azure"];
const SEEDS: u64 = 5;
const OWN: &str = "weft";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    seeds: u64,
    traces: Vec<Trace>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trace {
    name: String,
    /// By seed and policy.
    runs: Vec<Run>,
}

/// An entry of what `weft sim elastic --json` prints, without its parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    policy: String,
    seed: u64,
    requests: u64,
    violations: f64,
    gpu_seconds: f64,
    peak_gpus: usize,
    fragmentation: f64,
    cold_starts: u64,
    unplaced: u64,
    training: Option<f64>,
    throughput: f64,
    throughput_per_gpu: f64,
    training_per_gpu: f64,
}

/// Means over seeds.
struct Mean {
    policy: String,
    violations: f64,
    gpu_seconds: f64,
    fragmentation: f64,
    cold_starts: f64,
    training: f64,
    per_gpu: f64,
    training_per_gpu: f64,
}

pub(super) fn measure(workspace: &Workspace) -> Result<Results> {
    workspace.data()?;
    let mut traces = Vec::new();
    for name in TRACES {
        let path = format!("bench/elastic/{name}.toml");
        let mut runs = Vec::new();
        for seed in 1..=SEEDS {
            let seed = seed.to_string();
            let weft = workspace.weft(["sim", "elastic", &path, "--seed", &seed, "--json"]);
            eprintln!("{}", weft.shown());
            let printed: Vec<Run> =
                serde_json::from_str(&weft.read()?).with_context(|| format!("read what {path} gave"))?;
            runs.extend(printed);
        }
        traces.push(Trace { name: name.to_owned(), runs });
    }
    Ok(Results { seeds: SEEDS, traces })
}

impl Trace {
    /// In the order of the first seed.
    fn means(&self) -> Vec<Mean> {
        let first = self.runs.first().map(|run| run.seed);
        let runs = self.runs.iter().filter(|run| Some(run.seed) == first);
        runs.map(|run| self.mean(&run.policy)).collect()
    }

    fn mean(&self, policy: &str) -> Mean {
        let own: Vec<&Run> = self.runs.iter().filter(|run| run.policy == policy).collect();
        let mean = |of: &dyn Fn(&Run) -> f64| own.iter().map(|run| of(run)).sum::<f64>() / own.len().max(1) as f64;
        Mean {
            policy: policy.to_owned(),
            violations: mean(&|run| run.violations),
            gpu_seconds: mean(&|run| run.gpu_seconds),
            fragmentation: mean(&|run| run.fragmentation),
            cold_starts: mean(&|run| run.cold_starts as f64),
            training: mean(&|run| run.training.unwrap_or(0.0)),
            per_gpu: mean(&|run| run.throughput_per_gpu),
            training_per_gpu: mean(&|run| run.training_per_gpu),
        }
    }
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Scaling in two dimensions\n")?;
        writeln!(
            out,
            "`weft sim elastic bench/elastic/TRACE.toml --seed N`, seeds 1 to {}, means. Four models with Dilu\'s A100 grids \
             as functions (eight for azure, which runs sixteen times as fast as recorded: the functions that are second, \
             fourth, eighth and so on by calls) beside three training jobs on four GPUs. Objectives are twice the QoS used \
             with the grids, half for the wait and half for the batch. Every policy has the same requests and begins with \
             one worker for each function; batches are made by the dispatcher that runs live, `policy::dispatch` with the \
             policy `weft`. `exclusive`, `timeshare`, `limit`, `request` and \
             `mps` scale by Knative\'s rule with its defaults. What is simulated, and how simply, is said in \
             `crates/sim/src/elastic.rs`; each policy\'s rules are in its file beside it. **Weft\'s constants were chosen with \
             these four traces in view, from some fifty variants on seeds 101 to 103; seeds 1 to 5 were looked at twice on \
             the way.** The others have the constants of their papers or defaults and were not tuned. Under `weft` training \
             jobs stay off each other\'s GPUs, which the others do not ask for; much of its gain in training comes from \
             that.\n\nViolations are requests late, dropped or refused. GPU \
             seconds are of GPUs with anything on them. Idle is the part of those in which nobody computed, batches counted \
             at the least work that is in them. Training is of what it does alone; per GPU, both are for each GPU in use.\n",
            self.seeds
        )?;
        for trace in &self.traces {
            trace.write(out)?;
        }
        Ok(())
    }
}

impl Trace {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "### {}\n", self.name)?;
        writeln!(
            out,
            "| policy | violations | GPU seconds | idle | starts | training | in time/s per GPU | training per GPU |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
        let means = self.means();
        for mean in &means {
            writeln!(
                out,
                "| {} | {:.2}% | {:.0} | {} | {:.0} | {} | {:.1} | {:.3} |",
                mean.policy,
                mean.violations * 100.0,
                mean.gpu_seconds,
                percent(mean.fragmentation),
                mean.cold_starts,
                percent(mean.training),
                mean.per_gpu,
                mean.training_per_gpu
            )?;
        }
        let Some(own) = means.iter().find(|mean| mean.policy == OWN) else { return writeln!(out) };
        writeln!(out, "\n`weft` against each:\n")?;
        writeln!(
            out,
            "| against | violations | GPU seconds | idle | training | requests per GPU | training per GPU | better on all four |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---|")?;
        for other in means.iter().filter(|mean| mean.policy != OWN) {
            let change = |own: f64, other: f64| match other {
                0.0 if own == 0.0 => "±0%".to_owned(),
                0.0 => "from 0".to_owned(),
                _ => format!("{:+.0}%", (own / other - 1.0) * 100.0),
            };
            let worse: Vec<&str> = [
                ("violations", own.violations > other.violations),
                ("GPU seconds", own.gpu_seconds > other.gpu_seconds * 1.0005),
                ("idle", own.fragmentation > other.fragmentation),
                ("training", own.training < other.training - 0.0005),
            ]
            .into_iter()
            .filter_map(|(name, worse)| worse.then_some(name))
            .collect();
            let all = match worse.is_empty() {
                true => verdict(true).to_owned(),
                false => format!("{}: {}", verdict(false), worse.join(", ")),
            };
            writeln!(
                out,
                "| {} | {} | {} | {} | {:.2}x | {:.2}x | {:.2}x | {all} |",
                other.policy,
                change(own.violations, other.violations),
                change(own.gpu_seconds, other.gpu_seconds),
                change(own.fragmentation, other.fragmentation),
                own.training / other.training.max(1e-9),
                own.per_gpu / other.per_gpu.max(1e-9),
                own.training_per_gpu / other.training_per_gpu.max(1e-9),
            )?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, seed: u64, violations: f64, gpu_seconds: f64) -> Run {
        Run {
            policy: policy.to_owned(),
            seed,
            requests: 100,
            violations,
            gpu_seconds,
            peak_gpus: 2,
            fragmentation: 0.2,
            cold_starts: 1,
            unplaced: 0,
            training: Some(0.9),
            throughput: 10.0,
            throughput_per_gpu: 5.0,
            training_per_gpu: 0.5,
        }
    }

    #[test]
    fn means_are_over_seeds_and_what_is_worse_is_named() {
        let runs = vec![
            run("dilu", 1, 0.04, 90.0),
            run("weft", 1, 0.01, 100.0),
            run("dilu", 2, 0.06, 70.0),
            run("weft", 2, 0.03, 100.0),
        ];
        let trace = Trace { name: "bursty".to_owned(), runs };
        let mut out = String::new();
        trace.write(&mut out).unwrap();
        assert!(out.contains("| dilu | 5.00% | 80 | 20.0% | 1 | 90.0% | 5.0 | 0.500 |\n"), "{out}");
        assert!(
            out.contains("| dilu | -60% | +25% | +0% | 1.00x | 1.00x | 1.00x | **missed**: GPU seconds |\n"),
            "{out}"
        );
    }
}
