//! A model's configuration in Triton's terms, for clients that ask for it.

use config::{DataType, Kind, TensorSpec};
use rpc::Entry;
use serde_json::{Value, json};

/// The `ModelConfig` of a model version.
pub(super) fn config(entry: &Entry) -> Value {
    let spec = &entry.spec;
    let max_batch = entry.info.as_ref().map_or(spec.max_batch, |info| info.max_batch);
    let (inputs, outputs) = match &entry.info {
        Some(info) => (&info.inputs, &info.outputs),
        None => (&spec.inputs, &spec.outputs),
    };
    let tensor = |tensor: &TensorSpec| {
        let dims = if max_batch > 0 { tensor.shape.get(1..).unwrap_or(&[]) } else { &tensor.shape };
        (tensor.name.clone(), data_type(tensor.datatype), dims.to_vec())
    };
    let input = |spec: &TensorSpec| {
        let (name, data_type, dims) = tensor(spec);
        json!({
            "name": name, "data_type": data_type, "format": "FORMAT_NONE", "dims": dims, "is_shape_tensor": false,
            "allow_ragged_batch": false, "optional": false, "is_non_linear_format_io": false,
        })
    };
    let output = |spec: &TensorSpec| {
        let (name, data_type, dims) = tensor(spec);
        json!({
            "name": name, "data_type": data_type, "dims": dims, "label_filename": "", "is_shape_tensor": false,
            "is_non_linear_format_io": false,
        })
    };
    let (platform, backend) = match spec.kind {
        Kind::Onnx { .. } => ("onnxruntime_onnx", "onnxruntime"),
        Kind::Python { .. } => ("", "python"),
        Kind::Virtual { .. } => ("", "virtual"),
    };
    let mut config = json!({
        "name": spec.name,
        "platform": platform,
        "backend": backend,
        "runtime": "",
        "version_policy": {"specific": {"versions": [spec.version]}},
        "max_batch_size": max_batch,
        "input": inputs.iter().map(input).collect::<Vec<_>>(),
        "output": outputs.iter().map(output).collect::<Vec<_>>(),
        "batch_input": [],
        "batch_output": [],
        "instance_group": [{
            "name": format!("{}_0", spec.name), "kind": "KIND_CPU", "count": spec.workers.max(), "gpus": [],
            "secondary_devices": [], "profile": [], "passive": false, "host_policy": "",
        }],
        "default_model_filename": "",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
        "model_transaction_policy": {"decoupled": false},
    });
    if max_batch > 0 {
        config["dynamic_batching"] = json!({
            "preferred_batch_size": [max_batch], "max_queue_delay_microseconds": spec.slo.nanos() / 1_000,
            "preserve_ordering": false, "priority_levels": 10, "default_priority_level": 0,
            "priority_queue_policy": {},
        });
    }
    config
}

/// Triton's word for a type in configurations.
fn data_type(datatype: DataType) -> String {
    match datatype {
        DataType::Bytes => "TYPE_STRING".into(),
        other => format!("TYPE_{}", other.name()),
    }
}
