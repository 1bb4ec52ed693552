//! The page for `docs/benchmarks`: tables of what was measured. Every number on it comes from the results.

use crate::columns::{cell, parts};
use crate::figures::{GOOD_WITHIN, PairFigures};
use crate::prediction::{predictions, sentence, table};
use crate::results::Results;
use crate::text::{alone, given};
use report::numbers::rate;
use std::fmt::{Result, Write};

/// The page for these results. `meaning`: of a setting, in a few words.
pub(super) fn page(
    results: &Results,
    figures: &[PairFigures],
    meaning: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let mut out = String::new();
    write_page(results, figures, &meaning, &mut out).expect("text can always be added to a string");
    out
}

fn write_page(
    results: &Results,
    figures: &[PairFigures],
    meaning: &dyn Fn(&str) -> Option<&'static str>,
    out: &mut String,
) -> Result {
    let (machine, options) = (&results.machine, &results.options);
    writeln!(out, "# Sharing a GPU\n\n<!-- Written by `weft bench sharing --markdown`; do not edit. -->\n")?;
    writeln!(
        out,
        "Latency programs colocated with best-effort programs on one GPU, in every setting. Each figure compares a side \
         with what it does alone: 1 is as good as alone, higher throughput is better, lower latency is better.\n"
    )?;
    writeln!(out, "- GPU: {}, driver {}", machine.gpu, machine.driver)?;
    let plural = if machine.cores == 1 { "" } else { "s" };
    writeln!(out, "- Processor: {}, {} core{plural}", machine.cpu, machine.cores)?;
    for command in results.command.split("; ") {
        writeln!(out, "- Command: `{command}`")?;
    }
    writeln!(out, "- Version: weft {}; seed {}", results.weft, options.seed)?;
    writeln!(
        out,
        "- Figures are medians over {} round{}. Brackets hold the lowest and the highest value, or, of more than eight \
         rounds, the 95% confidence interval of the median. A round measures every setting of every pair between two runs \
         alone, and each round begins with another setting. Ratios compare with the mean of the runs alone in the same \
         round; the row `alone` compares these runs with their own mean, and so shows the noise",
        options.rounds,
        if options.rounds == 1 { "" } else { "s" }
    )?;
    writeln!(
        out,
        "- Each run: {} s with one request after the other, and {} s with requests at random at {}% of what the latency \
         programs answer alone, at the same times in every setting{}. Both sides warm up for {} s before{}. Latency counts \
         from the arrival of a request. With fewer than a thousand requests, p99.9 is the slowest",
        options.closed_seconds,
        options.poisson_seconds,
        options.poisson_load * 100.0,
        options.idle_seconds.map(|seconds| format!("; {seconds} s without requests")).unwrap_or_default(),
        options.warmup_seconds,
        if options.restart_each_round { "; the latency programs are new processes in every round" } else { "" }
    )?;
    let good = match options.objective_ms {
        Some(millis) => format!("{millis} ms"),
        None => format!("{GOOD_WITHIN} times the 99th percentile alone"),
    };
    let suspended = match options.alternate_seconds {
        Some(seconds) => format!(
            "under Weft in the same run, in which the best-effort programs are suspended and resumed every {seconds} s; in \
             other settings in a run just before or after, in which they are idle"
        ),
        None => "in a run just before or after, in which the best-effort programs are idle".into(),
    };
    writeln!(
        out,
        "- `vs suspended`: compared with the same programs in the same setting without the best-effort side, {suspended}. \
         `over weft`: mean latency, compared with that under Weft in the same round. `idle`: throughput of the best-effort \
         programs while the latency programs are idle. `goodput`: requests that took at most {good}, compared with those \
         alone. `sum`: throughput of both sides, each compared with its capacity alone; with requests at random only good \
         ones count\n"
    )?;
    writeln!(out, "| setting | what it is |\n|---|---|")?;
    for setting in &results.settings {
        writeln!(out, "| `{setting}` | {} |", meaning(setting).unwrap_or("–"))?;
    }
    for pair in figures {
        write_pair(results, pair, out)?;
    }
    write_predictions(results, figures, out)?;
    write_refused(figures, out)
}

fn write_predictions(results: &Results, figures: &[PairFigures], out: &mut String) -> Result {
    let predictions = predictions(results, figures);
    if predictions.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n## Predicted by the simulator\n\n{}\n", sentence(&predictions))?;
    for (place, row) in table(&predictions).iter().enumerate() {
        writeln!(out, "| {} |", row.join(" | "))?;
        if place == 0 {
            writeln!(out, "|---|---|{}", "---:|".repeat(row.len() - 2))?;
        }
    }
    Ok(())
}

fn write_pair(results: &Results, pair: &PairFigures, out: &mut String) -> Result {
    let own = results.pairs.iter().find(|own| own.name == pair.pair).expect("figures are of the results' pairs");
    writeln!(out, "\n## {}\n\n- Latency: `{}`", pair.pair, own.latency)?;
    writeln!(out, "- Best-effort: `{}`", own.best_effort)?;
    writeln!(out, "- {}", alone(pair))?;
    for part in parts(pair) {
        writeln!(out, "\n### {}\n", part.heading)?;
        let heads: String = part.columns.iter().map(|column| format!(" {} |", column.head)).collect();
        writeln!(out, "| setting |{heads}\n|---|{}", "---:|".repeat(part.columns.len()))?;
        for setting in &pair.settings {
            let cells: String = match (setting.rounds, &setting.refused) {
                (0, Some(_)) => " refused |".to_owned() + &" |".repeat(part.columns.len().saturating_sub(1)),
                _ => part.columns.iter().map(|column| format!(" {} |", cell((column.of)(setting)))).collect(),
            };
            writeln!(out, "| {} |{cells}", setting.setting)?;
        }
    }
    let goodput: Vec<String> = pair
        .settings
        .iter()
        .filter_map(|setting| Some(format!("{} {}", setting.setting, rate(setting.poisson.goodput_rps?.median))))
        .collect();
    if !goodput.is_empty() {
        writeln!(out, "\nGoodput at random, requests/s: {}.", goodput.join(", "))?;
    }
    let given = given(pair);
    if !given.is_empty() {
        writeln!(out, "\n{}", given.join("\n"))?;
    }
    Ok(())
}

fn write_refused(figures: &[PairFigures], out: &mut String) -> Result {
    let refused = figures.iter().flat_map(|pair| {
        pair.settings.iter().filter_map(|setting| Some((&pair.pair, setting, setting.refused.as_ref()?)))
    });
    let refused: Vec<_> = refused.collect();
    if refused.is_empty() {
        return writeln!(out, "\nNothing was refused.");
    }
    writeln!(out, "\n## What was refused\n")?;
    for (pair, setting, reason) in refused {
        let when = if setting.rounds == 0 { "" } else { " in some rounds" };
        writeln!(out, "- {pair}, `{}`{when}: {}", setting.setting, reason.replace('\n', " "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{figures, tests::sample};

    #[test]
    fn a_page_has_a_row_for_every_setting() {
        let results = sample();
        let page = page(&results, &figures(&results), |setting| (setting == "mps").then_some("MPS"));
        for expected in [
            "- GPU: a <GPU>, driver 580\n",
            "- Processor: a processor, 2 cores\n",
            "- Command: `weft bench sharing --rounds 2`\n",
            "| `mps` | MPS |\n| `weft` | – |\n",
            "## one\n\n- Latency: `a`\n- Best-effort: `b`\n",
            "| default | 0.70 [0.70, 0.70] | 0.70 [0.70, 0.70] | 1.39 [1.39, 1.39] | 1.40 [1.40, 1.40] |",
            "| mps | refused | | | | | | | | |\n",
            "\n- `weft`, one after the other: best-effort programs were held for 25% of the time, on 75% of the SMs, for \
             bursts that took 1.02 of what they may\n",
            "Goodput at random, requests/s: alone 37.5, default 33.8.\n",
            "- one, `mps`: there is no MPS\n- one, `weft` in some rounds: it died\n",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| alone |")).count();
        assert_eq!(rows, 2);
    }
}
