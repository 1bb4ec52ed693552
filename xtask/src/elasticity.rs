//! Elasticity: finding, predicting and giving parts of GPUs. Measured with `weft` on the published data, kept in
//! `docs/benchmarks/elasticity.json`, told in `docs/benchmarks/elasticity.md`.
//!
//! A section is a module with its results, `measure`, which runs `weft`, and `write`, which tells them. To add one, add
//! a field to `Results` and a line to each of `SECTIONS`, `measure` and `page`. What was measured on a GPU has files of its
//! own, which `gpu` reads.

mod search;
mod predictor;
mod scaling;
mod one_gpu;
mod live;
mod gpu;

use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Measure profile search, prediction and scaling on published data; writes docs/benchmarks/elasticity.json and .md.
///
/// Takes some minutes once weft is built.
///
/// Example: cargo xtask elasticity --only search
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Measure this section only, and keep what was measured of the others.
    #[arg(long, value_name = "SECTION", value_parser = clap::builder::PossibleValuesParser::new(SECTIONS))]
    only: Option<String>,
    /// Write the page from the results that are there, without measuring.
    #[arg(long, conflicts_with = "only")]
    page_only: bool,
}

/// Sections, in the order of the page.
const SECTIONS: [&str; 5] = ["search", "predictor", "scaling", "one-gpu", "live"];

/// Everything that was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    command: String,
    weft: String,
    search: Option<search::Results>,
    predictor: Option<predictor::Results>,
    scaling: Option<scaling::Results>,
    one_gpu: Option<one_gpu::Results>,
    live: Option<live::Results>,
}

pub(crate) fn elasticity(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let documents = workspace.root.join("docs/benchmarks");
    let (json, page_path) = (documents.join("elasticity.json"), documents.join("elasticity.md"));
    let read = || -> Result<Results> {
        let text = std::fs::read_to_string(&json).with_context(|| format!("read {}", json.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {}", json.display()))
    };
    let mut results = if arguments.page_only || arguments.only.is_some() { read()? } else { Results::default() };
    if !arguments.page_only {
        setup::build_weft(workspace)?;
        results.command = "cargo xtask elasticity".to_owned();
        results.weft = workspace.weft(["--version"]).read()?.trim().to_owned();
        let wanted = |section: &&str| arguments.only.as_deref().is_none_or(|only| only == *section);
        for section in SECTIONS.iter().copied().filter(wanted) {
            measure(workspace, section, &mut results)?;
        }
        let text = serde_json::to_string_pretty(&results).context("write JSON")? + "\n";
        std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    }
    let gpu = gpu::read(&documents)?;
    std::fs::write(&page_path, page(&results, &gpu)).with_context(|| format!("write {}", page_path.display()))?;
    eprintln!("wrote {} and {}", workspace.relative(&json), workspace.relative(&page_path));
    Ok(())
}

fn measure(workspace: &Workspace, section: &str, results: &mut Results) -> Result<()> {
    match section {
        "search" => results.search = Some(search::measure(workspace)?),
        "predictor" => results.predictor = Some(predictor::measure(workspace)?),
        "scaling" => results.scaling = Some(scaling::measure(workspace)?),
        "one-gpu" => results.one_gpu = Some(one_gpu::measure(workspace)?),
        "live" => results.live = Some(live::measure(workspace)?),
        other => bail!("measure {other}: there is no such section"),
    }
    Ok(())
}

/// The page for these results. Every number on it comes from them.
fn page(results: &Results, gpu: &gpu::Results) -> String {
    let mut out = String::new();
    write_page(results, &mut out).and_then(|()| gpu.write(&mut out)).expect("text can always be added to a string");
    out
}

fn write_page(results: &Results, out: &mut String) -> std::fmt::Result {
    writeln!(out, "# Elasticity\n\n<!-- Written by `cargo xtask elasticity` from elasticity.json; do not edit. -->\n")?;
    writeln!(
        out,
        "Finding, predicting and giving parts of GPUs, on published measurements and, in the last two sections, on a GPU.\n"
    )?;
    writeln!(out, "- Command: `{}`", results.command)?;
    writeln!(out, "- Version: {}", results.weft)?;
    writeln!(out, "- Data: `../shared/data`, measured by others on an A100, where nothing else is said")?;
    results.search.iter().try_for_each(|section| section.write(out))?;
    results.predictor.iter().try_for_each(|section| section.write(out))?;
    results.scaling.iter().try_for_each(|section| section.write(out))?;
    results.one_gpu.iter().try_for_each(|section| section.write(out))?;
    results.live.iter().try_for_each(|section| section.write(out))
}

/// Whether a target was reached, as a word.
fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "**missed**" }
}

/// A part as a percentage.
fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// Files of published profiles, in order, as they are named from the root.
fn profiles(workspace: &Workspace, folder: &str) -> Result<Vec<String>> {
    let folder = workspace.data()?.join("profiles").join(folder);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            names.push(workspace.relative(&path).to_string());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_nothing_has_a_head_and_no_section() {
        let mut page = String::new();
        write_page(&Results::default(), &mut page).expect("text can always be added");
        assert!(page.starts_with("# Elasticity\n") && !page.contains("## "), "{page}");
    }
}
