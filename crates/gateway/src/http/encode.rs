//! What a model answered, as it goes over HTTP: JSON, and after it the outputs that were asked for in binary form.

use super::decode::{InferRequest, Output};
use super::elements;
use super::json::write_string;
use bytes::Bytes;
use rpc::Tensor;

/// Binary outputs up to this size are copied behind the JSON, so that the answer is one piece.
const COPIED: usize = 16 * 1024;

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its pieces, to be sent one after another.
    pub parts: Vec<Bytes>,
    /// How much of it is JSON, when that is not all.
    pub json_length: Option<usize>,
}

/// An output, ready to be written.
pub(super) enum Ready<'a> {
    /// Into the answer.
    Here(&'a Tensor),
    /// It is in shared memory already.
    Shared(&'a Tensor),
}

/// Writes an answer. Fails when an output cannot be written as JSON.
pub fn encode(request: &InferRequest, model: &str, version: u32, outputs: &[Tensor]) -> Result<Encoded, String> {
    let ready: Vec<Ready<'_>> = outputs.iter().map(Ready::Here).collect();
    encode_ready(request, model, version, &ready)
}

/// Writes an answer, of which some outputs may be in shared memory.
pub(super) fn encode_ready(
    request: &InferRequest,
    model: &str,
    version: u32,
    outputs: &[Ready<'_>],
) -> Result<Encoded, String> {
    let data: usize = outputs.iter().map(|(Ready::Here(tensor) | Ready::Shared(tensor))| tensor.data.len()).sum();
    let mut out = Vec::with_capacity(256 + data * 3);
    let mut tail: Vec<&Tensor> = Vec::new();
    out.push(b'{');
    if let Some(id) = &request.id {
        out.extend_from_slice(b"\"id\":");
        write_string(id, &mut out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"model_name\":");
    write_string(model, &mut out);
    out.extend_from_slice(b",\"model_version\":\"");
    number(&mut out, version.into());
    out.extend_from_slice(b"\",\"outputs\":[");
    for (place, output) in outputs.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match output {
            Ready::Here(tensor) => {
                head(&mut out, tensor);
                if is_binary(request, &tensor.name) {
                    out.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
                    number(&mut out, tensor.data.len() as u64);
                    out.push(b'}');
                    tail.push(tensor);
                } else {
                    out.extend_from_slice(b",\"data\":");
                    elements::write(tensor.datatype, &tensor.data, &mut out).map_err(|problem| {
                        format!("output `{}`: {problem}; ask for it with `binary_data`", tensor.name)
                    })?;
                }
            }
            // The client knows where it is; parameters without a size make Triton's own client stumble.
            Ready::Shared(tensor) => head(&mut out, tensor),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    if tail.is_empty() {
        return Ok(Encoded { parts: vec![out.into()], json_length: None });
    }
    let json_length = Some(out.len());
    if tail.iter().map(|tensor| tensor.data.len()).sum::<usize>() <= COPIED {
        tail.iter().for_each(|tensor| out.extend_from_slice(&tensor.data));
        return Ok(Encoded { parts: vec![out.into()], json_length });
    }
    let mut parts = vec![Bytes::from(out)];
    parts.extend(tail.into_iter().filter(|tensor| !tensor.data.is_empty()).map(|tensor| tensor.data.clone()));
    Ok(Encoded { parts, json_length })
}

fn head(out: &mut Vec<u8>, tensor: &Tensor) {
    out.extend_from_slice(b"{\"name\":");
    write_string(&tensor.name, out);
    out.extend_from_slice(b",\"datatype\":\"");
    out.extend_from_slice(tensor.datatype.name().as_bytes());
    out.extend_from_slice(b"\",\"shape\":[");
    for (place, dimension) in tensor.shape.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        number(out, *dimension as u64);
    }
    out.push(b']');
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn is_binary(request: &InferRequest, name: &str) -> bool {
    let said = request.outputs.iter().find(|output: &&Output| output.name == name).and_then(|output| output.binary);
    said.unwrap_or(request.binary_output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::DataType;

    fn tensor(name: &str, datatype: DataType, shape: &[usize], data: Vec<u8>) -> Tensor {
        Tensor { name: name.into(), datatype, shape: shape.into(), data: data.into() }
    }

    #[test]
    fn json_and_binary_outputs_share_an_answer() {
        let wanted = |name: &str, binary| Output { name: name.into(), binary, classes: 0, shared: None };
        let request = InferRequest {
            id: Some("a\"b".into()),
            outputs: vec![wanted("x", None), wanted("y", Some(true))],
            ..InferRequest::default()
        };
        let x = tensor("x", DataType::Fp32, &[1, 2], [1f32, 0.5].map(f32::to_le_bytes).concat());
        let y = tensor("y", DataType::Uint8, &[3], vec![1, 2, 3]);
        let encoded = encode(&request, "m", 2, &[x.clone(), y.clone()]).unwrap();
        let json = concat!(
            r#"{"id":"a\"b","model_name":"m","model_version":"2","outputs":["#,
            r#"{"name":"x","datatype":"FP32","shape":[1,2],"data":[1.0,0.5]},"#,
            r#"{"name":"y","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}"#
        );
        assert_eq!(encoded.json_length, Some(json.len()));
        assert_eq!(encoded.parts, [[json.as_bytes(), &[1, 2, 3]].concat()]);
        let ready = [Ready::Shared(&x)];
        let encoded = encode_ready(&InferRequest::default(), "m", 1, &ready).unwrap();
        let json = r#"{"model_name":"m","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[1,2]}]}"#;
        assert_eq!((encoded.parts, encoded.json_length), (vec![Bytes::from(json)], None));
    }

    #[test]
    fn large_binary_outputs_are_not_copied() {
        let request = InferRequest { binary_output: true, ..InferRequest::default() };
        let large = tensor("x", DataType::Uint8, &[100_000], vec![7; 100_000]);
        let encoded = encode(&request, "m", 1, std::slice::from_ref(&large)).unwrap();
        assert_eq!(encoded.parts[1].as_ptr(), large.data.as_ptr());
        assert_eq!(encoded.json_length, Some(encoded.parts[0].len()));
    }
}
