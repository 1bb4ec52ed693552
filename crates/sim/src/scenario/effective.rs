//! A scenario as a scenario file that names no other file and leaves nothing to a default. Reading it gives
//! the same scenario again, to the bit.
//!
//! `give_up_at` has no key: it belongs to a search over rates, not to a scenario.

use super::{ModelSpec, Scenario};
use crate::workload::Spacing;
use policy::LatencyTable;
use std::fmt::Write;

/// The scenario as TOML.
pub fn effective(scenario: &Scenario) -> String {
    let mut out = String::new();
    write(scenario, &mut out).expect("text can always be added to a string");
    out
}

fn write(scenario: &Scenario, out: &mut String) -> std::fmt::Result {
    writeln!(out, "seed = {}", scenario.seed)?;
    writeln!(out, "warmup = \"{}\"", scenario.warmup)?;
    writeln!(out, "duration = \"{}\"", scenario.duration)?;
    writeln!(out, "policy = {}", quoted(&scenario.policy))?;
    writeln!(out, "rate = {:?}", scenario.rate)?;
    writeln!(out, "noise = {:?}", scenario.noise)?;

    writeln!(out, "\n[cluster]")?;
    for group in &scenario.gpus {
        writeln!(out, "\n[[cluster.gpu]]")?;
        writeln!(out, "type = {}\ncount = {}\nspeed = {:?}", quoted(&group.kind), group.count, group.speed)?;
    }
    for failure in &scenario.failures {
        writeln!(out, "\n[[cluster.failure]]\ngpu = {}\nat = \"{}\"", failure.gpu.index(), failure.at)?;
        if let Some(down_for) = failure.down_for {
            writeln!(out, "down_for = \"{down_for}\"")?;
        }
    }

    let network = &scenario.network;
    writeln!(out, "\n[network]\ncontrol = \"{}\"", network.control)?;
    writeln!(out, "data_per_request = \"{}\"", network.data_per_request)?;
    writeln!(out, "response = \"{}\"\njitter = \"{}\"", network.response, network.jitter)?;

    writeln!(out, "\n[arrivals]")?;
    arrivals(&scenario.arrivals, out)?;

    let mut models = &scenario.models[..];
    while let [first, ..] = models {
        let (name, count) = alike(models);
        writeln!(out, "\n[[model]]\nname = {}\ncount = {count}\nslo = \"{}\"", quoted(name), first.objective)?;
        writeln!(out, "weight = {:?}", first.share)?;
        latencies(scenario, first, out)?;
        models = &models[count..];
    }
    Ok(())
}

fn arrivals(spacing: &Spacing, out: &mut String) -> std::fmt::Result {
    match spacing {
        Spacing::Poisson => writeln!(out, "kind = \"poisson\""),
        Spacing::Gamma { shape } => writeln!(out, "kind = \"gamma\"\nshape = {shape:?}"),
        Spacing::Constant => writeln!(out, "kind = \"constant\""),
        Spacing::Trace { slot, rows } => {
            writeln!(out, "kind = \"trace\"\nslot = \"{slot}\"\nrows = [")?;
            for row in rows {
                let weights: Vec<String> = row.iter().map(|weight| format!("{weight:?}")).collect();
                writeln!(out, "  [{}],", weights.join(", "))?;
            }
            writeln!(out, "]")
        }
    }
}

/// What the first model is called, and how many models from it on one entry stands for: those that differ in
/// nothing but a number that counts up from 1 at the end of their name.
fn alike(models: &[ModelSpec]) -> (&str, usize) {
    let first = &models[0];
    let same = |model: &ModelSpec| {
        model.objective == first.objective && model.share == first.share && model.tables == first.tables
    };
    match first.name.strip_suffix("-1") {
        Some(base) if !base.trim().is_empty() => {
            let numbered = |(index, model): &(usize, &ModelSpec)| {
                model.name.strip_prefix(base) == Some(format!("-{}", index + 1).as_str()) && same(model)
            };
            match models.iter().enumerate().take_while(numbered).count() {
                1 => (&first.name, 1),
                count => (base, count),
            }
        }
        _ => (&first.name, 1),
    }
}

/// A model's tables, one for all types where one will do. `latency` is scaled by a type's speed when it is
/// read, which these tables already are.
fn latencies(scenario: &Scenario, model: &ModelSpec, out: &mut String) -> std::fmt::Result {
    let max_batch = model.tables.iter().map(LatencyTable::max_batch).max().unwrap_or(0);
    writeln!(out, "max_batch = {max_batch}")?;
    let one = model.tables.windows(2).all(|pair| pair[0] == pair[1]);
    if one && scenario.gpus.iter().all(|group| group.speed == 1.0) {
        return writeln!(out, "latency = {{ table = [{}] }}", corners(&model.tables[0]));
    }
    for (group, table) in scenario.gpus.iter().zip(&model.tables) {
        writeln!(out, "latency_on.{} = {{ table = [{}] }}", quoted(&group.kind), corners(table))?;
    }
    Ok(())
}

/// The sizes at which a table's slope changes; the rest lie on straight lines between them, exactly.
fn corners(table: &LatencyTable) -> String {
    let last = table.max_batch();
    let rise = |size: usize| table.latency(size + 1) - table.latency(size);
    let corner = |size: &usize| *size == 1 || *size == last || rise(*size - 1) != rise(*size);
    let points = (1..=last).filter(corner).map(|size| format!("[{size}, \"{}\"]", table.latency(size)));
    points.collect::<Vec<_>>().join(", ")
}

/// Text as TOML wants it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
