//! Models as clients ask about them: metadata, index, statistics.

use crate::config;
use crate::statistics::Statistics;
use ::config::TensorSpec;
use rpc::inference::model_metadata_response::TensorMetadata;
use rpc::inference::repository_index_response::ModelIndex;
use rpc::inference::{
    InferBatchStatistics, InferStatistics, ModelMetadataResponse, ModelStatistics, StatisticDuration,
};
use rpc::{Entry, ModelInfo, State};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A model's metadata.
pub(super) fn metadata(entry: &Entry, info: &ModelInfo, versions: Vec<String>) -> ModelMetadataResponse {
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.name().into(),
        shape: spec.shape.clone(),
    };
    ModelMetadataResponse {
        name: entry.spec.name.clone(),
        versions,
        platform: config::platform(&entry.spec.kind).into(),
        inputs: info.inputs.iter().map(tensor).collect(),
        outputs: info.outputs.iter().map(tensor).collect(),
    }
}

/// A model's line in the index.
pub(super) fn index(entry: &Entry) -> ModelIndex {
    let shown = entry.shown();
    let (state, reason) = match &shown {
        State::Loading => ("LOADING", ""),
        State::Ready => ("READY", ""),
        State::Unavailable(reason) => ("UNAVAILABLE", reason.as_str()),
    };
    ModelIndex {
        name: entry.spec.name.clone(),
        version: entry.spec.version.to_string(),
        state: state.into(),
        reason: reason.into(),
    }
}

/// What became of a model's requests.
pub(super) fn statistics(name: &str, version: u32, statistics: &Statistics) -> ModelStatistics {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let duration = |count: u64, ns: u64| Some(StatisticDuration { count, ns });
    let succeeded = read(&statistics.succeeded);
    let batch = |(size, count, took): (usize, u64, rpc::Compute)| InferBatchStatistics {
        batch_size: size as u64,
        compute_input: duration(count, took.input.nanos()),
        compute_infer: duration(count, took.infer.nanos()),
        compute_output: duration(count, took.output.nanos()),
    };
    let failed = read(&statistics.failed) + statistics.refused.iter().map(read).sum::<u64>();
    ModelStatistics {
        name: name.into(),
        version: version.to_string(),
        last_inference: read(&statistics.last_ms),
        inference_count: read(&statistics.rows),
        execution_count: read(&statistics.batches),
        inference_stats: Some(InferStatistics {
            success: duration(succeeded, read(&statistics.total_ns)),
            fail: duration(failed, read(&statistics.failed_ns)),
            queue: duration(succeeded, read(&statistics.queued_ns)),
            compute_input: duration(succeeded, read(&statistics.compute.input_ns)),
            compute_infer: duration(succeeded, read(&statistics.compute.infer_ns)),
            compute_output: duration(succeeded, read(&statistics.compute.output_ns)),
            cache_hit: duration(0, 0),
            cache_miss: duration(0, 0),
        }),
        batch_stats: statistics.by_size().into_iter().map(batch).collect(),
        ..Default::default()
    }
}
