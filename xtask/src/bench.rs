//! How fast: Criterion's estimates as a page.

use crate::machine::Machine;
use crate::serving;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Run the benches and write docs/benchmarks/speed.md from what they measured.
///
/// The page has the median of each bench with its confidence interval, and the machine. Leave the machine alone
/// meanwhile: the benches take minutes and use one core.
///
/// Example: cargo xtask bench
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// Write the page from the last measurement, without measuring again.
    #[arg(long)]
    page_only: bool,
}

/// Benchmarks other than Criterion's.
#[derive(clap::Subcommand)]
enum Other {
    Serving(serving::Arguments),
}

const PAGE: &str = "docs/benchmarks/speed.md";

/// Criterion's `benchmark.json`.
#[derive(Debug, Deserialize)]
struct Benchmark {
    group_id: String,
    full_id: String,
    throughput: Option<serde_json::Value>,
}

/// The part of Criterion's `estimates.json` that is used. Nanoseconds per iteration.
#[derive(Debug, Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Debug, Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Debug, Deserialize)]
struct Interval {
    confidence_level: f64,
    lower_bound: f64,
    upper_bound: f64,
}

pub(crate) fn bench(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    if let Some(Other::Serving(arguments)) = &arguments.other {
        return serving::serving(workspace, arguments);
    }
    let folder = workspace.target.join("criterion");
    if !arguments.page_only {
        // A bench that was renamed or taken out leaves its old estimates behind.
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
        }
        let packages = packages_with_benches(workspace)?;
        ensure!(!packages.is_empty(), "find benches: no package has one");
        let mut command = vec!["bench", "--bench", "*"];
        for package in &packages {
            command.extend(["--package", package]);
        }
        workspace.cargo(command).run()?;
    }
    let measured = measured(&folder)?;
    ensure!(!measured.is_empty(), "find what was measured: nothing in {}", folder.display());
    let page = page(&measured, &Machine::here());
    std::fs::write(workspace.root.join(PAGE), page).with_context(|| format!("write {PAGE}"))?;
    eprintln!("wrote {PAGE}");
    Ok(())
}

/// Every bench's name and estimates, by group and name.
fn measured(folder: &Path) -> Result<Vec<(Benchmark, Estimates)>> {
    let mut files = Vec::new();
    find(folder, &mut files)?;
    let mut found = Vec::new();
    for file in files {
        let estimates = file.with_file_name("estimates.json");
        found.push((read::<Benchmark>(&file)?, read::<Estimates>(&estimates)?));
    }
    found.sort_by(|(a, _), (b, _)| {
        let numbers = |benchmark: &Benchmark| natural(&benchmark.full_id);
        (&a.group_id, numbers(a)).cmp(&(&b.group_id, numbers(b)))
    });
    Ok(found)
}

/// Finds `new/benchmark.json` in all folders below.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.is_dir() {
            find(&path, found)?;
        } else if path.ends_with("new/benchmark.json") {
            found.push(path);
        }
    }
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

/// A name with its numbers as numbers, so that 9 comes before 10.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    let mut in_number = false;
    for c in name.chars() {
        match c.to_digit(10) {
            Some(digit) => {
                let number = &mut parts.last_mut().expect("there is a part").1;
                *number = number.saturating_mul(10).saturating_add(u64::from(digit));
            }
            None => {
                if in_number {
                    parts.push((String::new(), 0));
                }
                parts.last_mut().expect("there is a part").0.push(c);
            }
        }
        in_number = c.is_ascii_digit();
    }
    parts
}

fn page(measured: &[(Benchmark, Estimates)], machine: &Machine) -> String {
    let level = measured.first().map_or(0.95, |(_, estimates)| estimates.median.confidence_interval.confidence_level);
    let mut out = String::new();
    let mut line = |text: &str| writeln!(out, "{text}").expect("text can always be added to a string");
    line("# Speed\n");
    line("<!-- Written by `cargo xtask bench`; do not edit. -->\n");
    line(&format!("Machine: {machine}; each bench uses one core.\n"));
    line("Command: `cargo xtask bench`\n");
    line(&format!(
        "The median over Criterion's samples, and in brackets its {:.0}% confidence interval. A request is counted \
         once, with everything that is done for it.",
        level * 100.0
    ));
    let mut group = None;
    for (benchmark, estimates) in measured {
        if group != Some(&benchmark.group_id) {
            line(&format!("\n## {}\n", benchmark.group_id));
            line("| bench | requests per iteration | time per iteration | million requests a second |");
            line("|---|---:|---:|---:|");
            group = Some(&benchmark.group_id);
        }
        line(&row(benchmark, &estimates.median));
    }
    out
}

fn row(benchmark: &Benchmark, median: &Estimate) -> String {
    let Interval { lower_bound, upper_bound, .. } = median.confidence_interval;
    let name = benchmark.full_id.strip_prefix(&format!("{}/", benchmark.group_id)).unwrap_or(&benchmark.full_id);
    let elements = benchmark.throughput.as_ref().and_then(|throughput| throughput["Elements"].as_f64());
    let millis = |nanos: f64| format!("{:.2}", nanos / 1e6);
    let time = format!("{} ms [{}, {}]", millis(median.point_estimate), millis(lower_bound), millis(upper_bound));
    let speed = elements.map_or_else(
        || "-".to_owned(),
        |elements| {
            // A longer time is a lower speed, so the ends of the interval change places.
            let rate = |nanos: f64| format!("{:.2}", elements / nanos * 1e3);
            format!("{} [{}, {}]", rate(median.point_estimate), rate(upper_bound), rate(lower_bound))
        },
    );
    let elements = elements.map_or_else(|| "-".to_owned(), |elements| format!("{elements:.0}"));
    format!("| {name} | {elements} | {time} | {speed} |")
}

/// Names of our packages that have a `benches` folder.
fn packages_with_benches(workspace: &Workspace) -> Result<Vec<String>> {
    let metadata = workspace.cargo(["metadata", "--no-deps", "--format-version", "1"]).read()?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("read what cargo metadata printed")?;
    let has_bench = |package: &&serde_json::Value| {
        let targets = package["targets"].as_array().into_iter().flatten();
        targets.flat_map(|target| target["kind"].as_array().into_iter().flatten()).any(|kind| kind == "bench")
    };
    let packages = metadata["packages"].as_array().context("read what cargo metadata printed: no packages")?;
    Ok(packages.iter().filter(has_bench).filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_time_and_speed_with_their_intervals() {
        let benchmark = Benchmark {
            group_id: "simulator".to_owned(),
            full_id: "simulator/100 models, 128 GPUs".to_owned(),
            throughput: Some(serde_json::json!({ "Elements": 200_000 })),
        };
        let confidence_interval = Interval { confidence_level: 0.95, lower_bound: 80e6, upper_bound: 125e6 };
        let median = Estimate { point_estimate: 100e6, confidence_interval };
        assert_eq!(
            row(&benchmark, &median),
            "| 100 models, 128 GPUs | 200000 | 100.00 ms [80.00, 125.00] | 2.00 [1.60, 2.50] |"
        );
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["100 models", "9 models", "100 apples", "1000 models"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["9 models", "100 apples", "100 models", "1000 models"]);
    }
}
