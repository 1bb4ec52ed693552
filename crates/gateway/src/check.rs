//! Whether a request fits the model it asks for. What passes here cannot make a worker stumble over its shape.

use crate::ServeError;
use config::{DataType, TensorSpec};
use rpc::{ModelInfo, Tensor, tensor};

/// Checks a request's inputs against what the model declares and puts them in the model's order. Returns the inputs
/// and how many rows of the batch the request takes.
pub fn inputs(model: &str, info: &ModelInfo, mut given: Vec<Tensor>) -> Result<(Vec<Tensor>, usize), ServeError> {
    let refuse = |problem: String| Err(ServeError::Invalid(format!("model `{model}`: {problem}")));
    if let Some(unknown) = given.iter().find(|tensor| info.inputs.iter().all(|spec| *spec.name != *tensor.name)) {
        return refuse(format!("unexpected input `{}`; it takes {}", unknown.name, names(&info.inputs)));
    }
    let mut rows = None;
    for (place, spec) in info.inputs.iter().enumerate() {
        let Some(found) = given[place..].iter().position(|tensor| *tensor.name == *spec.name) else {
            return refuse(format!("input `{}` is missing; it takes {}", spec.name, names(&info.inputs)));
        };
        given.swap(place, place + found);
        let tensor = &given[place];
        if tensor.datatype != spec.datatype {
            let (is, wanted) = (tensor.datatype.name(), spec.datatype.name());
            return refuse(format!("input `{}` is {is}, and {wanted} is expected", spec.name));
        }
        if let Err(problem) = fits(tensor, spec, info.max_batch) {
            return refuse(problem);
        }
        if info.max_batch > 0 {
            let own = tensor.shape[0];
            if rows.is_some_and(|rows| rows != own) {
                return refuse(format!("input `{}` holds {own} rows and others {}", spec.name, rows.unwrap_or(0)));
            }
            rows = Some(own);
        }
    }
    if given.len() > info.inputs.len() {
        return refuse(format!("input `{}` is given twice", given[info.inputs.len()].name));
    }
    Ok((given, rows.unwrap_or(1)))
}

fn names(specs: &[TensorSpec]) -> String {
    specs.iter().map(|spec| format!("`{}`", spec.name)).collect::<Vec<_>>().join(", ")
}

fn fits(tensor: &Tensor, spec: &TensorSpec, max_batch: usize) -> Result<(), String> {
    let same = tensor.shape.len() == spec.shape.len();
    let allowed = |(is, wanted): (&usize, &i64)| *wanted < 0 || *is as i64 == *wanted;
    if !same || !tensor.shape.iter().zip(&spec.shape).all(allowed) {
        let wanted = &spec.shape;
        return Err(format!("input `{}` has shape {:?}, and {wanted:?} is expected", spec.name, tensor.shape));
    }
    if max_batch > 0 && !(1..=max_batch).contains(&tensor.shape[0]) {
        return Err(format!("input `{}` holds {} rows; 1 to {max_batch} are allowed", spec.name, tensor.shape[0]));
    }
    holds(tensor)
}

/// Whether a tensor's bytes are as many as its shape says.
pub fn holds(tensor: &Tensor) -> Result<(), String> {
    let Tensor { name, datatype, shape, data } = tensor;
    let Some(elements) = tensor::elements(shape) else {
        return Err(format!("input `{name}` has shape {shape:?}, which is more than can be counted"));
    };
    match datatype.size() {
        Some(size) if elements.checked_mul(size) == Some(data.len()) => Ok(()),
        Some(size) => {
            let wanted = elements.saturating_mul(size);
            Err(format!("input `{name}` holds {} bytes; {datatype:?}{shape:?} takes {wanted}", data.len()))
        }
        None => match strings(data) {
            Some(count) if count == elements => Ok(()),
            Some(count) => Err(format!("input `{name}` holds {count} strings; its shape {shape:?} takes {elements}")),
            None => Err(format!("input `{name}` is cut off: a string is longer than what is left")),
        },
    }
    .map_err(|problem| problem.replace(&format!("{datatype:?}["), &format!("{}[", DataType::name(*datatype))))
}

/// How many strings a run of length-prefixed ones holds; `None` when the last is cut off.
fn strings(mut data: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !data.is_empty() {
        let (length, rest) = data.split_first_chunk::<4>()?;
        data = rest.get(u32::from_le_bytes(*length) as usize..)?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn info(max_batch: usize) -> ModelInfo {
        let spec =
            |name: &str, datatype, shape: &[i64]| TensorSpec { name: name.into(), datatype, shape: shape.into() };
        let inputs = vec![spec("a", DataType::Fp32, &[-1, 2]), spec("b", DataType::Bytes, &[-1, 1])];
        ModelInfo { inputs, outputs: vec![], max_batch, runs_on: None }
    }

    fn tensor(name: &str, datatype: DataType, shape: &[usize], data: &'static [u8]) -> Tensor {
        Tensor { name: name.into(), datatype, shape: shape.to_vec(), data: Bytes::from_static(data) }
    }

    fn check(given: Vec<Tensor>) -> Result<usize, String> {
        inputs("m", &info(4), given).map(|(_, rows)| rows).map_err(|error| error.to_string())
    }

    #[test]
    fn inputs_come_in_any_order_and_leave_in_the_models() {
        let a = tensor("a", DataType::Fp32, &[1, 2], &[0; 8]);
        let b = tensor("b", DataType::Bytes, &[1, 1], b"\x02\0\0\0hi");
        let (ordered, rows) = inputs("m", &info(4), vec![b.clone(), a.clone()]).unwrap();
        assert_eq!((ordered, rows), (vec![a, b], 1));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let a = || tensor("a", DataType::Fp32, &[1, 2], &[0; 8]);
        let b = || tensor("b", DataType::Bytes, &[1, 1], b"\x02\0\0\0hi");
        let refused = |given: Vec<Tensor>, expected: &str| {
            let message = check(given).unwrap_err();
            assert_eq!(message, format!("model `m`: {expected}"));
        };
        refused(vec![a()], "input `b` is missing; it takes `a`, `b`");
        refused(vec![a(), b(), a()], "input `a` is given twice");
        refused(vec![a(), b(), tensor("c", DataType::Fp32, &[1], &[0; 4])], "unexpected input `c`; it takes `a`, `b`");
        refused(vec![tensor("a", DataType::Int8, &[1, 2], &[0; 2]), b()], "input `a` is INT8, and FP32 is expected");
        refused(
            vec![tensor("a", DataType::Fp32, &[1, 3], &[0; 12]), b()],
            "input `a` has shape [1, 3], and [-1, 2] is expected",
        );
        refused(
            vec![tensor("a", DataType::Fp32, &[1, 2], &[0; 7]), b()],
            "input `a` holds 7 bytes; FP32[1, 2] takes 8",
        );
        refused(vec![tensor("a", DataType::Fp32, &[0, 2], &[]), b()], "input `a` holds 0 rows; 1 to 4 are allowed");
        refused(vec![tensor("a", DataType::Fp32, &[2, 2], &[0; 16]), b()], "input `b` holds 1 rows and others 2");
        refused(
            vec![a(), tensor("b", DataType::Bytes, &[1, 1], b"\x09\0\0\0hi")],
            "input `b` is cut off: a string is longer than what is left",
        );
        let vast = tensor("a", DataType::Fp32, &[1, usize::MAX], &[]);
        assert!(holds(&Tensor { shape: vec![usize::MAX, 2], ..vast }).unwrap_err().contains("can be counted"));
    }
}
