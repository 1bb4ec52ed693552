//! The dashboard's data as JSON, as `ui/README.md` has it.
//!
//! Written by hand: most of it is numbers, millions of them when a page with hundreds of models is opened, and zeros
//! are left out in a way of their own.

use super::counters::Sample;
use super::history::{History, Model, after};
use crate::metrics::gpu::GpuView;
use crate::metrics::scrape::model_of;
use crate::metrics::weft::state_name;
use config::Kind;
use rpc::{Catalog, Entry, Overview, RunsOn, State, WorkerState, WorkerView};
use std::fmt::Write;

/// All that is told.
pub(super) struct Told<'told> {
    pub(super) history: &'told History,
    /// What the page has already.
    pub(super) since: u64,
    /// Another text for every process.
    pub(super) boot: &'told str,
    /// When the last sample ended, as Unix time.
    pub(super) now_ms: u64,
    pub(super) cluster: &'told str,
    pub(super) uptime_s: u64,
    pub(super) catalog: &'told Catalog,
    pub(super) overview: &'told Overview,
    pub(super) gpus: &'told [GpuView],
}

impl Told<'_> {
    /// The JSON of it.
    pub(super) fn write(&self) -> String {
        let after = after(self.history.seq, self.since);
        let mut out = String::with_capacity(4 << 10);
        let Told { boot, now_ms, cluster, uptime_s, .. } = self;
        let (seq, nodes) = (self.history.seq, self.overview.nodes.len());
        let _ = write!(out, r#"{{"schema":1,"boot":{},"seq":{seq},"now_ms":{now_ms}"#, text(boot));
        let version = text(env!("CARGO_PKG_VERSION"));
        let _ = write!(
            out,
            r#","cluster":{{"name":{},"version":{version},"uptime_s":{uptime_s},"nodes":{nodes}}}"#,
            text(cluster)
        );
        list(&mut out, "models", &self.catalog.entries, |out, entry| self.model(out, entry, after));
        list(&mut out, "workers", &self.overview.workers, |out, worker| self.worker(out, worker, after));
        list(&mut out, "gpus", self.gpus, |out, gpu| self.gpu(out, gpu, after));
        out.push('}');
        out
    }

    fn model(&self, out: &mut String, entry: &Entry, after: u64) {
        let spec = &entry.spec;
        let shown = entry.shown();
        let (kind, state) = (spec.kind.name(), state_name(&shown));
        let reason = match &shown {
            State::Unavailable(reason) => reason,
            State::Loading | State::Ready => "",
        };
        let max_batch = entry.info.as_ref().map_or(spec.max_batch, |info| info.max_batch);
        let _ = write!(out, r#"{{"name":{},"version":{},"kind":"{kind}""#, text(&spec.name), spec.version);
        let _ = write!(out, r#","state":"{state}","reason":{},"slo_ms":{}"#, text(reason), spec.slo.millis());
        let _ = write!(out, r#","max_batch":{max_batch},"queue_limit":{}"#, spec.queue);
        if let Some(RunsOn { device, provider, reason }) = entry.info.as_ref().and_then(|info| info.runs_on.as_ref()) {
            let _ = write!(out, r#","device":{},"provider":{}"#, text(device), text(provider));
            let _ = write!(out, r#","device_reason":{}"#, text(reason.as_deref().unwrap_or("")));
        }
        let (ready, wanted) = match spec.kind {
            Kind::Virtual { .. } => self.emulated(),
            _ => (entry.workers_ready, entry.workers_wanted),
        };
        let _ = write!(out, r#","workers_ready":{ready},"workers_wanted":{wanted}"#);
        let model = self.history.model(&spec.name, spec.version);
        out.push_str(r#","latency_ms":"#);
        match model.and_then(Model::latency_ms) {
            None => out.push_str("null"),
            Some(latencies) => {
                out.push('[');
                separated(out, latencies, |out, latency| number(out, latency as f32));
                out.push(']');
            }
        }
        out.push_str(r#","samples":["#);
        let samples = model.into_iter().flat_map(|model| model.samples(after));
        separated(out, samples, |out, (seq, sample)| row(out, *seq, sample));
        out.push_str("]}");
    }

    /// Emulated GPUs that can take batches, and all of them: any runs any virtual model.
    fn emulated(&self) -> (usize, usize) {
        let emulated = self.overview.workers.iter().filter(|worker| model_of(worker).1.is_none());
        let ready = |worker: &&WorkerView| worker.state == WorkerState::Ready;
        (emulated.clone().filter(ready).count(), emulated.count())
    }

    fn worker(&self, out: &mut String, worker: &WorkerView, after: u64) {
        let (model, version) = model_of(worker);
        let WorkerView { worker: id, state, restarts, .. } = worker;
        let _ = write!(out, r#"{{"id":{},"node":{},"gpu":null"#, id.0, text(&worker.node));
        let _ = write!(out, r#","model":{},"version":"#, text(model));
        let _ = match version {
            Some(version) => write!(out, "{version}"),
            None => write!(out, "null"),
        };
        let _ =
            write!(out, r#","state":"{}","share":null,"memory_bytes":null,"memory_limit_bytes":null"#, state.name());
        let error = worker.last_error.as_deref().unwrap_or("");
        let _ = write!(out, r#","restarts":{restarts},"again_in_s":null,"error":{}"#, text(error));
        busy(out, self.history.worker(*id, after));
    }

    fn gpu(&self, out: &mut String, gpu: &GpuView, after: u64) {
        let _ = write!(out, r#"{{"node":{},"gpu":{},"name":{}"#, text(&gpu.node), gpu.gpu, text(&gpu.name));
        let (used, total) = (gpu.memory_bytes, gpu.memory_total_bytes);
        let _ = write!(out, r#","memory_bytes":{used},"memory_total_bytes":{total}"#);
        busy(out, self.history.gpu(gpu, after));
    }
}

fn busy(out: &mut String, percents: impl Iterator<Item = u8>) {
    out.push_str(r#","busy":["#);
    separated(out, percents, |out, percent| whole(out, u64::from(percent)));
    out.push_str("]}");
}

/// A sample without the zeros and nulls at its end.
fn row(out: &mut String, seq: u64, Sample(values): &Sample) {
    out.push('[');
    whole(out, seq);
    let length = values.iter().rposition(|value| *value != 0.0 && !value.is_nan()).map_or(0, |last| last + 1);
    for value in &values[..length] {
        out.push(',');
        number(out, *value);
    }
    out.push(']');
}

/// Two digits are left after the point, three below 1; what is no number is `null`.
fn number(out: &mut String, value: f32) {
    if value.is_nan() {
        return out.push_str("null");
    }
    if value.fract() == 0.0 {
        return whole(out, value as u64);
    }
    let (places, scale) = if value < 1.0 { (3, 1_000) } else { (2, 100) };
    let scaled = (f64::from(value) * scale as f64).round() as u64;
    whole(out, scaled / scale);
    let mut rest = scaled % scale;
    if rest > 0 {
        out.push('.');
    }
    for place in (0..places).rev() {
        let unit = 10_u64.pow(place);
        if rest > 0 {
            out.push(char::from(b'0' + (rest / unit) as u8));
        }
        rest %= unit;
    }
}

fn whole(out: &mut String, value: u64) {
    if value < 10 {
        return out.push(char::from(b'0' + value as u8));
    }
    let (mut digits, mut first, mut rest) = ([0; 20], 20, value);
    while rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push_str(std::str::from_utf8(&digits[first..]).expect("digits are text"));
}

fn list<Item>(out: &mut String, name: &str, items: &[Item], write: impl Fn(&mut String, &Item)) {
    let _ = write!(out, r#","{name}":["#);
    separated(out, items, write);
    out.push(']');
}

fn separated<Item>(out: &mut String, items: impl IntoIterator<Item = Item>, write: impl Fn(&mut String, Item)) {
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write(out, item);
    }
}

/// A string of JSON.
fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = |value| {
            let mut out = String::new();
            number(&mut out, value);
            out
        };
        let values =
            [0.0, 7.0, 10.0, 1234567.0, 16.699_999, 1.05, 0.0327, 0.333_333_3, 0.9999, 0.000_1, 100.004, f32::NAN];
        let expected = ["0", "7", "10", "1234567", "16.7", "1.05", "0.033", "0.333", "1", "0", "100", "null"];
        assert_eq!(values.map(written), expected);
    }

    #[test]
    fn zeros_at_the_end_of_a_row_are_left_out() {
        let mut values = [0.0; super::super::counters::FIELDS];
        (values[0], values[10], values[11]) = (3.0, f32::NAN, f32::NAN);
        let mut out = String::new();
        row(&mut out, 12, &Sample(values));
        assert_eq!(out, "[12,3]");
        values[13] = 1.0;
        out.clear();
        row(&mut out, 12, &Sample(values));
        assert_eq!(out, "[12,3,0,0,0,0,0,0,0,0,0,null,null,0,1]");
    }
}
