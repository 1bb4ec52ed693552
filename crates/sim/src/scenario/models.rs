//! The models of a scenario: their latency on each type of GPU, cut to what can be on time.

use super::source::{Reader, ScenarioError, Source, unknown};
use super::syntax::{self, Fit, LONGEST, Latency, Length, Table};
use super::{GpuGroup, MODELS_MAX};
use policy::{LatencyTable, MAX_BATCH, Network, Selection, Span};
use std::collections::BTreeSet;
use std::ops::Range;
use toml::Spanned;

/// A weight beyond this says nothing that a smaller one does not, and sums of them stay finite.
pub(super) const WEIGHT_MAX: f64 = 1e9;

/// A model that does not have its share of the traffic yet.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) objective: Span,
    pub(super) weight: f64,
    pub(super) tables: Vec<LatencyTable>,
}

/// What latencies depend on, apart from the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hardware<'a> {
    pub(super) gpus: &'a [GpuGroup],
    pub(super) network: Network,
}

impl Hardware<'_> {
    /// How many models there may be. Each has a table for each type of GPU, and memory is for tables.
    pub(super) fn models_max(&self) -> usize {
        MODELS_MAX / self.gpus.len()
    }

    /// The problem with having more.
    pub(super) fn too_many_models(&self) -> String {
        match self.gpus.len() {
            1 => format!("more than {MODELS_MAX} models"),
            types => format!("more than {} models on {types} GPU types", self.models_max()),
        }
    }

    /// A table measured at speed 1, for each type of GPU.
    pub(super) fn on_each(&self, table: &LatencyTable) -> Vec<LatencyTable> {
        self.gpus.iter().map(|group| at_speed(table, group.speed)).collect()
    }

    /// Tables without the sizes that are late even when everything goes well. A type that cannot serve the
    /// model keeps an empty table. `Err`: no type can serve it.
    pub(super) fn on_time(
        &self,
        name: &str,
        objective: Span,
        tables: Vec<LatencyTable>,
    ) -> Result<Vec<LatencyTable>, String> {
        let Network { control, data_per_request, response, .. } = self.network;
        let takes =
            |table: &LatencyTable, size: usize| control + data_per_request * size + table.latency(size) + response;
        let runnable = || tables.iter().filter(|table| table.max_batch() > 0);
        if runnable().any(|table| table.latency(1) == Span::ZERO) {
            return Err(format!("model \"{name}\" takes no time at all: expected a latency of at least 1ns"));
        }
        let Some(least) = runnable().map(|table| takes(table, 1)).min() else {
            return Err(format!("model \"{name}\" has an empty latency table on every GPU type of the cluster"));
        };
        if least > objective {
            return Err(format!(
                "model \"{name}\" cannot meet its objective of {objective}: a batch of one takes at least {least} with \
                 network delays, on the fastest GPU type for it"
            ));
        }
        let cut = |table: LatencyTable| {
            let sizes = (1..=table.max_batch()).take_while(|size| takes(&table, *size) <= objective).count();
            table.up_to(sizes)
        };
        Ok(tables.into_iter().map(cut).collect())
    }
}

fn at_speed(table: &LatencyTable, speed: f64) -> LatencyTable {
    // Measured speed stays measured, to the nanosecond.
    if speed == 1.0 { table.clone() } else { table.at_speed(speed) }
}

/// The models of `[[model]]` entries.
pub(super) fn models(
    reader: &Reader,
    entries: &[Table<syntax::Model>],
    hardware: &Hardware,
) -> Result<Vec<Draft>, ScenarioError> {
    let source = &reader.source;
    let mut drafts: Vec<Draft> = Vec::new();
    let mut names = BTreeSet::new();
    for Table { place, keys: entry } in entries {
        name(reader, "name", &entry.name)?;
        let objective = source.within("slo", &entry.slo, Length(Span::from_nanos(1))..=LONGEST)?.0;
        let weight =
            entry.weight.as_ref().map_or(Ok(1.0), |weight| source.within("weight", weight, 0.0..=WEIGHT_MAX))?;
        let count = entry.count.as_ref().map_or(Ok(1), |count| source.within("count", count, 1..=MODELS_MAX as i64))?;
        let count = count as usize;
        if drafts.len() + count > hardware.models_max() {
            return Err(source.error(place.clone(), hardware.too_many_models()));
        }
        let tables = tables(reader, place.clone(), entry, hardware)?;
        let tables = hardware
            .on_time(entry.name.get_ref(), objective, tables)
            .map_err(|problem| source.error(entry.slo.span(), problem))?;
        for number in 1..=count {
            let name = match count {
                1 => entry.name.get_ref().clone(),
                _ => format!("{}-{number}", entry.name.get_ref()),
            };
            if !names.insert(name.clone()) {
                return Err(source.error(entry.name.span(), format!("two models are named \"{name}\"")));
            }
            drafts.push(Draft { name, objective, weight, tables: tables.clone() });
        }
    }
    if drafts.iter().all(|draft| draft.weight == 0.0) {
        let weight = entries.first().and_then(|entry| entry.keys.weight.as_ref());
        let place = weight.map_or(0..0, |weight| weight.span());
        return Err(source.error(place, "the weight of every model is 0: expected one above 0"));
    }
    Ok(drafts)
}

/// Names are part of reports, which are lines.
pub(super) fn name(reader: &Reader, key: &str, name: &Spanned<String>) -> Result<(), ScenarioError> {
    if name.get_ref().trim().is_empty() || name.get_ref().contains(char::is_control) {
        return Err(reader
            .source
            .error(name.span(), format!("{key} is empty or has control characters: expected a word")));
    }
    Ok(())
}

/// An entry's latency by GPU type. `latency_on` was measured on its type, so that type's speed is in it.
fn tables(
    reader: &Reader,
    place: Range<usize>,
    entry: &syntax::Model,
    hardware: &Hardware,
) -> Result<Vec<LatencyTable>, ScenarioError> {
    let kinds: Vec<&str> = hardware.gpus.iter().map(|group| group.kind.as_str()).collect();
    if let Some(kind) = entry.latency_on.keys().find(|kind| !kinds.contains(&kind.get_ref().as_str())) {
        return Err(reader.source.error(kind.span(), unknown("GPU type", kind.get_ref(), &kinds)));
    }
    let max_batch = match &entry.max_batch {
        Some(max_batch) => reader.source.within("max_batch", max_batch, 1..=MAX_BATCH as i64)? as usize,
        None => MAX_BATCH,
    };
    let general = entry.latency.as_ref().map(|latency| table(reader, latency)).transpose()?;
    let on = |group: &GpuGroup| match (entry.latency_on.get(group.kind.as_str()), &general) {
        (Some(latency), _) => Ok(table(reader, latency)?.up_to(max_batch)),
        (None, Some(general)) => Ok(at_speed(general, group.speed).up_to(max_batch)),
        (None, None) => {
            let (name, kind) = (entry.name.get_ref(), &group.kind);
            let problem = format!(
                "model \"{name}\" has no latency on GPU type `{kind}`: expected `latency` or `latency_on.{kind}`"
            );
            Err(reader.source.error(place.clone(), problem))
        }
    };
    hardware.gpus.iter().map(on).collect()
}

const FORMS: &str = "latency takes one of three forms: { alpha = \"1ms\", beta = \"5ms\" }, \
     { table = [[1, \"5ms\"], [8, \"9ms\"]] } or { profile = \"FILE.csv\" } \
     with any of instance, processes, share, model, gpu and fit";

fn table(reader: &Reader, latency: &Table<Latency>) -> Result<LatencyTable, ScenarioError> {
    let typed = &latency.keys;
    let numbers = [typed.instance, typed.processes, typed.share];
    let selects =
        numbers.iter().any(Option::is_some) || typed.model.is_some() || typed.gpu.is_some() || typed.fit.is_some();
    match (&typed.alpha, &typed.beta, &typed.table, &typed.profile) {
        (Some(alpha), Some(beta), None, None) if !selects => {
            let alpha = reader.source.within("alpha", alpha, Length(Span::ZERO)..=LONGEST)?.0;
            let beta = reader.source.within("beta", beta, Length(Span::ZERO)..=LONGEST)?.0;
            Ok(LatencyTable::line(alpha, beta, MAX_BATCH))
        }
        (None, None, Some(points), None) if !selects => measured(reader, points),
        (None, None, None, Some(path)) => {
            let selection = Selection {
                instance: typed.instance,
                processes: typed.processes,
                share: typed.share,
                model: typed.model.clone(),
                gpu: typed.gpu.clone(),
                line: typed.fit == Some(Fit::Line),
            };
            profile(reader, path.span(), path.get_ref(), &selection)
        }
        _ => Err(reader.source.error(latency.place.clone(), FORMS)),
    }
}

fn measured(reader: &Reader, points: &[Spanned<syntax::Point>]) -> Result<LatencyTable, ScenarioError> {
    let mut sizes = BTreeSet::new();
    let mut table = Vec::new();
    for point in points {
        let syntax::Point(size, latency) = *point.get_ref();
        if !(1..=MAX_BATCH as i64).contains(&size) || latency > LONGEST || latency.0 == Span::ZERO {
            let problem = format!(
                "[{size}, \"{latency}\"] is out of range: expected a batch size of 1 to {MAX_BATCH} and a latency of \
                 1ns to {LONGEST}"
            );
            return Err(reader.source.error(point.span(), problem));
        }
        if !sizes.insert(size) {
            return Err(reader.source.error(point.span(), format!("two latencies for a batch of {size}")));
        }
        table.push((size as usize, latency.0));
    }
    Ok(LatencyTable::points(&table))
}

/// The table in a profile that is named at a place in the scenario.
pub(super) fn profile(
    reader: &Reader,
    place: Range<usize>,
    path: &str,
    selection: &Selection,
) -> Result<LatencyTable, ScenarioError> {
    let text = reader.open(place, path)?;
    let source = Source { file: path, text: &text };
    let table = LatencyTable::from_csv(&text, selection).map_err(|csv| source.error_on(csv.line, csv.problem))?;
    if table.max_batch() == 0 || table.latency(1) == Span::ZERO {
        return Err(source.error_on(0, format!("no latency above zero for a batch of 1 to {MAX_BATCH}")));
    }
    Ok(table)
}
