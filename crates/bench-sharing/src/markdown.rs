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
        "Latency programs beside best-effort programs on one GPU, in every setting: how far each side is from what it \
         does alone. Throughput is better when higher, latency when lower; 1 is as good as alone.\n"
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
        "- Figures are medians over {} round{}; brackets hold the least and the most, or of more than eight what the \
         median lies between 19 times in 20. A round measures every setting of every pair, beginning with another one \
         each time, between two runs alone. Ratios are to the mean of the runs alone in the same round; the row \
         `alone` is each of them over that mean, and shows the noise",
        options.rounds,
        if options.rounds == 1 { "" } else { "s" }
    )?;
    writeln!(
        out,
        "- Each run: {} s of requests one after the other, and {} s of requests that come at random at {}% of what is \
         done alone, the same times in every setting{}; both sides are busy for {} s before{}. Latency counts from when a \
         request came. Of fewer than a thousand requests, p99.9 is the slowest",
        options.closed_seconds,
        options.poisson_seconds,
        options.poisson_load * 100.0,
        options.idle_seconds.map(|seconds| format!("; {seconds} s without any")).unwrap_or_default(),
        options.lead_seconds,
        if options.anew { "; latency programs are started anew in every round" } else { "" }
    )?;
    let good = match options.objective_ms {
        Some(millis) => format!("{millis} ms"),
        None => format!("{GOOD_WITHIN} times the 99th percentile alone"),
    };
    let apart = match options.alternate_seconds {
        Some(seconds) => format!(
            "under Weft in the same run, in which those beside them were suspended and went on every {seconds} s, and of \
             other settings a moment before or after, while those beside them had nothing to do"
        ),
        None => "a moment before or after, while those beside them had nothing to do, which a machine that drifts \
                 changes little"
            .into(),
    };
    writeln!(
        out,
        "- `idle`: best-effort programs beside latency programs that have nothing to do. `goodput`: requests that took \
         at most {good}, over those alone. `sum`: what both sides do, each over \
         its own capacity alone; of requests at random the good ones count. `over weft`: how long a request takes on average over \
         how long it takes under Weft, in the same round. `apart`: over the same programs in the \
         same setting, {apart}\n"
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
