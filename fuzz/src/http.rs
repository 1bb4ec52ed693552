//! What must hold of any bytes that come in as the body of an HTTP request: they are read or refused with one line of
//! text, what is read is JSON to others as well, and tensors that are read and written again stay what they were. A
//! broken rule is a panic.
//!
//! The fuzz targets and the ordinary test `crates/gateway/tests/http_fuzz.rs` share this file.

use bytes::Bytes;
use config::DataType;
use gateway::check;
use gateway::http::{Data, Encoding, InferRequest, decode, encode, unpack};
use rpc::Tensor;
use serde::de::IgnoredAny;

/// Larger bodies are refused.
const LIMIT: usize = 1 << 16;

/// An inference request. The first two bytes say how much of the rest is JSON; all of it when both are 255.
pub fn infer(data: &[u8]) {
    let Some((length, body)) = data.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(*length));
    check(&Bytes::copy_from_slice(body), (length != 0xffff).then_some(length));
}

/// A packed request. The first byte says how: even for gzip, odd for deflate.
pub fn packed(data: &[u8]) {
    let Some((way, body)) = data.split_first() else { return };
    let encoding = if way % 2 == 0 { Encoding::Gzip } else { Encoding::Deflate };
    let mut taken = 0;
    let unpacked = unpack(encoding, body, LIMIT, |more| {
        taken += more;
        true
    });
    assert!(taken <= 2 * LIMIT, "{taken} bytes taken");
    if let Ok(body) = unpacked {
        assert!(body.len() <= LIMIT);
        check(&body, None);
    }
}

fn check(body: &Bytes, json_length: Option<usize>) {
    let request = match decode(body, json_length) {
        Ok(request) => request,
        Err(problem) => {
            assert!(!problem.is_empty() && problem.len() < 1000 + body.len(), "{problem}");
            return;
        }
    };
    let json = &body[..json_length.unwrap_or(body.len())];
    serde_json::from_slice::<IgnoredAny>(json).expect("what is read is JSON");
    let mut binary = 0;
    let mut tensors = Vec::new();
    for input in request.inputs {
        let Data::Inline(data) = input.data else { continue };
        let tensor = Tensor { name: input.name, datatype: input.datatype, shape: input.shape, data };
        binary += tensor.data.len();
        let is_again = tensors.iter().any(|earlier: &Tensor| earlier.name == tensor.name);
        if check::holds(&tensor).is_ok() && !is_again {
            tensors.push(tensor);
        }
    }
    assert!(binary <= 8 * body.len(), "{binary} bytes of tensors in {} of body", body.len());
    for binary_output in [true, false] {
        read_back(&tensors, InferRequest { binary_output, id: request.id.clone(), ..InferRequest::default() });
    }
}

/// Writes tensors as an answer and reads them as a request.
fn read_back(tensors: &[Tensor], request: InferRequest) {
    let encoded = match encode(&request, "m", 1, tensors) {
        Ok(encoded) => encoded,
        Err(problem) => {
            let has_strings = tensors.iter().any(|tensor| tensor.datatype == DataType::Bytes);
            assert!(has_strings && !request.binary_output, "{problem}");
            return;
        }
    };
    let whole = encoded.parts.concat();
    let split = encoded.json_length.unwrap_or(whole.len());
    let answer = std::str::from_utf8(&whole[..split]).expect("an answer is UTF-8");
    let mark = "\",\"outputs\":[";
    let at = answer.rfind(&format!("\"model_version\":\"1{mark}")).expect("an answer has outputs");
    let (before, after) = answer[at..].split_once(mark).expect("an answer has outputs");
    let again = format!("{}{before}\",\"inputs\":[{after}", &answer[..at]);
    let body = Bytes::from([again.as_bytes(), &whole[split..]].concat());
    match decode(&body, Some(again.len())) {
        Ok(again) => {
            assert_eq!(again.id, request.id);
            assert_eq!(again.inputs.len(), tensors.len());
            for (input, tensor) in again.inputs.iter().zip(tensors) {
                assert_eq!((&input.name, input.datatype, &input.shape), (&tensor.name, tensor.datatype, &tensor.shape));
                assert_eq!(input.data, Data::Inline(canonical(tensor, request.binary_output)));
            }
        }
        Err(problem) => {
            let is_strange = |word: &str| again.contains(word);
            assert!(["NaN", "Infinity"].into_iter().any(is_strange), "{problem}: {again}");
        }
    }
}

/// What JSON can tell of a tensor: any byte but 0 is true.
fn canonical(tensor: &Tensor, binary: bool) -> Bytes {
    match tensor.datatype {
        DataType::Bool if !binary => tensor.data.iter().map(|byte| u8::from(*byte != 0)).collect(),
        _ => tensor.data.clone(),
    }
}
