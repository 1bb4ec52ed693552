//! What is known of models: metadata, configuration, statistics, the list of them; and starting and stopping them.

use super::answer::{Answer, Problem, empty, value};
use super::config;
use crate::Gateway;
use crate::statistics::Statistics;
use ::config::{Kind, TensorSpec};
use bytes::Bytes;
use rpc::{Entry, NotFound, Order, OrderError, State};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a model takes and gives.
pub(super) fn metadata(gateway: &Gateway, name: &str, version: Option<&str>) -> Result<Answer, Problem> {
    let catalog = gateway.catalog();
    let entry = catalog.find(name, version)?;
    let Some(info) = &entry.info else { return Err(not_ready(entry)) };
    let versions: Vec<String> = match version {
        Some(_) => vec![entry.spec.version.to_string()],
        None => catalog.versions(name).iter().map(|entry| entry.spec.version.to_string()).collect(),
    };
    let tensors = |specs: &[TensorSpec]| -> Vec<Value> {
        let one = |spec: &TensorSpec| json!({"name": spec.name, "datatype": spec.datatype.name(), "shape": spec.shape});
        specs.iter().map(one).collect()
    };
    Ok(value(&json!({
        "name": name,
        "versions": versions,
        "platform": platform(&entry.spec.kind),
        "inputs": tensors(&info.inputs),
        "outputs": tensors(&info.outputs),
    })))
}

fn platform(kind: &Kind) -> &'static str {
    match kind {
        Kind::Onnx { .. } => "onnxruntime_onnx",
        Kind::Python { .. } => "python",
        Kind::Virtual { .. } => "virtual",
    }
}

/// Whether a model can be asked.
pub(super) fn ready(gateway: &Gateway, name: &str, version: Option<&str>) -> Result<Answer, Problem> {
    let catalog = gateway.catalog();
    let entry = catalog.find(name, version)?;
    match &entry.health.trouble {
        _ if entry.is_ready() => Ok(empty()),
        Some(trouble) if entry.state == State::Ready => {
            Err(Problem::unavailable(format!("model `{name}` has no worker right now: {trouble}")))
        }
        _ => Err(not_ready(entry)),
    }
}

fn not_ready(entry: &Entry) -> Problem {
    let name = &entry.spec.name;
    match &entry.state {
        State::Unavailable(reason) if reason == rpc::catalog::UNLOADED => NotFound::Unloaded(name.clone()).into(),
        State::Unavailable(reason) => Problem::unavailable(format!("model `{name}` is not available: {reason}")),
        State::Loading | State::Ready => Problem::unavailable(format!("model `{name}` is still being loaded")),
    }
}

/// How a model is set up, in Triton's terms.
pub(super) fn configuration(gateway: &Gateway, name: &str, version: Option<&str>) -> Result<Answer, Problem> {
    let catalog = gateway.catalog();
    let entry = catalog.find(name, version)?;
    if entry.info.is_none() {
        return Err(not_ready(entry));
    }
    Ok(value(&config::config(entry)))
}

/// What the versions of a model did so far: one, all of one model, or all there are.
pub(super) fn statistics(gateway: &Gateway, name: Option<&str>, version: Option<&str>) -> Result<Answer, Problem> {
    let catalog = gateway.catalog();
    let entries: Vec<&Entry> = match (name, version) {
        (None, _) => catalog.entries.iter().collect(),
        (Some(name), Some(version)) => vec![catalog.find(name, Some(version))?],
        (Some(name), None) => {
            catalog.find(name, None)?;
            catalog.versions(name).iter().collect()
        }
    };
    let one = |entry: &&Entry| {
        let statistics = gateway.statistics(&entry.spec.name, entry.spec.version);
        statistics_of(&entry.spec.name, entry.spec.version, &statistics)
    };
    Ok(value(&json!({"model_stats": entries.iter().map(one).collect::<Vec<_>>()})))
}

fn statistics_of(name: &str, version: u32, statistics: &Statistics) -> Value {
    let get = |counter: &AtomicU64| counter.load(Relaxed);
    let duration = |count: u64, nanos: u64| json!({"count": count, "ns": nanos});
    let succeeded = get(&statistics.succeeded);
    let failed = get(&statistics.failed) + statistics.refused.iter().map(get).sum::<u64>();
    let batch = |(size, count, took): &(usize, u64, rpc::Compute)| {
        json!({
            "batch_size": size,
            "compute_input": duration(*count, took.input.nanos()),
            "compute_infer": duration(*count, took.infer.nanos()),
            "compute_output": duration(*count, took.output.nanos()),
        })
    };
    let batches: Vec<Value> = statistics.by_size().iter().map(batch).collect();
    json!({
        "name": name,
        "version": version.to_string(),
        "last_inference": get(&statistics.last_ms),
        "inference_count": get(&statistics.rows),
        "execution_count": get(&statistics.batches),
        "inference_stats": {
            "success": duration(succeeded, get(&statistics.total_ns)),
            "fail": duration(failed, get(&statistics.failed_ns)),
            "queue": duration(succeeded, get(&statistics.queued_ns)),
            "compute_input": duration(succeeded, get(&statistics.compute.input_ns)),
            "compute_infer": duration(succeeded, get(&statistics.compute.infer_ns)),
            "compute_output": duration(succeeded, get(&statistics.compute.output_ns)),
            "cache_hit": duration(0, 0),
            "cache_miss": duration(0, 0),
        },
        "response_stats": {},
        "batch_stats": batches,
        "memory_usage": [],
    })
}

/// The list of models: all, or those that can be asked.
pub(super) fn index(gateway: &Gateway, body: &Bytes) -> Result<Answer, Problem> {
    #[derive(serde::Deserialize)]
    struct Filter {
        #[serde(default)]
        ready: bool,
    }
    let wanted: Filter = parse(body)?;
    let line = |entry: &Entry| {
        let shown = entry.shown();
        let (state, reason) = match &shown {
            State::Ready => ("READY", ""),
            State::Loading => ("LOADING", ""),
            State::Unavailable(reason) => ("UNAVAILABLE", reason.as_str()),
        };
        let version = entry.spec.version.to_string();
        let mut line = json!({"name": entry.spec.name, "version": version, "state": state});
        if !reason.is_empty() {
            line["reason"] = json!(reason);
        }
        line
    };
    let catalog = gateway.catalog();
    let shown = catalog.entries.iter().filter(|entry| !wanted.ready || entry.is_ready());
    Ok(value(&Value::Array(shown.map(line).collect())))
}

/// What is said with an order.
#[derive(serde::Deserialize)]
struct Wanted {
    #[serde(default)]
    parameters: serde_json::Map<String, Value>,
}

/// Starts the workers of a model and waits until it can be asked.
pub(super) async fn load(gateway: &Gateway, name: &str, body: &Bytes) -> Result<Answer, Problem> {
    let wanted: Wanted = parse(body)?;
    if let Some(other) = wanted.parameters.keys().find(|key| *key == "config" || key.starts_with("file:")) {
        return Err(Problem::invalid(format!("`{other}` cannot be given with a load; deploy the model again instead")));
    }
    gateway.order(Order::Load { name: name.to_string() }).await?;
    Ok(empty())
}

/// Ends the workers of a model. No model depends on another, so that `unload_dependents` changes nothing.
pub(super) async fn unload(gateway: &Gateway, name: &str, body: &Bytes) -> Result<Answer, Problem> {
    let _: Wanted = parse(body)?;
    match gateway.order(Order::Unload { name: name.to_string() }).await {
        // What is not there is as good as unloaded, as in Triton.
        Ok(()) | Err(OrderError::NotFound(_)) => Ok(empty()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a small body, which is an object; an empty one means that nothing is said.
pub(super) fn parse<T: serde::de::DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    let wrong = |error: serde_json::Error| Problem::invalid(format!("JSON: {error}"));
    let object: serde_json::Map<String, Value> = match body.trim_ascii() {
        b"" => serde_json::Map::new(),
        text => serde_json::from_slice(text).map_err(wrong)?,
    };
    serde_json::from_value(Value::Object(object)).map_err(wrong)
}
