//! The page: tables of what was measured. Every number of ours comes from the results.

use super::{Results, Run, Shuffle};
use std::fmt::Write;

/// Peak GPUs as published with the traces, by instances and policy.
const PUBLISHED: [(usize, [(&str, usize); 4]); 3] = [
    (100, [("exclusive", 132), ("limit", 117), ("request", 80), ("dilu", 82)]),
    (800, [("exclusive", 693), ("limit", 636), ("request", 520), ("dilu", 499)]),
    (3_200, [("exclusive", 1_879), ("limit", 1_722), ("request", 1_357), ("dilu", 1_321)]),
];

/// The page for these results.
pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    write_page(results, &mut out).expect("text can always be added to a string");
    out
}

fn write_page(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# Placement\n\n<!-- Written by `cargo xtask placement` from placement.json; do not edit. -->\n")?;
    writeln!(
        out,
        "Instances that start and stop, on GPUs of 40 GB in machines of eight: how many GPUs are in use at the busiest \
         time. 20% of the instances train on 2 or 4 GPUs, 20% are LLMs, 60% are other inference.\n"
    )?;
    writeln!(out, "- Command: `{}`", results.command)?;
    writeln!(out, "- Version: {}", results.weft)?;
    writeln!(out, "- Machine: {}", results.machine)?;
    writeln!(
        out,
        "- Rules: on a GPU requests stay within 1, limits within 1.5, memory within memory (`exclusive`, `limit` and \
         `request` have their own)"
    )?;
    writeln!(
        out,
        "- *Sums*: GPUs that all requests, all limits over 1.5 or all memory fill, whichever is most. *Bound*: no fewer \
         than parts that cannot be divided and of which no two fit on a GPU. Every training part of these traces needs \
         25 GB or more, so each has a GPU of its own, and no policy comes below their number"
    )?;
    writeln!(
        out,
        "- A part of a divided LLM takes the same part of its request and limit. What passes between the parts costs \
         nothing here, so the figures say what fits and not how fast it is"
    )?;
    writeln!(
        out,
        "- **The baselines are ours, written from descriptions**: of several orders in which `limit`, `request` and `dilu` \
         could try GPUs, and several ways in which `dilu` could divide LLMs, those were kept whose figures come closest to \
         the published ones, which are in the column beside"
    )?;
    writeln!(
        out,
        "- *Idle*: what lies idle on the GPUs in use, of whichever of the three is scarcest, over time. Decision: 99th \
         percentile, in microseconds; of three replays the least counts for each decision"
    )?;
    writeln!(
        out,
        "- *Dealt out anew*: the same starts and ends, with what instances ask for shuffled among those of a type. Weft's \
         constants were chosen by looking at these traces, and not by looking at these shuffles of them\n"
    )?;
    for trace in &results.traces {
        let Some(first) = trace.runs.first() else { continue };
        let (sums, bound) = (first.bound_gpus, first.bound_large_gpus);
        writeln!(out, "## {} instances\n\nSums {sums}, bound {bound}.\n", trace.instances)?;
        writeln!(
            out,
            "| policy | peak GPUs | published | of sums | of bound | mean GPUs | idle | moves | LLMs divided | decision |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")?;
        for run in &trace.runs {
            row(run, published(trace.instances, &run.policy), out)?;
        }
        writeln!(out)?;
        write_shuffles(&trace.shuffles, out)?;
    }
    Ok(())
}

fn write_shuffles(shuffles: &[Shuffle], out: &mut String) -> std::fmt::Result {
    let Some(first) = shuffles.first() else { return Ok(()) };
    writeln!(out, "Dealt out anew, {} times, peak GPUs of bound:\n", shuffles.len())?;
    writeln!(out, "| policy | least | mean | most |\n|---|---:|---:|---:|")?;
    for (index, Run { policy, .. }) in first.runs.iter().enumerate() {
        let run = |shuffle: &Shuffle| shuffle.runs.get(index).map(|run| of(run, run.bound_large_gpus));
        let all: Vec<f64> = shuffles.iter().filter_map(run).collect();
        let (least, most) = all.iter().fold((f64::MAX, 0.0), |(least, most), own| (own.min(least), own.max(most)));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        writeln!(out, "| `{policy}` | {least:.3} | {mean:.3} | {most:.3} |")?;
    }
    writeln!(out)
}

/// How many GPUs a policy needed for one of those that are needed at least.
fn of(run: &Run, bound: usize) -> f64 {
    run.peak_gpus as f64 / bound.max(1) as f64
}

fn published(instances: usize, policy: &str) -> Option<usize> {
    let (_, rows) = PUBLISHED.iter().find(|(trace, _)| *trace == instances)?;
    rows.iter().find(|(name, _)| *name == policy).map(|(_, peak)| *peak)
}

fn row(run: &Run, published: Option<usize>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "| `{}` | {} | {} | {:.3} | {:.3} | {:.0} | {:.1}% | {} | {} | {:.0} |",
        run.policy,
        run.peak_gpus,
        published.map_or("–".to_owned(), |peak| peak.to_string()),
        of(run, run.bound_gpus),
        of(run, run.bound_large_gpus),
        run.mean_gpus,
        100.0 * run.fragmentation,
        run.moves,
        run.splits,
        run.decision_us_p99
    )
}
