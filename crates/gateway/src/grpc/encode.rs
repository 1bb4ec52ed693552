//! From an answer to a message.

use super::decode::{Form, Place, Wanted};
use crate::shared_memory::Regions;
use crate::{Response, classification};
use bytes::Bytes;
use rpc::Tensor;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_response::InferOutputTensor;
use rpc::inference::{InferParameter, ModelInferResponse};
use std::collections::BTreeMap;

/// The message for an answer. Outputs are raw, or where the client wants them.
pub(super) fn answer(
    response: Response,
    id: String,
    wanted: &[Wanted],
    batched: bool,
    regions: &Regions,
) -> Result<ModelInferResponse, String> {
    let mut message = ModelInferResponse {
        model_name: response.model.name.clone(),
        model_version: response.model.version.to_string(),
        id,
        ..Default::default()
    };
    for tensor in response.outputs {
        let form = wanted.iter().find(|wanted| *wanted.name == *tensor.name).map_or(&Form::Raw, |wanted| &wanted.form);
        let (output, raw) = match form {
            Form::Raw => (declared(&tensor, BTreeMap::new()), tensor.data),
            Form::Classes(count) => {
                let classes = classification::classify(&tensor, batched, *count)?;
                (declared(&classes, BTreeMap::new()), classes.data)
            }
            Form::Memory(place) => (into_memory(&tensor, place, regions)?, Bytes::new()),
        };
        message.outputs.push(output);
        message.raw_output_contents.push(raw);
    }
    Ok(message)
}

/// A parameter that is true or false.
pub(super) fn flag(value: bool) -> InferParameter {
    parameter(ParameterChoice::BoolParam(value))
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

fn declared(tensor: &Tensor, parameters: BTreeMap<String, InferParameter>) -> InferOutputTensor {
    InferOutputTensor {
        name: tensor.name.to_string(),
        datatype: tensor.datatype.name().into(),
        shape: tensor.shape.iter().map(|dimension| *dimension as i64).collect(),
        parameters,
        contents: None,
    }
}

/// Puts an output into shared memory and says where.
fn into_memory(tensor: &Tensor, place: &Place, regions: &Regions) -> Result<InferOutputTensor, String> {
    let problem = |problem: String| format!("output `{}`: {problem}", tensor.name);
    regions.write(&place.region, place.offset, place.bytes, &tensor.data).map_err(problem)?;
    let number = |value: u64| parameter(ParameterChoice::Int64Param(value.try_into().unwrap_or(i64::MAX)));
    let parameters = [
        ("shared_memory_region", parameter(ParameterChoice::StringParam(place.region.clone()))),
        ("shared_memory_offset", number(place.offset)),
        ("shared_memory_byte_size", number(tensor.data.len() as u64)),
    ];
    Ok(declared(tensor, parameters.map(|(name, value)| (name.to_string(), value)).into()))
}
