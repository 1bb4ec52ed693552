//! A request that a model takes, from a file: as JSON, as clients send it and as `weft load --inputs` reads it.
//!
//! ```json
//! {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
//! ```

use config::DataType;
use half::{bf16, f16};
use rpc::{ModelInfo, Tensor};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    One(Request),
    /// The first is taken.
    Many(Vec<Request>),
}

#[derive(Deserialize)]
struct Request {
    inputs: Vec<Input>,
}

#[derive(Deserialize)]
struct Input {
    name: String,
    datatype: DataType,
    shape: Vec<usize>,
    data: Value,
}

/// The inputs of the request in a file, in the model's order. Says what is wrong where the model cannot take it.
pub(crate) fn read(file: &Path, info: &ModelInfo) -> Result<Vec<Tensor>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("it cannot be read: {error}"))?;
    parse(&text, info)
}

fn parse(text: &str, info: &ModelInfo) -> Result<Vec<Tensor>, String> {
    let wrong =
        || "it is no request: {\"inputs\": [{\"name\", \"datatype\", \"shape\", \"data\"}]} is expected".to_owned();
    let request = match serde_json::from_str(text).map_err(|_| wrong())? {
        Written::One(request) => request,
        Written::Many(requests) => requests.into_iter().next().ok_or_else(wrong)?,
    };
    if let Some(unknown) = request.inputs.iter().find(|input| info.inputs.iter().all(|spec| spec.name != input.name)) {
        return Err(format!("it has an input `{}`, which the model does not take", unknown.name));
    }
    let tensor = |spec: &config::TensorSpec| {
        let Some(input) = request.inputs.iter().find(|input| input.name == spec.name) else {
            return Err(format!("input `{}` is missing", spec.name));
        };
        if input.datatype != spec.datatype {
            let (is, wanted) = (input.datatype.name(), spec.datatype.name());
            return Err(format!("input `{}` is {is}, and {wanted} is expected", spec.name));
        }
        let fits = |(is, wanted): (&usize, &i64)| *wanted < 0 || *is as i64 == *wanted;
        if input.shape.len() != spec.shape.len() || !input.shape.iter().zip(&spec.shape).all(fits) {
            return Err(format!("input `{}` has shape {:?}, and {:?} is expected", spec.name, input.shape, spec.shape));
        }
        if info.max_batch > 0 && input.shape.first() != Some(&1) {
            return Err(format!(
                "input `{}` has shape {:?}; one request of one row is expected",
                spec.name, input.shape
            ));
        }
        let mut data = Vec::new();
        let count = encode(&input.data, input.datatype, &mut data)
            .ok_or_else(|| format!("the data of input `{}` is not all {}", spec.name, spec.datatype.name()))?;
        if rpc::tensor::elements(&input.shape) != Some(count) {
            return Err(format!("input `{}` has {count} elements; its shape is {:?}", spec.name, input.shape));
        }
        Ok(Tensor {
            name: spec.name.as_str().into(),
            datatype: input.datatype,
            shape: input.shape.clone(),
            data: data.into(),
        })
    };
    info.inputs.iter().map(tensor).collect()
}

/// Appends elements, however deep in lists they are, as they lie in tensors; how many there were.
fn encode(value: &Value, datatype: DataType, out: &mut Vec<u8>) -> Option<usize> {
    if let Value::Array(elements) = value {
        return elements.iter().map(|element| encode(element, datatype, out)).sum();
    }
    let bytes: Vec<u8> = match datatype {
        DataType::Bool => vec![u8::from(value.as_bool().or_else(|| Some(value.as_u64()? != 0))?)],
        DataType::Uint8 => u8::try_from(value.as_u64()?).ok()?.to_le_bytes().into(),
        DataType::Uint16 => u16::try_from(value.as_u64()?).ok()?.to_le_bytes().into(),
        DataType::Uint32 => u32::try_from(value.as_u64()?).ok()?.to_le_bytes().into(),
        DataType::Uint64 => value.as_u64()?.to_le_bytes().into(),
        DataType::Int8 => i8::try_from(value.as_i64()?).ok()?.to_le_bytes().into(),
        DataType::Int16 => i16::try_from(value.as_i64()?).ok()?.to_le_bytes().into(),
        DataType::Int32 => i32::try_from(value.as_i64()?).ok()?.to_le_bytes().into(),
        DataType::Int64 => value.as_i64()?.to_le_bytes().into(),
        DataType::Fp16 => f16::from_f64(value.as_f64()?).to_le_bytes().into(),
        DataType::Bf16 => bf16::from_f64(value.as_f64()?).to_le_bytes().into(),
        DataType::Fp32 => (value.as_f64()? as f32).to_le_bytes().into(),
        DataType::Fp64 => value.as_f64()?.to_le_bytes().into(),
        DataType::Bytes => {
            let text = value.as_str()?.as_bytes();
            [&u32::try_from(text.len()).ok()?.to_le_bytes()[..], text].concat()
        }
    };
    out.extend(bytes);
    Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TensorSpec;

    fn info(datatype: DataType, shape: &[i64], max_batch: usize) -> ModelInfo {
        let inputs = vec![TensorSpec { name: "x".into(), datatype, shape: shape.into() }];
        serde_json::from_value(serde_json::json!({ "inputs": inputs, "outputs": [], "max_batch": max_batch })).unwrap()
    }

    #[test]
    fn a_request_is_read_as_clients_send_it() {
        let text = r#"{"id": "1", "inputs": [{"name": "x", "datatype": "INT16", "shape": [1, 2], "data": [[1, -2]]}]}"#;
        let read = parse(text, &info(DataType::Int16, &[-1, 2], 8)).unwrap();
        assert_eq!((&read[0].shape[..], &read[0].data[..]), (&[1, 2][..], &[1, 0, 254, 255][..]));
        let text = r#"[{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["", "ab"]}]}]"#;
        let read = parse(text, &info(DataType::Bytes, &[-1], 0)).unwrap();
        assert_eq!(&read[0].data[..], b"\0\0\0\0\x02\0\0\0ab");
    }

    #[test]
    fn what_the_model_cannot_take_is_said() {
        let check = |text: &str, expected: &str| {
            let why = parse(text, &info(DataType::Uint8, &[-1, 2], 8)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        let input = |rest: &str| format!(r#"{{"inputs": [{{"name": "x", {rest}}}]}}"#);
        check("{", "it is no request");
        check("[]", "it is no request");
        check(r#"{"inputs": []}"#, "input `x` is missing");
        check(&input(r#""datatype": "FP32", "shape": [1, 2], "data": [1, 2]"#), "is FP32, and UINT8 is expected");
        check(&input(r#""datatype": "UINT8", "shape": [1, 3], "data": [1, 2, 3]"#), "has shape [1, 3]");
        check(&input(r#""datatype": "UINT8", "shape": [2, 2], "data": [1, 2, 3, 4]"#), "one row is expected");
        check(&input(r#""datatype": "UINT8", "shape": [1, 2], "data": [1, 256]"#), "is not all UINT8");
        check(&input(r#""datatype": "UINT8", "shape": [1, 2], "data": [1]"#), "has 1 elements");
        check(
            &input(r#""datatype": "UINT8", "shape": [1, 2], "data": [1, 2]"#).replace("\"x\"", "\"z\""),
            "an input `z`",
        );
    }
}
