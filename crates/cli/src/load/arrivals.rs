//! How requests are spaced, as typed, and what follows from it: shares, rate and spacing.

use crate::output::{Misuse, reason};
use sim::{Spacing, TraceFormat};
use std::path::PathBuf;

/// What was typed for `--arrivals`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ArrivalKind {
    Plain(Spacing),
    Trace { path: PathBuf, format: Option<TraceFormat> },
}

/// Traffic, as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Of each model; they add up to 1.
    pub(super) shares: Vec<f64>,
    /// Requests a second over all models.
    pub(super) rate: f64,
    pub(super) spacing: Spacing,
}

impl ArrivalKind {
    pub(super) fn parse(text: &str) -> Result<ArrivalKind, String> {
        let expected = || "expected poisson, constant, gamma:SHAPE or trace:FILE[:azure|:per-second]".to_owned();
        match text.split_once(':') {
            None if text == "poisson" => Ok(ArrivalKind::Plain(Spacing::Poisson)),
            None if text == "constant" => Ok(ArrivalKind::Plain(Spacing::Constant)),
            Some(("gamma", shape)) => {
                let shape = shape.parse().ok().filter(|shape| (0.01..=100.0).contains(shape));
                let shape = shape.ok_or("expected a shape of 0.01 to 100, like gamma:0.5")?;
                Ok(ArrivalKind::Plain(Spacing::Gamma { shape }))
            }
            Some(("trace", file)) if !file.is_empty() => {
                let (path, format) = match file.rsplit_once(':') {
                    Some((path, "azure")) => (path, Some(TraceFormat::Azure)),
                    Some((path, "per-second")) => (path, Some(TraceFormat::PerSecond)),
                    _ => (file, None),
                };
                Ok(ArrivalKind::Trace { path: path.into(), format })
            }
            _ => Err(expected()),
        }
    }

    /// What is sent to these models, with their weights where some were typed, at this rate if one was.
    pub(super) fn plan(&self, models: &[(String, Option<f64>)], rate: Option<f64>) -> Result<Plan, Misuse> {
        let weights: Vec<f64> = models.iter().map(|(_, weight)| weight.unwrap_or(1.0)).collect();
        let total: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        let (path, format) = match self {
            ArrivalKind::Plain(spacing) => {
                let rate =
                    rate.ok_or_else(|| Misuse("plan requests: --rate is missing; only a trace has its own".into()))?;
                return Ok(Plan { shares, rate, spacing: spacing.clone() });
            }
            ArrivalKind::Trace { path, format } => (path, format),
        };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Misuse(format!("read trace {name}: {}", reason(&error))))?;
        let format = format.unwrap_or(match text.starts_with("HashOwner,") {
            true => TraceFormat::Azure,
            false => TraceFormat::PerSecond,
        });
        let trace = sim::trace(&name, &text, format, models.len());
        let trace = trace.map_err(|error| Misuse(format!("read trace {error}")))?;
        if trace.shares.is_some() && models.iter().any(|(_, weight)| weight.is_some()) {
            return Err(Misuse(format!("plan requests: weights come from the trace {name}: give --model without one")));
        }
        let rate = rate.unwrap_or(trace.rate);
        if !sim::RATES.contains(&rate) {
            return Err(Misuse(format!("plan requests: the trace {name} has {rate} a second; give a --rate")));
        }
        Ok(Plan { shares: trace.shares.unwrap_or(shares), rate, spacing: trace.spacing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read() {
        let gamma = ArrivalKind::Plain(Spacing::Gamma { shape: 0.5 });
        assert_eq!(ArrivalKind::parse("gamma:0.5"), Ok(gamma));
        let trace = |path: &str, format| Ok(ArrivalKind::Trace { path: path.into(), format });
        assert_eq!(ArrivalKind::parse("trace:a:b.csv"), trace("a:b.csv", None));
        assert_eq!(ArrivalKind::parse("trace:a.csv:azure"), trace("a.csv", Some(TraceFormat::Azure)));
        for text in ["", "gamma", "gamma:0", "gamma:x", "trace", "trace:", "poisson:1", "uniform"] {
            assert!(ArrivalKind::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_trace_has_a_rate_and_perhaps_shares() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let model = |name: &str, weight| (name.to_owned(), weight);
        let plan = |text: &str, models: &[(String, Option<f64>)], rate| {
            std::fs::write(&path, text).unwrap();
            ArrivalKind::Trace { path: path.clone(), format: None }.plan(models, rate)
        };
        let told = plan("10\n30\n", &[model("a", Some(3.0)), model("b", None)], None).unwrap();
        assert_eq!((told.rate, told.shares), (20.0, vec![0.75, 0.25]));
        assert_eq!(plan("10\n30\n", &[model("a", None)], Some(5.0)).unwrap().rate, 5.0);
        let azure = "HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,60\no,a,g,http,180\n";
        let told = plan(azure, &[model("a", None), model("b", None)], None).unwrap();
        assert_eq!((told.rate, told.shares), (4.0, vec![0.25, 0.75]));
        assert!(plan(azure, &[model("a", Some(1.0))], None).unwrap_err().0.contains("weights come from the trace"));
        assert!(plan("1\nx\n", &[model("a", None)], None).unwrap_err().0.contains(":2: expected a number"));
        let missing = ArrivalKind::Plain(Spacing::Poisson).plan(&[model("a", None)], None).unwrap_err();
        assert_eq!(missing.0, "plan requests: --rate is missing; only a trace has its own");
    }
}
