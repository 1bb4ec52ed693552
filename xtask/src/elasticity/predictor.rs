//! The predictor, asked for the half of published measurements that it has not seen.

use super::{percent, profiles, verdict};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Halves that are drawn.
const SEEDS: &str = "20";
const MEAN_MAX: f64 = 0.1;
const WORST_MAX: f64 = 0.3;
const COVERED_MIN: f64 = 0.9;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    seeds: String,
    lines: Vec<Line>,
}

/// An entry of what `weft profile accuracy --json` prints.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    model: String,
    predicted: String,
    held: String,
    repeats: usize,
    repeats_in: bool,
    predictions: usize,
    unknown: usize,
    mean: Option<f64>,
    worst: Option<f64>,
    covered: Option<f64>,
    uncertainty: Option<f64>,
    beyond_30_percent: usize,
}

/// Lines taken together.
struct Sum {
    predictions: usize,
    unknown: usize,
    mean: f64,
    worst: f64,
    covered: f64,
    beyond: usize,
}

pub(super) fn measure(workspace: &Workspace) -> Result<Results> {
    let mut files = profiles(workspace, "dilu_a100_40gb")?;
    files.extend(profiles(workspace, "parvagpu_a100_80gb")?);
    let options = ["profile", "accuracy", "--json", "--seeds", SEEDS];
    let weft = workspace.weft(options.into_iter().chain(files.iter().map(String::as_str)));
    eprintln!("{}", weft.shown());
    let lines = serde_json::from_str(&weft.read()?).context("read what weft profile accuracy gave")?;
    Ok(Results { seeds: SEEDS.to_owned(), lines })
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Predicting latency\n")?;
        writeln!(
            out,
            "`weft profile accuracy FILE...` holds back half of the measurements and predicts them from the others. An \
             error is a part of the latency that was measured. Stated is the median of the uncertainties that come with \
             the predictions, covered the part of measurements within theirs. Unknown are points that are not between \
             others, for which there is no prediction. Drawn halves are {} different ones, taken together.\n\n**The predictor\'s \
             constants were chosen with these measurements in view, those held back included**, and so was the choice to \
             leave out rows that repeat. No other measurements were at hand to try it on; expect it to be somewhat worse \
             on yours.\n",
            self.seeds
        )?;
        writeln!(out, "### Alone, on parts of a GPU\n")?;
        self.table(out, "alone", "every other", false)?;
        self.table(out, "alone", "drawn", false)?;
        writeln!(out, "### In company\n")?;
        writeln!(
            out,
            "Processes of one model that share a MIG slice under MPS: rows with several are predicted from those with one \
             and from half of the others. Every other number of processes of each slice and batch is held back, so that \
             most are seen in some company; in drawn halves some are seen in none, and it is among those that predictions \
             are furthest off. {} of the rows repeat, digit for digit, the row with one process fewer, as if the last \
             process had not started. They are left out, and in again in the last table.\n",
            self.lines("company", "drawn", false).map(|line| line.repeats).sum::<usize>()
        )?;
        self.table(out, "company", "every other", false)?;
        self.table(out, "company", "drawn", false)?;
        self.table(out, "company", "every other", true)?;
        writeln!(out, "### In company for the first time\n")?;
        writeln!(
            out,
            "The same, where nothing of a model's company is known: what it is expected to cost from what each process \
             does alone. The goals are for halves and are shown to compare with; `weft sim elastic` expects the same of \
             its functions, which never met either.\n"
        )?;
        self.table(out, "company", "all", false)
    }

    fn lines<'a>(&'a self, predicted: &'a str, held: &'a str, repeats: bool) -> impl Iterator<Item = &'a Line> {
        let wanted = move |line: &&Line| line.predicted == predicted && line.held == held;
        self.lines.iter().filter(wanted).filter(move |line| line.repeats_in == repeats)
    }

    fn table(&self, out: &mut String, predicted: &str, held: &str, repeats: bool) -> std::fmt::Result {
        let with = if repeats { ", with the rows that repeat" } else { "" };
        writeln!(out, "Held back: {held}{with}.\n")?;
        writeln!(out, "| model | mean error | worst | beyond 30% | stated | covered | predictions | unknown |")?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
        for line in self.lines(predicted, held, repeats) {
            let part = |value: Option<f64>| value.map_or("–".to_owned(), percent);
            let [mean, worst, stated, covered] = [line.mean, line.worst, line.uncertainty, line.covered].map(part);
            writeln!(
                out,
                "| {} | {mean} | {worst} | {} | ±{stated} | {covered} | {} | {} |",
                line.model, line.beyond_30_percent, line.predictions, line.unknown
            )?;
        }
        let sum = sum(self.lines(predicted, held, repeats));
        writeln!(
            out,
            "\n- Mean error below {}: {}, {}\n- Worst error below {}: {}, {}{}\n- Covered at least {}: {}, {}\n- Unknown: \
             {} of {}\n",
            percent(MEAN_MAX),
            percent(sum.mean),
            verdict(sum.mean < MEAN_MAX),
            percent(WORST_MAX),
            percent(sum.worst),
            verdict(sum.worst < WORST_MAX),
            if sum.beyond > 0 {
                format!(", by {} of {} predictions", sum.beyond, sum.predictions)
            } else {
                String::new()
            },
            percent(COVERED_MIN),
            percent(sum.covered),
            verdict(sum.covered >= COVERED_MIN),
            sum.unknown,
            sum.unknown + sum.predictions
        )
    }
}

fn sum<'a>(lines: impl Iterator<Item = &'a Line>) -> Sum {
    let mut sum = Sum { predictions: 0, unknown: 0, mean: 0.0, worst: 0.0, covered: 0.0, beyond: 0 };
    for line in lines {
        let count = line.predictions as f64;
        sum.predictions += line.predictions;
        sum.unknown += line.unknown;
        sum.mean += line.mean.unwrap_or(0.0) * count;
        sum.covered += line.covered.unwrap_or(0.0) * count;
        sum.worst = sum.worst.max(line.worst.unwrap_or(0.0));
        sum.beyond += line.beyond_30_percent;
    }
    let count = sum.predictions.max(1) as f64;
    Sum { mean: sum.mean / count, covered: sum.covered / count, ..sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(model: &str, mean: f64, predictions: usize) -> Line {
        Line {
            model: model.to_owned(),
            predicted: "alone".to_owned(),
            held: "drawn".to_owned(),
            repeats: 0,
            repeats_in: false,
            predictions,
            unknown: 1,
            mean: Some(mean),
            worst: Some(4.0 * mean),
            covered: Some(1.0 - mean),
            uncertainty: Some(2.0 * mean),
            beyond_30_percent: usize::from(mean > 0.07),
        }
    }

    #[test]
    fn lines_are_summed_by_their_predictions_and_misses_are_said() {
        let sum = sum([line("a", 0.06, 30), line("b", 0.08, 10)].iter());
        assert!((sum.mean - 0.065).abs() < 1e-9 && (sum.covered - 0.935).abs() < 1e-9);
        let results = Results { seeds: "1".to_owned(), lines: vec![line("a", 0.06, 30), line("b", 0.08, 10)] };
        let mut out = String::new();
        results.table(&mut out, "alone", "drawn", false).unwrap();
        assert!(out.contains("- Mean error below 10.0%: 6.5%, reached\n"), "{out}");
        assert!(out.contains("- Worst error below 30.0%: 32.0%, **missed**, by 1 of 40 predictions\n"), "{out}");
        assert!(out.contains("- Covered at least 90.0%: 93.5%, reached\n"), "{out}");
        assert!(out.contains("- Unknown: 2 of 42\n"), "{out}");
    }
}
