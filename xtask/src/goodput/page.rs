//! The page: tables of what was measured. Every number on it comes from the results.

use super::cells::WARMUP;
use super::results::{CellResult, Measure, Results, Spread};
use std::fmt::Write;

/// The first three rows of the table in the design (Poisson, average), by cell and policy. The design has one
/// figure for eager, which stands beside both of ours.
const DESIGN: [(&str, [(&str, f64); 5]); 3] = [
    ("one-8-poisson", figures(5314.0, 4975.0, 4295.0, 5010.0)),
    ("rn50x20_25-8-poisson", figures(1830.0, 2734.0, 2244.0, 1434.0)),
    ("a100mix_11-8-poisson", figures(3476.0, 4755.0, 3174.0, 898.0)),
];

const fn figures(deferred: f64, eager: f64, clockwork: f64, shepherd: f64) -> [(&'static str, f64); 5] {
    [
        ("deferred", deferred),
        ("eager", eager),
        ("eager-timeout", eager),
        ("clockwork", clockwork),
        ("shepherd", shepherd),
    ]
}

const OURS: &str = "weft";
/// Those that the largest gain is measured against.
const PUBLISHED: [&str; 3] = ["clockwork", "nexus", "shepherd"];
/// Below this part of the best other, a cell is lost.
const ENOUGH: f64 = 0.98;
/// Above this multiple of the best other, a cell is won.
const BETTER: f64 = 1.10;

/// The page for these results.
pub(super) fn page(results: &Results, policies: &[&str]) -> String {
    let mut out = String::new();
    write_page(results, policies, &mut out).expect("text can always be added to a string");
    out
}

/// How many seeds each policy was measured with; two numbers where cells differ.
fn seeds(results: &Results, policies: &[&str]) -> String {
    let count = |policy: &&str| {
        let all = results.cells.iter().flat_map(|cell| &cell.policies).filter(|result| result.policy == *policy);
        let counts: Vec<_> = all.map(|result| result.seeds.len()).collect();
        match (counts.iter().min(), counts.iter().max()) {
            (Some(least), Some(most)) if least == most => format!("{policy} {most}"),
            (Some(least), Some(most)) => format!("{policy} {least} to {most}"),
            _ => format!("{policy} none"),
        }
    };
    policies.iter().map(count).collect::<Vec<_>>().join(", ")
}

fn write_page(results: &Results, policies: &[&str], out: &mut String) -> std::fmt::Result {
    writeln!(out, "# Goodput\n\n<!-- Written by `cargo xtask goodput` from goodput.json; do not edit. -->\n")?;
    writeln!(
        out,
        "The highest rate, in requests a second over all models, at which at most 1% of the requests are bad (late, \
         refused or failed): of all requests together (average), and of the model that fares worst (worst model). \
         Found by `weft sim goodput` for each seed; figures are means over seeds, brackets hold the lowest and the \
         highest seed.\n"
    )?;
    writeln!(out, "- Command: `{}`", results.command)?;
    writeln!(out, "- Version: {}", results.weft)?;
    if let Some(machine) = &results.machine {
        writeln!(out, "- Machine: {machine} (results do not depend on it)")?;
    }
    writeln!(
        out,
        "- Seeds by policy: {}; warm-up {WARMUP} s, not counted; no network delay",
        seeds(results, policies)
    )?;
    writeln!(out, "- Workloads: `../shared/data/workloads`; `one` is one model of 1.053b+5.072 ms, objective 25 ms")?;
    writeln!(
        out,
        "- A cell is named after its workload, its GPUs and its arrivals (Poisson, or Gamma with shape 0.2); \
         `measured` takes latency from the tables in `../shared/data/profiles/parvagpu_a100_80gb` (whole GPU) instead \
         of the lines fitted to them"
    )?;
    left_out(results, policies, out)?;
    design(results, out)?;
    against_the_best(results, policies, out)?;
    everything(results, policies, out)
}

/// What the tables lack.
fn left_out(results: &Results, policies: &[&str], out: &mut String) -> std::fmt::Result {
    let complete = |cell: &CellResult, policy: &str| {
        cell.of(policy).is_some_and(|result| result.seeds.len() as u64 >= results.seeds)
    };
    let mut missing = Vec::new();
    for cell in &results.cells {
        let lacks: Vec<&str> = policies.iter().copied().filter(|policy| !complete(cell, policy)).collect();
        if !lacks.is_empty() {
            missing.push(format!("`{}` ({})", cell.name, lacks.join(", ")));
        }
    }
    if missing.is_empty() {
        writeln!(out, "- Left out: nothing; every policy ran in each of the {} cells", results.cells.len())
    } else {
        writeln!(out, "- Left out, in whole or for some seeds: {}", missing.join("; "))
    }
}

fn design(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Against the figures in the design\n")?;
    writeln!(
        out,
        "Average goodput, Poisson arrivals, beside the first three rows of the table in `scheduling.md`. The design \
         has one figure for eager, which is the better of its two rules in each row: timeout drop \
         (`eager-timeout`) in the first, window drop (`eager`) in the others. The rule that is not the better one \
         deviates by its nature: with one model, dropping heads to fill a window costs more requests than it \
         saves batches; with many, requests that time out one by one leave small batches behind. Timeout drop \
         never recovers from a burst near its limit, so its figure falls with the time simulated. Clockwork \
         here plans just in time, as the design's figures do; `clockwork-10ms` plans ahead as published.\n"
    )?;
    writeln!(out, "| cell | policy | design | measured | deviation |\n|---|---|---:|---:|---:|")?;
    for (name, figures) in DESIGN {
        let Some(cell) = results.cells.iter().find(|cell| cell.name == name) else { continue };
        for (policy, figure) in figures {
            let Some(spread) = cell.spread(policy, Measure::Average) else { continue };
            let deviation = (spread.mean / figure - 1.0) * 100.0;
            writeln!(out, "| {name} | {policy} | {figure:.0} | {} | {deviation:+.1}% |", spread_text(spread))?;
        }
    }
    Ok(())
}

/// The best of the other policies.
fn best_other<'a>(cell: &CellResult, policies: &[&'a str], measure: Measure) -> Option<(&'a str, f64)> {
    let others = policies.iter().copied().filter(|policy| *policy != OURS);
    let reached = others.filter_map(|policy| Some((policy, cell.spread(policy, measure)?.mean)));
    reached.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn against_the_best(results: &Results, policies: &[&str], out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## weft against the best other policy\n")?;
    writeln!(
        out,
        "| cell | weft, average | best other | ratio | weft, worst model | best other | ratio |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    )?;
    let mut ratios = Vec::new();
    for cell in &results.cells {
        let mut row = format!("| {} |", cell.name);
        for measure in Measure::BOTH {
            let (Some(ours), Some((other, best))) = (cell.spread(OURS, measure), best_other(cell, policies, measure))
            else {
                row.push_str(" - | - | - |");
                continue;
            };
            let ratio = ours.mean / best;
            ratios.push((ratio, measure, &cell.name));
            write!(row, " {} | {best:.0} {other} | {ratio:.3} |", spread_text(ours))?;
        }
        writeln!(out, "{row}")?;
    }
    counts(&ratios, out)?;
    largest_gain(results, out)
}

fn counts(ratios: &[(f64, Measure, &String)], out: &mut String) -> std::fmt::Result {
    let count = |keep: &dyn Fn(f64) -> bool| ratios.iter().filter(|(ratio, ..)| keep(*ratio)).count();
    let all = ratios.len();
    writeln!(out, "\nOf {all} comparisons, a cell's average and its worst model counted apart:\n")?;
    writeln!(out, "- at or above {ENOUGH} of the best other: {}", count(&|ratio| ratio >= ENOUGH))?;
    writeln!(out, "- above {BETTER:.2} of the best other: {}", count(&|ratio| ratio > BETTER))?;
    if let Some((ratio, measure, name)) = ratios.iter().min_by(|(a, ..), (b, ..)| a.total_cmp(b)) {
        writeln!(out, "- the lowest ratio: {ratio:.3} (`{name}`, {})", measure.name())?;
    }
    Ok(())
}

/// The largest ratio to the worst of the published systems. Where that one reaches no goodput at all there is
/// no ratio; such cells are counted apart.
fn largest_gain(results: &Results, out: &mut String) -> std::fmt::Result {
    let mut largest: Option<(f64, &str, Measure, &str)> = None;
    let mut nothing = 0;
    for cell in &results.cells {
        for measure in Measure::BOTH {
            let Some(ours) = cell.spread(OURS, measure) else { continue };
            let reached = PUBLISHED.iter().filter_map(|policy| Some((*policy, cell.spread(policy, measure)?.mean)));
            let Some((policy, worst)) = reached.reduce(|worst, next| if next.1 < worst.1 { next } else { worst })
            else {
                continue;
            };
            if worst <= 0.0 {
                nothing += 1;
                continue;
            }
            let ratio = ours.mean / worst;
            if largest.is_none_or(|(most, ..)| ratio > most) {
                largest = Some((ratio, &cell.name, measure, policy));
            }
        }
    }
    let among = PUBLISHED.join(", ");
    if let Some((ratio, name, measure, policy)) = largest {
        writeln!(
            out,
            "- the largest ratio to the worst of {among}: {ratio:.1} (`{name}`, {}, {policy})",
            measure.name()
        )?;
    }
    if nothing > 0 {
        writeln!(out, "- comparisons in which the worst of them reaches no goodput at all: {nothing}")?;
    }
    Ok(())
}

fn everything(results: &Results, policies: &[&str], out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## All policies\n\nAverage and, in brackets, worst model; means over seeds.\n")?;
    writeln!(out, "| cell | seconds | {} |", policies.join(" | "))?;
    writeln!(out, "|---|---:|{}", "---:|".repeat(policies.len()))?;
    for cell in &results.cells {
        let text = |policy: &&str| {
            let mean = |measure| cell.spread(policy, measure).map(|spread| spread.mean);
            match (mean(Measure::Average), mean(Measure::Worst)) {
                (Some(average), Some(worst)) => format!("{average:.0} [{worst:.0}]"),
                _ => "-".to_owned(),
            }
        };
        let cells: Vec<String> = policies.iter().map(text).collect();
        writeln!(out, "| {} | {} | {} |", cell.name, cell.duration_s, cells.join(" | "))?;
    }
    Ok(())
}

fn spread_text(Spread { mean, least, most }: Spread) -> String {
    format!("{mean:.0} [{least:.0}, {most:.0}]")
}

#[cfg(test)]
mod tests {
    use super::super::results::Sample;
    use super::*;

    fn cell(name: &str, reached: &[(&str, f64, f64)]) -> CellResult {
        let mut cell = CellResult { name: name.to_owned(), duration_s: 60, ..CellResult::default() };
        for (policy, average, worst) in reached {
            for (seed, shift) in [(1, -10.0), (2, 10.0)] {
                cell.insert(policy, Sample { seed, average: average + shift, worst: worst + shift });
            }
        }
        cell
    }

    fn check(cells: Vec<CellResult>, expected: &[&str]) {
        let results = Results { seeds: 2, command: "cargo xtask goodput".to_owned(), cells, ..Results::default() };
        let page = page(&results, &["weft", "deferred", "eager", "nexus", "shepherd"]);
        for line in expected {
            assert!(page.lines().any(|found| found == *line), "no line\n{line}\nin\n{page}");
        }
    }

    #[test]
    fn rows_have_the_best_other_and_counts_are_of_both_measures() {
        check(
            vec![
                cell(
                    "one-8-poisson",
                    &[("weft", 5580.0, 5000.0), ("deferred", 5314.0, 5000.0), ("eager", 4975.0, 10.0)],
                ),
                cell("x-8-gamma", &[("weft", 1200.0, 970.0), ("deferred", 900.0, 1000.0), ("nexus", 1000.0, 100.0)]),
            ],
            &[
                "| one-8-poisson | deferred | 5314 | 5314 [5304, 5324] | +0.0% |",
                "| one-8-poisson | 5580 [5570, 5590] | 5314 deferred | 1.050 | 5000 [4990, 5010] | 5000 deferred | 1.000 |",
                "| x-8-gamma | 1200 [1190, 1210] | 1000 nexus | 1.200 | 970 [960, 980] | 1000 deferred | 0.970 |",
                "Of 4 comparisons, a cell's average and its worst model counted apart:",
                "- at or above 0.98 of the best other: 3",
                "- above 1.10 of the best other: 1",
                "- the lowest ratio: 0.970 (`x-8-gamma`, worst model)",
                "- the largest ratio to the worst of clockwork, nexus, shepherd: 9.7 (`x-8-gamma`, worst model, nexus)",
                "| x-8-gamma | 60 | 1200 [970] | 900 [1000] | - | 1000 [100] | - |",
                "- Left out, in whole or for some seeds: `one-8-poisson` (nexus, shepherd); `x-8-gamma` (eager, shepherd)",
            ],
        );
    }

    #[test]
    fn a_policy_without_goodput_makes_no_ratio() {
        let reached = [("weft", 100.0, 100.0), ("deferred", 90.0, 90.0), ("shepherd", 50.0, 10.0)];
        let mut cell = cell("x", &reached);
        cell.insert("nexus", Sample { seed: 1, average: 0.0, worst: 0.0 });
        check(vec![cell], &["- comparisons in which the worst of them reaches no goodput at all: 2"]);
    }
}
