//! From an answer to a message.

use super::decode::{Form, Wanted};
use crate::shared_memory::Regions;
use crate::{Response, classification};
use bytes::Bytes;
use rpc::Tensor;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_response::InferOutputTensor;
use rpc::inference::{InferParameter, ModelInferResponse};

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
            Form::Raw => (declared(&tensor), tensor.data),
            Form::Classes(count) => {
                let classes = classification::classify(&tensor, batched, *count)?;
                (declared(&classes), classes.data)
            }
            Form::Memory(place) => {
                let problem = |problem: String| format!("output `{}`: {problem}", tensor.name);
                regions.write(&place.region, place.offset, place.bytes, &tensor.data).map_err(problem)?;
                (declared(&tensor), Bytes::new())
            }
        };
        message.outputs.push(output);
        message.raw_output_contents.push(raw);
    }
    Ok(message)
}

/// A parameter that is true or false.
pub(super) fn flag(value: bool) -> InferParameter {
    InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(value)) }
}

fn declared(tensor: &Tensor) -> InferOutputTensor {
    InferOutputTensor {
        name: tensor.name.to_string(),
        datatype: tensor.datatype.name().into(),
        shape: tensor.shape.iter().map(|dimension| *dimension as i64).collect(),
        ..Default::default()
    }
}
