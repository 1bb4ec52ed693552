//! The scenario file of an elastic cluster: TOML in, a [`Scenario`] out. Whatever can be wrong with it is found here, so
//! that a run cannot fail: one message, with the file, the line and what is allowed.

use super::interference::Interference;
use super::scenario::{Function, Job, Scenario};
use crate::scenario::source::{ReadFile, Source};
use crate::scenario::syntax::{Length, Percent, Table, typed};
use crate::workload::Spacing;
use crate::{ScenarioError, TraceFormat, trace};
use policy::Span;
use policy::autoscale::{Replicas, sizes};
use policy::predict::accuracy::Slices;
use policy::surface::{Point, Share, Surface};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

const FUNCTIONS_MAX: usize = 1_000;
const JOBS_MAX: usize = 1_000;
const GPUS_MAX: i64 = 10_000;
const RATE_MAX: f64 = 1e6;
const GIB: u64 = 1 << 30;
const NONE: Length = Length(Span::ZERO);
const SHORTEST: Length = Length(Span::from_millis(1));
const LONGEST: Length = Length(Span::from_secs(24 * 3600));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<Spanned<i64>>,
    warmup: Option<Spanned<Length>>,
    duration: Option<Spanned<Length>>,
    interference: Option<Spanned<String>>,
    cluster: Option<Table<Cluster>>,
    function: Option<Vec<Table<FunctionKeys>>>,
    training: Option<Vec<Table<JobKeys>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    gpus: Spanned<i64>,
    node_gpus: Option<Spanned<i64>>,
    memory_gb: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionKeys {
    name: Spanned<String>,
    profile: Spanned<String>,
    objective: Spanned<Length>,
    cold_start: Option<Spanned<Length>>,
    memory_gb: Option<Spanned<i64>>,
    batch_max: Option<Spanned<i64>>,
    min: Option<Spanned<i64>>,
    max: Option<Spanned<i64>>,
    rate: Option<Spanned<f64>>,
    trace: Option<Table<TraceKeys>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceKeys {
    path: Spanned<String>,
    format: TraceFormat,
    row: Option<Spanned<i64>>,
    scale: Option<Spanned<f64>>,
    offset: Option<Spanned<Length>>,
    speedup: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobKeys {
    name: Spanned<String>,
    gpus: Option<Spanned<i64>>,
    request: Spanned<Percent>,
    limit: Spanned<Percent>,
    memory_gb: Option<Spanned<i64>>,
}

/// Reads a scenario. `path` is for messages, `read` for the profiles and traces that it names.
pub fn parse(path: &str, text: &str, read: ReadFile) -> Result<Scenario, ScenarioError> {
    let source = Source { file: path, text };
    let file: File = typed(&source)?;
    let Some(Table { keys: cluster, .. }) = &file.cluster else {
        return Err(source.error_on(0, "missing [cluster]: expected gpus = 8"));
    };
    let gpus = source.within("gpus", &cluster.gpus, 1..=GPUS_MAX)? as usize;
    let memory_gb = whole(&source, "memory_gb", &cluster.memory_gb, 1..=4_096, 40)?;
    let length = |key, typed: &Option<Spanned<Length>>, least, default| match typed {
        Some(length) => Ok(source.within(key, length, least..=LONGEST)?.0),
        None => Ok(default),
    };
    let interference = interference(&source, file.interference.as_ref())?;
    let mut scenario = Scenario {
        seed: whole(&source, "seed", &file.seed, 0..=i64::MAX, 1)? as u64,
        warmup: length("warmup", &file.warmup, NONE, Span::from_secs(30))?,
        duration: length("duration", &file.duration, SHORTEST, Span::from_secs(300))?,
        gpus,
        node_gpus: whole(&source, "node_gpus", &cluster.node_gpus, 1..=64, 8)? as usize,
        memory: memory_gb as u64 * GIB,
        interference,
        functions: Vec::new(),
        jobs: Vec::new(),
    };
    for Table { place, keys } in file.function.iter().flatten() {
        if scenario.functions.len() == FUNCTIONS_MAX {
            return Err(source.error(place.clone(), format!("more than {FUNCTIONS_MAX} functions")));
        }
        let function = function(&source, read, place.clone(), keys, memory_gb)?;
        named_once(&source, &keys.name, scenario.functions.iter().map(|other| &other.name))?;
        scenario.functions.push(function);
    }
    if scenario.functions.is_empty() {
        return Err(source.error_on(0, "no functions: expected [[function]]"));
    }
    for Table { place, keys } in file.training.iter().flatten() {
        if scenario.jobs.len() == JOBS_MAX {
            return Err(source.error(place.clone(), format!("more than {JOBS_MAX} training jobs")));
        }
        let functions = scenario.functions.iter().map(|other| &other.name);
        named_once(&source, &keys.name, functions.chain(scenario.jobs.iter().map(|other| &other.name)))?;
        scenario.jobs.push(job(&source, keys, gpus, memory_gb)?);
    }
    Ok(scenario)
}

fn interference(source: &Source, typed: Option<&Spanned<String>>) -> Result<Interference, ScenarioError> {
    let Some(typed) = typed else { return Ok(Interference::Predicted) };
    match (typed.get_ref().as_str(), Percent::read(typed.get_ref())) {
        ("predicted", _) => Ok(Interference::Predicted),
        (_, Some(Percent(permille @ 0..=1_000))) => Ok(Interference::Flat(f64::from(permille) / 1e3)),
        (text, _) => {
            let problem =
                format!("interference = \"{text}\" is unknown: expected \"predicted\", or \"0%\" to \"100%\"");
            Err(source.error(typed.span(), problem))
        }
    }
}

fn whole(
    source: &Source,
    key: &str,
    typed: &Option<Spanned<i64>>,
    allowed: std::ops::RangeInclusive<i64>,
    default: i64,
) -> Result<i64, ScenarioError> {
    typed.as_ref().map_or(Ok(default), |value| source.within(key, value, allowed))
}

fn named_once<'a>(
    source: &Source,
    name: &Spanned<String>,
    mut others: impl Iterator<Item = &'a String>,
) -> Result<(), ScenarioError> {
    let text = name.get_ref();
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err(source.error(name.span(), "name is empty or has control characters: expected a word"));
    }
    match others.any(|other| other == text) {
        true => Err(source.error(name.span(), format!("two are named \"{text}\""))),
        false => Ok(()),
    }
}

fn function(
    source: &Source,
    read: ReadFile,
    place: Range<usize>,
    keys: &FunctionKeys,
    memory_gb: i64,
) -> Result<Function, ScenarioError> {
    let batch_max = whole(source, "batch_max", &keys.batch_max, 1..=1_024, 32)? as usize;
    let surface = up_to(profile(source, read, &keys.profile)?, batch_max);
    let objective = source.within("objective", &keys.objective, SHORTEST..=LONGEST)?.0;
    let cold_start = match &keys.cold_start {
        Some(length) => source.within("cold_start", length, NONE..=LONGEST)?.0,
        None => Span::from_secs(4),
    };
    let (min, max) =
        (whole(source, "min", &keys.min, 0..=1_000, 0)? as u32, whole(source, "max", &keys.max, 1..=1_000, 64)? as u32);
    if min > max {
        let at = keys.min.as_ref().map_or(place.clone(), |min| min.span());
        return Err(source.error(at, format!("min = {min} is more than max = {max}")));
    }
    if sizes(&surface, objective.scale(1, 2)).is_empty() {
        let problem = format!(
            "objective = \"{objective}\" cannot be met: the fastest batch of {} takes {}, and half of an objective is for \
             the wait while another batch runs",
            keys.profile.get_ref(),
            surface.fastest().latency
        );
        return Err(source.error(keys.objective.span(), problem));
    }
    let (spacing, rate) = match (&keys.rate, &keys.trace) {
        (Some(rate), None) => (Spacing::Poisson, source.within("rate", rate, 0.0..=RATE_MAX)?),
        (rate, Some(keys)) => traffic(source, read, &keys.keys, rate.as_ref())?,
        (None, None) => {
            let problem = "expected rate = 20 or trace = { path = \"FILE\", format = \"per-second\" }";
            return Err(source.error(place, problem));
        }
    };
    Ok(Function {
        name: keys.name.get_ref().clone(),
        surface,
        objective,
        cold_start,
        memory: whole(source, "memory_gb", &keys.memory_gb, 1..=memory_gb, 4.min(memory_gb))? as u64 * GIB,
        batch_max,
        replicas: Replicas { min, max },
        spacing,
        rate,
    })
}

/// Rows of batch, SM percent, latency and throughput, or of MIG slices, of which those with one process count.
fn profile(source: &Source, read: ReadFile, path: &Spanned<String>) -> Result<Surface, ScenarioError> {
    let name = path.get_ref();
    let text = read(name).map_err(|why| source.error(path.span(), format!("cannot read \"{name}\": {why}")))?;
    let surface = match text.starts_with("Mig instance,") {
        true => Slices::from_csv(&text).map(|slices| slices.alone().clone()),
        false => Surface::from_csv(&text),
    };
    surface.map_err(|error| ScenarioError { file: name.clone(), line: error.line, problem: error.problem })
}

/// What was measured of batches up to this size; all of it where the smallest is larger.
fn up_to(surface: Surface, batch_max: usize) -> Surface {
    let points: Vec<Point> = surface.points().iter().copied().filter(|point| point.batch <= batch_max).collect();
    Surface::new(&points).unwrap_or(surface)
}

/// A trace's rate slot by slot, and its mean.
fn traffic(
    source: &Source,
    read: ReadFile,
    keys: &TraceKeys,
    rate: Option<&Spanned<f64>>,
) -> Result<(Spacing, f64), ScenarioError> {
    let name = keys.path.get_ref();
    let text = read(name).map_err(|why| source.error(keys.path.span(), format!("cannot read \"{name}\": {why}")))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    let found = trace(name, &text, keys.format, lines.saturating_sub(1).max(1))?;
    let Spacing::Trace { slot, rows } = found.spacing else {
        return Err(source.error(keys.path.span(), format!("\"{name}\" is no trace")));
    };
    let row = whole(source, "row", &keys.row, 1..=rows.len() as i64, 1)? as usize - 1;
    let scale = keys.scale.as_ref().map_or(Ok(1.0), |scale| source.within("scale", scale, 0.0..=1e6))?;
    let speedup = keys.speedup.as_ref().map_or(Ok(1.0), |speedup| source.within("speedup", speedup, 0.01..=1e4))?;
    let offset = match &keys.offset {
        Some(offset) => source.within("offset", offset, NONE..=LONGEST)?.0,
        None => Span::ZERO,
    };
    if let (Some(rate), Some(_)) = (rate, &keys.scale) {
        return Err(source.error(rate.span(), "expected rate, the mean of the trace, or its scale, not both"));
    }
    let share = found.shares.map_or(1.0, |shares| shares[row]);
    let recorded = found.rate * share * scale * speedup;
    let rate = rate.map_or(Ok(recorded), |rate| source.within("rate", rate, 0.0..=RATE_MAX))?;
    let slot = Span::from_secs_f64(slot.seconds() / speedup);
    let mut weights = rows[row].clone();
    // Functions with one trace do not have their bursts at one time.
    let turned = (offset.nanos() / slot.nanos().max(1)) as usize % weights.len();
    weights.rotate_left(turned);
    Ok((Spacing::Trace { slot, rows: vec![weights] }, rate))
}

fn job(source: &Source, keys: &JobKeys, gpus: usize, memory_gb: i64) -> Result<Job, ScenarioError> {
    let share = |key, typed: &Spanned<Percent>| {
        let permille = source.within(key, typed, Percent(1)..=Percent(1_000))?.0;
        Ok(Share::from_permille(permille).expect("it is within range"))
    };
    let (request, limit) = (share("request", &keys.request)?, share("limit", &keys.limit)?);
    if request > limit {
        let problem = format!("request \"{request}\" is more than limit \"{limit}\"");
        return Err(source.error(keys.request.span(), problem));
    }
    Ok(Job {
        name: keys.name.get_ref().clone(),
        gpus: whole(source, "gpus", &keys.gpus, 1..=gpus as i64, 1)? as usize,
        request,
        limit,
        memory: whole(source, "memory_gb", &keys.memory_gb, 1..=memory_gb, 10.min(memory_gb))? as u64 * GIB,
    })
}
