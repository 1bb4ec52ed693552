//! The scenario file: TOML in, a [`Scenario`] out. Whatever can be wrong with a scenario is found here, so
//! that a run cannot fail: one message, with the file, the line and what is allowed.
//!
//! Reads no files itself; those that the scenario names come through a function.

use super::source::{ReadFile, Reader, ScenarioError, Source, unknown};
use super::syntax::{self, ArrivalKind, LONGEST, Length, Popularity, Table};
use super::trace::{self, Trace};
use super::{Failure, GPUS_MAX, GpuGroup, ModelSpec, Scenario, models, normalise, workload_file};
use crate::workload::Spacing;
use models::{Draft, Hardware};
use policy::{GpuId, Network, Span};
use std::ops::RangeInclusive;
use toml::Spanned;

/// Tables are kept by model and type, so types are few.
const TYPES_MAX: usize = 100;
/// Rates that make sense, in requests a second over all models.
pub const RATES: RangeInclusive<f64> = 0.001..=1e8;
const SHORTEST: Length = Length(Span::from_nanos(1));
const NONE: Length = Length(Span::ZERO);

/// Reads a scenario. `path` is for messages; `read` gives the text of files that the scenario names.
pub fn parse(path: &str, text: &str, read: ReadFile) -> Result<Scenario, ScenarioError> {
    let source = Source { file: path, text };
    let reader = Reader { source, read };
    let typed = syntax::read(&source)?;
    let seed = typed.seed.as_ref().map_or(Ok(1), |seed| source.within("seed", seed, 0..=i64::MAX))? as u64;
    let (warmup, duration) = times(&source, &typed)?;
    let policy = policy_name(&source, typed.policy.as_ref())?;
    let noise = typed.noise.as_ref().map_or(Ok(0.0), |noise| source.within("noise", noise, 0.0..=0.5))?;
    let (gpus, failures) = cluster(&reader, typed.cluster.as_ref())?;
    let network = network(&source, typed.network.map(|network| network.keys).unwrap_or_default())?;
    let hardware = Hardware { gpus: &gpus, network };
    let drafts = match (&typed.models, typed.model.as_deref()) {
        (Some(file), Some(_)) => {
            return Err(source.error(file.span(), "both models and [[model]]: expected one of them"));
        }
        (Some(file), None) => workload_file::models(&reader, file, &hardware)?,
        (None, Some(entries @ [_, ..])) => models::models(&reader, entries, &hardware)?,
        (None, _) => return Err(source.error_on(0, "no models: expected [[model]] or models = \"FILE.txt\"")),
    };
    let (arrivals, trace) = arrivals(&reader, typed.arrivals.as_ref(), drafts.len())?;
    let traced = trace.as_ref().and_then(|trace| trace.shares.clone());
    let weights = typed.model.iter().flatten().find_map(|model| model.keys.weight.as_ref());
    let shares = shares(&source, typed.popularity.as_ref(), weights, traced, &drafts)?;
    let rate = match (&typed.rate, trace) {
        (Some(rate), _) => source.within("rate", rate, RATES)?,
        (None, Some(Trace { rate, .. })) if RATES.contains(&rate) => rate,
        (None, Some(Trace { rate, .. })) => {
            let place = typed.arrivals.as_ref().map_or(0..0, |arrivals| arrivals.place.clone());
            let problem = format!(
                "the trace has {rate:?} requests a second: expected rate = {} to {}",
                RATES.start(),
                RATES.end()
            );
            return Err(source.error(place, problem));
        }
        (None, None) => {
            let problem = "missing key `rate`, requests a second over all models; only a trace file has its own";
            return Err(source.error_on(0, problem));
        }
    };
    let spec = |(Draft { name, objective, tables, .. }, share)| ModelSpec { name, objective, share, tables };
    let models = drafts.into_iter().zip(shares).map(spec).collect();
    Ok(Scenario {
        seed,
        warmup,
        duration,
        policy,
        rate,
        gpus,
        network,
        arrivals,
        noise,
        failures,
        models,
        give_up_at: None,
    })
}

/// Warm-up, which may be nothing, and measured time.
fn times(source: &Source, typed: &syntax::File) -> Result<(Span, Span), ScenarioError> {
    let length = |key, typed: &Option<Spanned<Length>>, least, default| match typed {
        Some(length) => Ok(source.within(key, length, least..=LONGEST)?.0),
        None => Ok(default),
    };
    let warmup = length("warmup", &typed.warmup, NONE, Span::from_secs(5))?;
    let duration = length("duration", &typed.duration, SHORTEST, Span::from_secs(60))?;
    if warmup + duration > LONGEST.0 {
        let place = typed.duration.as_ref().or(typed.warmup.as_ref()).map_or(0..0, |length| length.span());
        let problem = format!("warmup and duration come to {}: expected at most {LONGEST}", warmup + duration);
        return Err(source.error(place, problem));
    }
    Ok((warmup, duration))
}

fn policy_name(source: &Source, typed: Option<&Spanned<String>>) -> Result<String, ScenarioError> {
    let names = policy::policies::NAMES;
    match typed {
        None => Ok("weft".to_owned()),
        Some(name) if names.contains(&name.get_ref().as_str()) => Ok(name.get_ref().clone()),
        Some(name) => Err(source.error(name.span(), unknown("policy", name.get_ref(), &names))),
    }
}

fn cluster(
    reader: &Reader,
    typed: Option<&Table<syntax::Cluster>>,
) -> Result<(Vec<GpuGroup>, Vec<Failure>), ScenarioError> {
    let source = &reader.source;
    let expected = "expected gpus = 8 or [[cluster.gpu]] entries";
    let missing = || source.error_on(0, format!("missing [cluster]: {expected}"));
    let Table { place, keys: cluster } = typed.ok_or_else(missing)?;
    let groups = match (&cluster.gpus, cluster.gpu.as_deref()) {
        (Some(gpus), None) => {
            let count = source.within("gpus", gpus, 1..=GPUS_MAX as i64)? as usize;
            vec![GpuGroup { kind: "gpu".to_owned(), count, speed: 1.0 }]
        }
        (None, Some(entries @ [_, ..])) => gpu_groups(reader, entries)?,
        (Some(gpus), Some(_)) => {
            return Err(source.error(gpus.span(), "both gpus and [[cluster.gpu]]: expected one of them"));
        }
        (None, _) => return Err(source.error(place.clone(), format!("no GPUs in [cluster]: {expected}"))),
    };
    let last = groups.iter().map(|group| group.count).sum::<usize>() as i64 - 1;
    let failure = |Table { keys: failure, .. }: &Table<syntax::Failure>| {
        Ok(Failure {
            gpu: GpuId::new(source.within("gpu", &failure.gpu, 0..=last)? as usize),
            at: source.within("at", &failure.at, NONE..=LONGEST)?.0,
            down_for: match &failure.down_for {
                Some(length) => Some(source.within("down_for", length, SHORTEST..=LONGEST)?.0),
                None => None,
            },
        })
    };
    let failures = cluster.failure.iter().flatten().map(failure).collect::<Result<_, _>>()?;
    Ok((groups, failures))
}

fn gpu_groups(reader: &Reader, entries: &[Table<syntax::Gpu>]) -> Result<Vec<GpuGroup>, ScenarioError> {
    let source = &reader.source;
    let mut groups: Vec<GpuGroup> = Vec::new();
    let mut total = 0;
    for Table { place, keys: entry } in entries {
        models::name(reader, "type", &entry.kind)?;
        let kind = entry.kind.get_ref();
        if groups.iter().any(|group| group.kind == *kind) {
            return Err(source.error(entry.kind.span(), format!("two [[cluster.gpu]] entries have type \"{kind}\"")));
        }
        let count = match &entry.count {
            Some(count) => source.within("count", count, 1..=GPUS_MAX as i64)? as usize,
            None => 1,
        };
        let speed = entry.speed.as_ref().map_or(Ok(1.0), |speed| source.within("speed", speed, 0.01..=100.0))?;
        total += count;
        if total > GPUS_MAX || groups.len() == TYPES_MAX {
            let problem = format!("too many GPUs: expected at most {GPUS_MAX}, of at most {TYPES_MAX} types");
            return Err(source.error(place.clone(), problem));
        }
        groups.push(GpuGroup { kind: kind.clone(), count, speed });
    }
    Ok(groups)
}

fn network(source: &Source, typed: syntax::NetworkDelays) -> Result<Network, ScenarioError> {
    let delay = |key, typed: &Option<Spanned<Length>>| match typed {
        Some(length) => Ok(source.within(key, length, NONE..=LONGEST)?.0),
        None => Ok(Span::ZERO),
    };
    Ok(Network {
        control: delay("control", &typed.control)?,
        data_per_request: delay("data_per_request", &typed.data_per_request)?,
        response: delay("response", &typed.response)?,
        jitter: delay("jitter", &typed.jitter)?,
    })
}

/// How arrivals are spaced and, when a trace file says so, what else it says.
fn arrivals(
    reader: &Reader,
    typed: Option<&Table<syntax::Arrivals>>,
    models: usize,
) -> Result<(Spacing, Option<Trace>), ScenarioError> {
    let Some(Table { place, keys }) = typed else { return Ok((Spacing::Poisson, None)) };
    let source = &reader.source;
    let syntax::Arrivals { kind, shape, path, format, speedup, slot, rows } = keys;
    let untraced = path.is_none() && format.is_none() && speedup.is_none() && slot.is_none() && rows.is_none();
    match (kind, shape) {
        (ArrivalKind::Poisson, None) if untraced => return Ok((Spacing::Poisson, None)),
        (ArrivalKind::Constant, None) if untraced => return Ok((Spacing::Constant, None)),
        (ArrivalKind::Gamma, Some(shape)) if untraced => {
            return Ok((Spacing::Gamma { shape: source.within("shape", shape, 0.01..=100.0)? }, None));
        }
        (ArrivalKind::Trace, None) => {}
        _ => {
            let problem = "the keys of [arrivals] do not match its kind: poisson and constant have none, gamma has \
                           shape, trace has path, format and speedup, or slot and rows";
            return Err(source.error(place.clone(), problem));
        }
    }
    match (path, format, slot, rows) {
        (Some(path), Some(format), None, None) => {
            let speedup = speedup.as_ref().map_or(Ok(1.0), |speedup| source.within("speedup", speedup, 0.001..=1e5))?;
            let text = reader.open(path.span(), path.get_ref())?;
            let source = Source { file: path.get_ref(), text: &text };
            let trace = trace::read(&source, *format, speedup, models)?;
            Ok((trace.spacing.clone(), Some(trace)))
        }
        (None, None, Some(slot), Some(rows)) if speedup.is_none() => {
            let length = source.within("slot", slot, Length(Span::from_micros(1))..=LONGEST)?.0;
            let spacing = trace::inline(length, rows.get_ref(), models);
            Ok((spacing.map_err(|problem| source.error(rows.span(), problem))?, None))
        }
        _ => {
            let problem = "a trace needs path and format (\"azure\" or \"per-second\"), with or without speedup; or \
                           slot and rows";
            Err(source.error(place.clone(), problem))
        }
    }
}

/// Each model's part of all requests. A workload file always has weights, so a popularity or a trace by model
/// stands above those; weights that were typed in the scenario itself exclude both.
fn shares(
    source: &Source,
    popularity: Option<&Spanned<Popularity>>,
    weight: Option<&Spanned<f64>>,
    traced: Option<Vec<f64>>,
    drafts: &[Draft],
) -> Result<Vec<f64>, ScenarioError> {
    match (popularity, weight, &traced) {
        (Some(_), Some(weight), _) => {
            return Err(source.error(weight.span(), "both popularity and weight: expected one of them"));
        }
        (Some(popularity), None, Some(_)) => {
            return Err(
                source.error(popularity.span(), "popularity comes from the azure trace: expected no popularity")
            );
        }
        (None, Some(weight), Some(_)) => {
            return Err(source.error(weight.span(), "popularity comes from the azure trace: expected no weight"));
        }
        _ => {}
    }
    if let Some(shares) = traced {
        return Ok(shares);
    }
    let mut shares: Vec<f64> = match popularity.map(|popularity| (popularity, popularity.get_ref())) {
        None => drafts.iter().map(|draft| draft.weight).collect(),
        Some((_, Popularity::Equal)) => vec![1.0; drafts.len()],
        Some((_, Popularity::Zipf(exponent))) if (0.0..=10.0).contains(exponent) => {
            (1..=drafts.len()).map(|rank| (rank as f64).powf(-exponent)).collect()
        }
        Some((spanned, Popularity::Zipf(exponent))) => {
            return Err(source.error(spanned.span(), format!("zipf = {exponent:?} is out of range: expected 0 to 10")));
        }
    };
    normalise(&mut shares, 1.0);
    Ok(shares)
}
