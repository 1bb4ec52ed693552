//! From a message to a request.

use super::contents;
use crate::shared_memory::Regions;
use bytes::Bytes;
use config::DataType;
use policy::Span;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use rpc::inference::{InferParameter, ModelInferRequest};
use rpc::{Tensor, tensor};
use std::collections::{BTreeMap, BTreeSet};

type Parameters = BTreeMap<String, InferParameter>;

/// What a message asks for, besides its tensors.
#[derive(Debug)]
pub(super) struct Asked {
    /// How long it may take, where it says so.
    pub(super) timeout: Option<Span>,
    /// From 0, whom overload hits last, to 9.
    pub(super) priority: u8,
    /// The outputs it names.
    pub(super) outputs: Vec<Wanted>,
}

/// An output and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its name.
    pub(super) name: String,
    /// Where it goes.
    pub(super) form: Form,
}

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Into the answer.
    Raw,
    /// Into the answer, as so many best classes.
    Classes(usize),
    /// Into shared memory.
    Memory(Place),
}

/// A place in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The region.
    pub(super) region: String,
    /// Where in it.
    pub(super) offset: u64,
    /// How many bytes.
    pub(super) bytes: u64,
}

/// What a message asks for.
pub(super) fn asked(request: &ModelInferRequest) -> Result<Asked, String> {
    let timeout = match whole(&request.parameters, "timeout")? {
        None | Some(0) => None,
        Some(micros) => Some(Span::from_nanos(micros.saturating_mul(1_000))),
    };
    let priority = match whole(&request.parameters, "priority")? {
        None => 0,
        Some(priority @ 0..=9) => priority as u8,
        Some(other) => return Err(format!("parameter `priority` is {other}; 0 to 9 are allowed")),
    };
    let outputs = request.outputs.iter().map(wanted).collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    if let Some(twice) = outputs.iter().find(|output| !names.insert(&output.name)) {
        return Err(format!("output `{}` is asked for twice", twice.name));
    }
    Ok(Asked { timeout, priority, outputs })
}

/// Whether outputs can go where they are wanted, which is better said before they are computed than after.
pub(super) fn places(outputs: &[Wanted], regions: &Regions) -> Result<(), String> {
    for Wanted { name, form } in outputs {
        if let Form::Memory(Place { region, offset, bytes }) = form {
            let problem = |problem: String| format!("output `{name}`: {problem}");
            regions.write(region, *offset, *bytes, &[]).map_err(problem)?;
        }
    }
    Ok(())
}

fn wanted(output: &InferRequestedOutputTensor) -> Result<Wanted, String> {
    let name = output.name.clone();
    let problem = |problem: String| format!("output `{name}`: {problem}");
    let classes = whole(&output.parameters, "classification").map_err(problem)?.filter(|count| *count > 0);
    let form = match (place(&output.parameters).map_err(problem)?, classes) {
        (None, None) => Form::Raw,
        (Some(place), None) => Form::Memory(place),
        (None, Some(count)) => Form::Classes(usize::try_from(count).unwrap_or(usize::MAX)),
        (Some(_), Some(_)) => return Err(problem("classes cannot be put into shared memory".into())),
    };
    Ok(Wanted { name: output.name.clone(), form })
}

/// The tensors of a message. Takes them out of it, so that nothing is copied.
pub(super) fn inputs(request: &mut ModelInferRequest, regions: &Regions) -> Result<Vec<Tensor>, String> {
    let typed = request.inputs.iter().find(|input| input.contents.as_ref().is_some_and(|it| contents::count(it) > 0));
    if let (Some(typed), false) = (typed, request.raw_input_contents.is_empty()) {
        return Err(format!("input `{}` has `contents`, and `raw_input_contents` are given as well", typed.name));
    }
    let is_raw = !request.raw_input_contents.is_empty();
    let given = request.raw_input_contents.len();
    let mut raw = std::mem::take(&mut request.raw_input_contents).into_iter();
    let mut tensors = Vec::with_capacity(request.inputs.len());
    for input in &request.inputs {
        let (datatype, shape) = declared(input)?;
        let problem = |problem: String| format!("input `{}`: {problem}", input.name);
        let data = match (place(&input.parameters).map_err(problem)?, is_raw) {
            (Some(place), _) => from_memory(input, datatype, &shape, &place, regions)?,
            (None, true) => raw.next().ok_or_else(|| {
                format!("`raw_input_contents` hold {given} tensors, and none is left for input `{}`", input.name)
            })?,
            (None, false) => match &input.contents {
                Some(contents) => contents::to_raw(&input.name, datatype, contents)?,
                None => Bytes::new(),
            },
        };
        tensors.push(Tensor { name: input.name.as_str().into(), datatype, shape, data });
    }
    match raw.len() {
        0 => Ok(tensors),
        left => Err(format!("`raw_input_contents` hold {given} tensors, {left} more than there are inputs for")),
    }
}

fn declared(input: &InferInputTensor) -> Result<(DataType, Vec<usize>), String> {
    let InferInputTensor { name, datatype, shape, .. } = input;
    let Some(datatype) = DataType::parse(datatype) else {
        let known = DataType::ALL.map(DataType::name).join(", ");
        return Err(format!("input `{name}` has data type `{datatype}`; there are {known}"));
    };
    let whole = shape.iter().map(|dimension| usize::try_from(*dimension)).collect::<Result<Vec<_>, _>>();
    let shape = whole.map_err(|_| format!("input `{name}` has shape {shape:?}; no dimension can be negative"))?;
    Ok((datatype, shape))
}

/// An input's bytes from shared memory. Their number is compared with the shape before they are copied.
fn from_memory(
    input: &InferInputTensor,
    datatype: DataType,
    shape: &[usize],
    place: &Place,
    regions: &Regions,
) -> Result<Bytes, String> {
    let name = &input.name;
    if input.contents.as_ref().is_some_and(|contents| contents::count(contents) > 0) {
        return Err(format!("input `{name}` has `contents` and is in shared memory as well"));
    }
    if let Some(size) = datatype.size() {
        let takes = tensor::elements(shape).and_then(|elements| elements.checked_mul(size));
        if takes.and_then(|takes| u64::try_from(takes).ok()) != Some(place.bytes) {
            let word = datatype.name();
            return Err(format!(
                "input `{name}` has {} bytes of shared memory, and {word}{shape:?} takes others",
                place.bytes
            ));
        }
    }
    let problem = |problem: String| format!("input `{name}`: {problem}");
    regions.read(&place.region, place.offset, place.bytes).map_err(problem)
}

/// The place in shared memory that a tensor's parameters name.
fn place(parameters: &Parameters) -> Result<Option<Place>, String> {
    let offset = whole(parameters, "shared_memory_offset")?;
    let bytes = whole(parameters, "shared_memory_byte_size")?;
    match (choice(parameters, "shared_memory_region"), bytes) {
        (None, None) if offset.is_none() => Ok(None),
        (Some(ParameterChoice::StringParam(region)), Some(bytes)) => {
            Ok(Some(Place { region: region.clone(), offset: offset.unwrap_or(0), bytes }))
        }
        (Some(ParameterChoice::StringParam(_)), None) => Err("parameter `shared_memory_byte_size` is missing".into()),
        (Some(_), _) => Err("parameter `shared_memory_region` is not a text".into()),
        (None, _) => Err("parameter `shared_memory_region` is missing".into()),
    }
}

/// A parameter that is a number from 0 on.
fn whole(parameters: &Parameters, name: &str) -> Result<Option<u64>, String> {
    match choice(parameters, name) {
        None => Ok(None),
        Some(ParameterChoice::Int64Param(value)) => match u64::try_from(*value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(format!("parameter `{name}` is {value}, and cannot be negative")),
        },
        Some(ParameterChoice::Uint64Param(value)) => Ok(Some(*value)),
        Some(_) => Err(format!("parameter `{name}` is not a whole number")),
    }
}

/// A parameter that is true or false; false where it is not given.
pub(super) fn flag(parameters: &Parameters, name: &str) -> Result<bool, String> {
    match choice(parameters, name) {
        None => Ok(false),
        Some(ParameterChoice::BoolParam(value)) => Ok(*value),
        Some(_) => Err(format!("parameter `{name}` is neither true nor false")),
    }
}

fn choice<'a>(parameters: &'a Parameters, name: &str) -> Option<&'a ParameterChoice> {
    parameters.get(name)?.parameter_choice.as_ref()
}
