//! The scenario file of a shared GPU: TOML in, a [`Scenario`] out. Whatever can be wrong with it is found here, so
//! that a run cannot fail: one message, with the file, the line and what is allowed.

use super::gpu::{GpuSpec, Mode};
use super::models::{MODELS, model};
use super::scenario::{Kernel, Load, Scenario, TenantSpec};
use crate::ScenarioError;
use crate::scenario::source::{Source, unknown};
use crate::scenario::syntax::{Length, Percent, Table, typed};
use policy::Span;
use policy::sharing::{Class, PRIORITY_LEAST, WHOLE};
use serde::Deserialize;
use toml::Spanned;

const TENANTS_MAX: usize = 64;
const KERNELS_MAX: i64 = 100_000;
const RATE_MAX: f64 = 1e6;
const NONE: Length = Length(Span::ZERO);
const SHORTEST: Length = Length(Span::from_nanos(1));
/// No run is longer: it is looked at kernel by kernel.
const LONGEST: Length = Length(Span::from_secs(600));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<Spanned<i64>>,
    warmup: Option<Spanned<Length>>,
    duration: Option<Spanned<Length>>,
    noise: Option<Spanned<f64>>,
    gpu: Option<Table<Gpu>>,
    tenant: Option<Vec<Table<Tenant>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gpu {
    mode: Option<GpuMode>,
    slice: Option<Spanned<Length>>,
    switch: Option<Spanned<Length>>,
    linger: Option<Spanned<Length>>,
    #[serde(alias = "aside")]
    preemption: Option<Spanned<Length>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GpuMode {
    Timeslice,
    Concurrent,
    Fifo,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    name: Spanned<String>,
    class: Option<ClassName>,
    priority: Option<Spanned<i64>>,
    request: Option<Spanned<Percent>>,
    limit: Option<Spanned<Percent>>,
    slo: Option<Spanned<Length>>,
    model: Option<Spanned<String>>,
    kernels: Option<Spanned<Vec<Table<Launches>>>>,
    graph: Option<bool>,
    think: Option<Spanned<Length>>,
    rate: Option<Spanned<f64>>,
    every: Option<Spanned<Length>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ClassName {
    Latency,
    Standard,
    BestEffort,
}

/// Equal launches in a row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Launches {
    count: Option<Spanned<i64>>,
    duration: Spanned<Length>,
    gap: Option<Spanned<Length>>,
    sync: Option<bool>,
    sms: Option<Spanned<Percent>>,
    memory_bound: Option<bool>,
}

/// Reads a scenario. `path` is for messages.
pub fn parse(path: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let source = Source { file: path, text };
    let file: File = typed(&source)?;
    let length = |key, typed: &Option<Spanned<Length>>, least, default| match typed {
        Some(length) => Ok(source.within(key, length, least..=LONGEST)?.0),
        None => Ok(default),
    };
    let warmup = length("warmup", &file.warmup, NONE, Span::from_millis(500))?;
    let duration = length("duration", &file.duration, SHORTEST, Span::from_secs(5))?;
    let mut gpu = GpuSpec::default();
    if let Some(Table { keys, .. }) = &file.gpu {
        gpu.mode = match keys.mode {
            Some(GpuMode::Concurrent) => Mode::Concurrent,
            Some(GpuMode::Fifo) => Mode::Fifo,
            Some(GpuMode::Timeslice) | None => Mode::TimeSlice,
        };
        gpu.slice = length("slice", &keys.slice, Length(Span::from_micros(10)), gpu.slice)?;
        gpu.switch = length("switch", &keys.switch, NONE, gpu.switch)?;
        gpu.linger = length("linger", &keys.linger, NONE, gpu.linger)?;
        gpu.preemption = length("preemption", &keys.preemption, NONE, gpu.preemption)?;
    }
    let mut tenants: Vec<TenantSpec> = Vec::new();
    for Table { place, keys } in file.tenant.iter().flatten() {
        if tenants.len() == TENANTS_MAX {
            return Err(source.error(place.clone(), format!("more than {TENANTS_MAX} tenants")));
        }
        let tenant = tenant(&source, place.clone(), keys)?;
        if tenants.iter().any(|other| other.name == tenant.name) {
            return Err(source.error(keys.name.span(), format!("two tenants are named \"{}\"", tenant.name)));
        }
        tenants.push(tenant);
    }
    let requested: u32 = tenants.iter().map(|tenant| tenant.request).sum();
    if tenants.is_empty() {
        return Err(source.error_on(0, "no tenants: expected [[tenant]]"));
    }
    if requested > WHOLE {
        let last = file.tenant.iter().flatten().filter_map(|tenant| tenant.keys.request.as_ref()).next_back();
        let problem = format!("requests come to {}%: expected at most 100%", f64::from(requested) / 10.0);
        return Err(source.error(last.map_or(0..0, |request| request.span()), problem));
    }
    Ok(Scenario {
        seed: file.seed.as_ref().map_or(Ok(1), |seed| source.within("seed", seed, 0..=i64::MAX))? as u64,
        warmup,
        duration,
        noise: file.noise.as_ref().map_or(Ok(0.05), |noise| source.within("noise", noise, 0.0..=0.5))?,
        gpu,
        tenants,
    })
}

fn tenant(source: &Source, place: std::ops::Range<usize>, keys: &Tenant) -> Result<TenantSpec, ScenarioError> {
    let name = keys.name.get_ref();
    if name.trim().is_empty() || name.contains(char::is_control) {
        let problem = "name is empty or has control characters: expected a word";
        return Err(source.error(keys.name.span(), problem));
    }
    let kernels = match (&keys.model, &keys.kernels) {
        (Some(known), None) => model(known.get_ref())
            .ok_or_else(|| source.error(known.span(), unknown("model", known.get_ref(), &MODELS)))?,
        (None, Some(listed)) => kernels(source, listed)?,
        _ => return Err(source.error(place, "expected either model = \"resnet50\" or kernels = [{ ... }]")),
    };
    let load = match (&keys.think, &keys.rate, &keys.every) {
        (None, None, None) => Load::Closed { think: Span::ZERO },
        (Some(think), None, None) => Load::Closed { think: source.within("think", think, NONE..=LONGEST)?.0 },
        (None, Some(rate), None) => Load::Poisson { rate: source.within("rate", rate, 0.001..=RATE_MAX)? },
        (None, None, Some(every)) => {
            Load::Every { interval: source.within("every", every, Length(Span::from_micros(1))..=LONGEST)?.0 }
        }
        _ => return Err(source.error(place, "expected one of think (closed loop), rate and every, or none of them")),
    };
    let priority = match &keys.priority {
        Some(priority) => source.within("priority", priority, 0..=i64::from(PRIORITY_LEAST))? as u8,
        None => 5,
    };
    let share = |key, typed: &Option<Spanned<Percent>>, default| match typed {
        Some(share) => Ok(source.within(key, share, Percent(1)..=Percent(WHOLE))?.0),
        None => Ok(default),
    };
    let (request, limit) = (share("request", &keys.request, 0)?, share("limit", &keys.limit, WHOLE)?);
    if let Some(typed) = keys.request.as_ref().filter(|_| request > limit) {
        let problem = format!("request {} is more than limit {}", Percent(request), Percent(limit));
        return Err(source.error(typed.span(), problem));
    }
    let class = match keys.class {
        Some(ClassName::Latency) => Class::Latency,
        Some(ClassName::BestEffort) => Class::BestEffort,
        Some(ClassName::Standard) | None => Class::Standard,
    };
    let objective = match &keys.slo {
        Some(slo) => Some(source.within("slo", slo, SHORTEST..=LONGEST)?.0),
        None => None,
    };
    if let Some(slo) = keys.slo.as_ref().filter(|_| class != Class::Latency) {
        return Err(source.error(slo.span(), "slo is for latency tenants: expected class = \"latency\" with it"));
    }
    let tenant = TenantSpec { name: name.clone(), class, priority, request, limit, objective, kernels, load };
    Ok(if keys.graph == Some(true) { tenant.as_graphs() } else { tenant })
}

fn kernels(source: &Source, listed: &Spanned<Vec<Table<Launches>>>) -> Result<Vec<Kernel>, ScenarioError> {
    let mut kernels = Vec::new();
    for Table { place, keys } in listed.get_ref() {
        let count = keys.count.as_ref().map_or(Ok(1), |count| source.within("count", count, 1..=KERNELS_MAX))?;
        let sms = match &keys.sms {
            Some(sms) => source.within("sms", sms, Percent(1)..=Percent(WHOLE))?.0,
            None => WHOLE,
        };
        let gap = keys.gap.as_ref().map_or(Ok(NONE), |gap| source.within("gap", gap, NONE..=LONGEST))?.0;
        let kernel = Kernel {
            duration: source.within("duration", &keys.duration, SHORTEST..=LONGEST)?.0,
            gap,
            sync: keys.sync.unwrap_or(false),
            sms,
            memory_bound: keys.memory_bound.unwrap_or(false),
        };
        if kernels.len() + count as usize > KERNELS_MAX as usize {
            return Err(source.error(place.clone(), format!("more than {KERNELS_MAX} kernels in a request")));
        }
        kernels.extend(std::iter::repeat_n(kernel, count as usize));
    }
    match kernels.is_empty() {
        true => Err(source.error(listed.span(), "no kernels: expected [{ count = 10, duration = \"50us\" }]")),
        false => Ok(kernels),
    }
}
