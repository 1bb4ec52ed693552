//! How a model is served, in the words of Triton's model configuration.

use config::{Kind, TensorSpec};
use rpc::Entry;
use rpc::inference::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelInstanceGroup, ModelOutput, ModelParameter,
    ModelQueuePolicy, ModelTransactionPolicy, ModelVersionPolicy, model_config, model_instance_group,
    model_queue_policy, model_version_policy,
};

/// What clients can look for before they use an extension.
pub(crate) const EXTENSIONS: [&str; 11] = [
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
];

/// The configuration of a model version, as far as it is known.
pub fn config(entry: &Entry) -> ModelConfig {
    let spec = &entry.spec;
    let (inputs, outputs, max_batch) = match &entry.info {
        Some(info) => (&info.inputs, &info.outputs, info.max_batch),
        None => (&spec.inputs, &spec.outputs, spec.max_batch),
    };
    let file = match &spec.kind {
        Kind::Onnx { path } | Kind::Python { path, .. } => path.file_name().map(|name| name.to_string_lossy()),
        Kind::Virtual { .. } => None,
    };
    let parameter = |name: &str, value: String| (name.to_string(), ModelParameter { string_value: value });
    let queue = ModelQueuePolicy {
        timeout_action: model_queue_policy::TimeoutAction::Reject.into(),
        default_timeout_microseconds: spec.slo.nanos() / 1_000,
        allow_timeout_override: true,
        max_queue_size: u32::try_from(spec.queue).unwrap_or(u32::MAX),
    };
    let batching = ModelDynamicBatching { default_queue_policy: Some(queue), ..Default::default() };
    ModelConfig {
        name: spec.name.clone(),
        platform: platform(&spec.kind).into(),
        backend: backend(&spec.kind).into(),
        version_policy: Some(ModelVersionPolicy {
            policy_choice: Some(model_version_policy::PolicyChoice::All(model_version_policy::All {})),
        }),
        max_batch_size: i32::try_from(max_batch).unwrap_or(i32::MAX),
        input: inputs.iter().map(|tensor| input(tensor, max_batch)).collect(),
        output: outputs.iter().map(|tensor| output(tensor, max_batch)).collect(),
        instance_group: vec![ModelInstanceGroup {
            name: format!("{}_0", spec.name),
            count: i32::try_from(spec.workers.max()).unwrap_or(i32::MAX),
            kind: model_instance_group::Kind::Cpu.into(),
            ..Default::default()
        }],
        default_model_filename: file.unwrap_or_default().into_owned(),
        scheduling_choice: (max_batch > 0).then_some(model_config::SchedulingChoice::DynamicBatching(batching)),
        parameters: [parameter("slo", spec.slo.to_string()), parameter("threads", spec.threads.to_string())].into(),
        model_transaction_policy: Some(ModelTransactionPolicy { decoupled: false }),
        ..Default::default()
    }
}

/// The word for what executes a model, in its metadata.
pub fn platform(kind: &Kind) -> &'static str {
    match kind {
        Kind::Onnx { .. } => "onnxruntime_onnx",
        Kind::Python { .. } => "python",
        Kind::Virtual { .. } => "weft_virtual",
    }
}

fn backend(kind: &Kind) -> &'static str {
    match kind {
        Kind::Onnx { .. } => "onnxruntime",
        Kind::Python { .. } => "python",
        Kind::Virtual { .. } => "virtual",
    }
}

fn input(tensor: &TensorSpec, max_batch: usize) -> ModelInput {
    let data_type = data_type(tensor.datatype).into();
    ModelInput { name: tensor.name.clone(), data_type, dims: dimensions(tensor, max_batch), ..Default::default() }
}

fn output(tensor: &TensorSpec, max_batch: usize) -> ModelOutput {
    let data_type = data_type(tensor.datatype).into();
    ModelOutput { name: tensor.name.clone(), data_type, dims: dimensions(tensor, max_batch), ..Default::default() }
}

/// A tensor's dimensions without that of the batch.
fn dimensions(tensor: &TensorSpec, max_batch: usize) -> Vec<i64> {
    let batch = usize::from(max_batch > 0).min(tensor.shape.len());
    tensor.shape[batch..].to_vec()
}

fn data_type(datatype: config::DataType) -> DataType {
    match datatype {
        config::DataType::Bool => DataType::TypeBool,
        config::DataType::Uint8 => DataType::TypeUint8,
        config::DataType::Uint16 => DataType::TypeUint16,
        config::DataType::Uint32 => DataType::TypeUint32,
        config::DataType::Uint64 => DataType::TypeUint64,
        config::DataType::Int8 => DataType::TypeInt8,
        config::DataType::Int16 => DataType::TypeInt16,
        config::DataType::Int32 => DataType::TypeInt32,
        config::DataType::Int64 => DataType::TypeInt64,
        config::DataType::Fp16 => DataType::TypeFp16,
        config::DataType::Bf16 => DataType::TypeBf16,
        config::DataType::Fp32 => DataType::TypeFp32,
        config::DataType::Fp64 => DataType::TypeFp64,
        config::DataType::Bytes => DataType::TypeString,
    }
}
