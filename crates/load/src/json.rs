//! The protocol's JSON: what a server says about its models, and requests to infer.

use config::{DataType, TensorSpec};
use policy::Span;
use rpc::Tensor;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The inputs in a model's metadata. `Err`: what is wrong with it.
pub(crate) fn inputs(body: &[u8]) -> Result<Vec<TensorSpec>, String> {
    #[derive(Deserialize)]
    struct Metadata {
        inputs: Vec<Input>,
    }
    #[derive(Deserialize)]
    struct Input {
        name: String,
        datatype: String,
        #[serde(default)]
        shape: Vec<i64>,
    }
    let metadata: Metadata = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let tensor = |input: Input| {
        let datatype = DataType::parse(&input.datatype);
        let datatype = datatype.ok_or_else(|| format!("input `{}` has type {}", input.name, input.datatype))?;
        Ok(TensorSpec { name: input.name, datatype, shape: input.shape })
    };
    metadata.inputs.into_iter().map(tensor).collect()
}

/// The names in a repository's index; none when it is not one.
pub(crate) fn names(body: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Entry {
        name: String,
    }
    let entries: Vec<Entry> = serde_json::from_slice(body).unwrap_or_default();
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names.dedup();
    names
}

/// A request with its tensors as JSON.
pub(crate) fn request(tensors: &[Tensor], timeout: Option<Span>) -> Vec<u8> {
    let input = |tensor: &Tensor| {
        json!({
            "name": &*tensor.name,
            "datatype": tensor.datatype.name(),
            "shape": tensor.shape,
            "data": values(tensor),
        })
    };
    write(tensors.iter().map(input).collect(), parameters(timeout))
}

/// A request with its tensors as raw bytes after the JSON, and the length of the JSON.
pub(crate) fn binary_request(tensors: &[Tensor], timeout: Option<Span>) -> (usize, Vec<u8>) {
    let input = |tensor: &Tensor| {
        json!({
            "name": &*tensor.name,
            "datatype": tensor.datatype.name(),
            "shape": tensor.shape,
            "parameters": { "binary_data_size": tensor.data.len() },
        })
    };
    let mut parameters = parameters(timeout);
    parameters.insert("binary_data_output".into(), true.into());
    let mut body = write(tensors.iter().map(input).collect(), parameters);
    let length = body.len();
    for tensor in tensors {
        body.extend_from_slice(&tensor.data);
    }
    (length, body)
}

fn parameters(timeout: Option<Span>) -> Map<String, Value> {
    let timeout = timeout.map(|timeout| ("timeout".to_owned(), Value::from(timeout.nanos() / 1_000)));
    timeout.into_iter().collect()
}

fn write(inputs: Vec<Value>, parameters: Map<String, Value>) -> Vec<u8> {
    let mut request = Map::new();
    if !parameters.is_empty() {
        request.insert("parameters".into(), parameters.into());
    }
    request.insert("inputs".into(), inputs.into());
    serde_json::to_vec(&request).expect("a value is always written")
}

/// A tensor's elements as numbers, truths and texts.
fn values(tensor: &Tensor) -> Vec<Value> {
    let data = &tensor.data[..];
    match tensor.datatype {
        DataType::Bool => data.iter().map(|byte| Value::from(*byte != 0)).collect(),
        DataType::Uint8 => each(data, |[byte]| byte.into()),
        DataType::Uint16 => each(data, |bytes| u16::from_le_bytes(bytes).into()),
        DataType::Uint32 => each(data, |bytes| u32::from_le_bytes(bytes).into()),
        DataType::Uint64 => each(data, |bytes| u64::from_le_bytes(bytes).into()),
        DataType::Int8 => each(data, |bytes| i8::from_le_bytes(bytes).into()),
        DataType::Int16 => each(data, |bytes| i16::from_le_bytes(bytes).into()),
        DataType::Int32 => each(data, |bytes| i32::from_le_bytes(bytes).into()),
        DataType::Int64 => each(data, |bytes| i64::from_le_bytes(bytes).into()),
        DataType::Fp16 => each(data, |bytes| half::f16::from_le_bytes(bytes).to_f32().into()),
        DataType::Bf16 => each(data, |bytes| half::bf16::from_le_bytes(bytes).to_f32().into()),
        DataType::Fp32 => each(data, |bytes| f32::from_le_bytes(bytes).into()),
        DataType::Fp64 => each(data, |bytes| f64::from_le_bytes(bytes).into()),
        DataType::Bytes => texts(data),
    }
}

fn each<const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> Value) -> Vec<Value> {
    data.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect()
}

/// Elements that each carry their length before them.
fn texts(mut data: &[u8]) -> Vec<Value> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let (text, rest) = rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()));
        texts.push(Value::from(String::from_utf8_lossy(text)));
        data = rest;
    }
    texts
}
