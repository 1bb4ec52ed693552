//! What was measured on a GPU, by programs that run where it is: a trace served beside a training, and shared weights.
//! Their files lie beside the page; nothing of them is measured here.

use super::{percent, verdict};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const VIOLATIONS_MAX: f64 = 0.01;
const TRAINING_MIN: f64 = 0.7;
/// Gigabytes of weights that eight workers of a model of one have in all.
const WEIGHTS_MAX: f64 = 2.0;
/// Settings, what the page calls them, and the GPUs they take.
const SETTINGS: [(&str, &str, u32); 3] = [("weft", "Weft", 1), ("mps", "MPS", 1), ("alone", "a GPU each", 2)];

#[derive(Debug)]
pub(super) struct Results {
    beside: Beside,
    weights: Weights,
}

/// The file of `tests/gpu/serving.py`.
#[derive(Debug, Deserialize)]
struct Beside {
    seconds: u64,
    part: u64,
    others: Option<u64>,
    base: f64,
    slo: u64,
    gpu: String,
    summary: BTreeMap<String, Summary>,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    requests: u64,
    violations: f64,
    p99_ms: f64,
    training: f64,
    steps_per_second: f64,
}

#[derive(Debug, Deserialize)]
struct Part {
    setting: String,
    part: u64,
    steps_per_second: f64,
}

/// The file of `tests/gpu/weights.py`.
#[derive(Debug, Deserialize)]
struct Weights {
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    check: String,
    gigabytes: Option<f64>,
}

/// What lies in the folder of the page.
pub(super) fn read(documents: &Path) -> Result<Results> {
    Ok(Results {
        beside: parse(&documents.join("beside-training.json"))?,
        weights: parse(&documents.join("weights.json"))?,
    })
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        self.beside.write(out)?;
        self.weights.write(out)
    }
}

impl Beside {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { seconds, part, base, slo, gpu, .. } = self;
        let bursts = 4.0 * base;
        writeln!(out, "\n## On a GPU: bursts served beside a training\n")?;
        writeln!(
            out,
            "Measured on one {gpu} by `python3 tests/gpu/serving.py --weft target/release/weft --out FILE --seconds {seconds} \
             --part {part}{}`; [what it wrote](beside-training.json). ResNet50 in PyTorch under `weft up`, with an objective of \
             {slo} ms, is sent {base} requests a second and, every 8 to 20 s, {bursts} a second for 3 to 8 s. GPT-2 trains \
             beside it. Under MPS it is the same `weft up`, without sharing. A GPU each is both on the same GPU one after the \
             other. The settings take turns, {part} s of the trace at a time{}; between some parts, everything was started \
             anew.\n",
            self.others.map(|others| format!(" --others {others}")).unwrap_or_default(),
            self.others.map(|others| format!(", of which the others have {others} s")).unwrap_or_default(),
        )?;
        writeln!(
            out,
            "| | GPUs | requests | too late or refused | p99 of the worst part | training | its worst part |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|")?;
        for (name, title, gpus) in SETTINGS {
            let Some(Summary { requests, violations, p99_ms, training, .. }) = self.summary.get(name) else { continue };
            let (violations, worst) = (percent(*violations), self.worst_training(name));
            writeln!(
                out,
                "| {title} | {gpus} | {requests} | {violations} | {p99_ms:.1} ms | {training:.2} | {worst:.2} |"
            )?;
        }
        let Some(weft) = self.summary.get("weft") else { return Ok(()) };
        let held = verdict(weft.violations <= VIOLATIONS_MAX);
        writeln!(out, "\n- Too late or refused under Weft, at most 1%: {}, {held}", percent(weft.violations))?;
        let trained = verdict(weft.training >= TRAINING_MIN);
        writeln!(out, "- Training, of alone, at least {TRAINING_MIN}: {:.2}, {trained}", weft.training)
    }

    /// Training in the part in which it had least, of what it does alone in the same part.
    fn worst_training(&self, setting: &str) -> f64 {
        let alone = self.summary.get("alone").map_or(f64::NAN, |alone| alone.steps_per_second);
        let in_part = |number: u64| self.parts.iter().find(|part| part.setting == "alone" && part.part == number);
        let own = self.parts.iter().filter(|part| part.setting == setting);
        own.map(|part| part.steps_per_second / in_part(part.part).map_or(alone, |alone| alone.steps_per_second))
            .fold(f64::INFINITY, f64::min)
    }
}

impl Weights {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let found = self.checks.iter().find(|check| check.check.starts_with("weights of all workers"));
        let Some(gigabytes) = found.and_then(|check| check.gigabytes) else { return Ok(()) };
        writeln!(out, "\n## On a GPU: weights of eight workers\n")?;
        writeln!(
            out,
            "Eight workers of a PyTorch model of 1 GB on one NVIDIA H200: `python3 tests/gpu/weights.py`; [what it \
             wrote](weights.json).\n\n- Weights in all, under {WEIGHTS_MAX} GB: {gigabytes:.3} GB, {}",
            verdict(gigabytes < WEIGHTS_MAX)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(late: f64, steps: f64) -> String {
        let summary = |violations: f64, steps: f64| {
            let training = steps / 2.0;
            format!(
                r#"{{"requests": 10, "violations": {violations}, "p99_ms": 9.0, "training": {training}, "steps_per_second": {steps}}}"#
            )
        };
        let part =
            |setting, steps: f64| format!(r#"{{"setting": "{setting}", "part": 1, "steps_per_second": {steps}}}"#);
        let text = format!(
            r#"{{"seconds": 60, "part": 60, "others": null, "base": 40.0, "slo": 100, "gpu": "a GPU",
                "summary": {{"weft": {}, "alone": {}}}, "parts": [{}, {}]}}"#,
            summary(late, steps),
            summary(0.0, 2.0),
            part("weft", steps),
            part("alone", 2.0),
        );
        let mut out = String::new();
        serde_json::from_str::<Beside>(&text).unwrap().write(&mut out).unwrap();
        out
    }

    #[test]
    fn what_was_missed_is_said() {
        let good = beside(0.0, 1.6);
        assert!(good.contains("| Weft | 1 | 10 | 0.0% | 9.0 ms | 0.80 | 0.80 |"), "{good}");
        assert!(!good.contains("missed") && !good.contains("MPS |"), "{good}");
        assert!(beside(0.02, 1.6).contains("at most 1%: 2.0%, **missed**"));
        assert!(beside(0.0, 1.2).contains("at least 0.7: 0.60, **missed**"));
    }
}
