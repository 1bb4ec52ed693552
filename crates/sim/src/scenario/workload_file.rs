//! Workload files, `models = "FILE.txt"`: one model per line, `alpha_ms beta_ms objective_ms weight`, with
//! latency `alpha * batch + beta`. Blank lines and lines that start with `#` are skipped. A model is named
//! after the file and its line, `a100mix_11-1`.
//!
//! With `profiles`, measured tables replace the lines: each distinct pair of alpha and beta, in the order of
//! its first appearance, takes the next profile.

use super::models::{Draft, Hardware, WEIGHT_MAX, profile};
use super::source::{Reader, ScenarioError, Source};
use super::syntax::WorkloadFile;
use policy::{LatencyTable, MAX_BATCH, Selection, Span};
use std::collections::BTreeMap;
use toml::Spanned;

const MILLIS_MAX: f64 = 24.0 * 3600e3;

/// One line of the file.
#[derive(Clone, Copy, Debug)]
struct Line {
    number: usize,
    alpha: Span,
    beta: Span,
    objective: Span,
    weight: f64,
}

/// The models of a workload file that is named in the scenario.
pub(super) fn models(
    reader: &Reader,
    named: &Spanned<WorkloadFile>,
    hardware: &Hardware,
) -> Result<Vec<Draft>, ScenarioError> {
    let WorkloadFile { path, profiles } = named.get_ref();
    let text = reader.open(named.span(), path)?;
    let source = Source { file: path, text: &text };
    let lines = lines(&source, hardware)?;
    let mut kinds = BTreeMap::new();
    for line in &lines {
        let next = kinds.len();
        kinds.entry((line.alpha, line.beta)).or_insert(next);
    }
    let profiles = profiles.as_ref().map(|paths| -> Result<Vec<LatencyTable>, ScenarioError> {
        if paths.len() != kinds.len() {
            let problem = format!(
                "profiles lists {} files: expected {}, one for each distinct alpha and beta in \"{path}\"",
                paths.len(),
                kinds.len()
            );
            return Err(reader.source.error(named.span(), problem));
        }
        let whole_gpu = Selection::default();
        paths.iter().map(|path| profile(reader, path.span(), path.get_ref(), &whole_gpu)).collect()
    });
    let profiles = profiles.transpose()?;
    // Names are part of reports, which are lines; a path need not be.
    let stem = stem(path).replace(char::is_control, "_");
    let draft = |line: &Line| {
        let name = format!("{stem}-{}", line.number);
        let tables = match &profiles {
            Some(profiles) => hardware.on_each(&profiles[kinds[&(line.alpha, line.beta)]]),
            None => hardware.on_each(&LatencyTable::line(line.alpha, line.beta, MAX_BATCH)),
        };
        let tables = hardware.on_time(&name, line.objective, tables);
        let tables = tables.map_err(|problem| source.error_on(line.number, problem))?;
        Ok(Draft { name, objective: line.objective, weight: line.weight, tables })
    };
    lines.iter().map(draft).collect()
}

fn lines(source: &Source, hardware: &Hardware) -> Result<Vec<Line>, ScenarioError> {
    let mut lines = Vec::new();
    for (number, text) in source.lines() {
        let cells: Vec<&str> = text.split_whitespace().collect();
        let [alpha, beta, objective, weight] = cells[..] else {
            let problem =
                format!("expected four numbers, alpha_ms beta_ms objective_ms weight, found {} words", cells.len());
            return Err(source.error_on(number, problem));
        };
        if lines.len() == hardware.models_max() {
            return Err(source.error_on(number, hardware.too_many_models()));
        }
        let millis = |name, text, least| source.number(number, name, text, least..=MILLIS_MAX);
        lines.push(Line {
            number,
            alpha: Span::from_millis_f64(millis("alpha_ms", alpha, 0.0)?),
            beta: Span::from_millis_f64(millis("beta_ms", beta, 0.0)?),
            objective: Span::from_millis_f64(millis("objective_ms", objective, 1e-6)?),
            weight: source.number(number, "weight", weight, 0.0..=WEIGHT_MAX)?,
        });
    }
    if lines.is_empty() {
        return Err(source.error_on(0, "no models: expected lines of alpha_ms beta_ms objective_ms weight"));
    }
    if lines.iter().all(|line| line.weight == 0.0) {
        return Err(source.error_on(0, "the weight of every model is 0: expected one above 0"));
    }
    Ok(lines)
}

/// `a100mix_11` of `workloads/a100mix_11.txt`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}
