//! The tensors that requests carry, made before anything is sent.

use crate::{Config, Inputs};
use bytes::Bytes;
use config::{DataType, TensorSpec};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rpc::Tensor;
use serde::Deserialize;
use serde_json::Value;

/// Different random requests of a model, so that what a server or processor keeps of one is of no use for the next.
const VARIANTS: usize = 16;
/// All of them together are smaller than this, or there are fewer.
const VARIANT_BYTES_MAX: usize = 64 << 20;
/// A request larger than this is a mistake.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// A model's requests, to be sent in turn. `file` is the text of the file that was named, if one was. `Err`: why the
/// model cannot be asked this way and what to do.
pub(crate) fn requests(
    specs: &[TensorSpec],
    config: &Config,
    model: usize,
    file: Option<&str>,
) -> Result<Vec<Vec<Tensor>>, String> {
    if let Some(text) = file {
        return from_file(text, specs);
    }
    let shapes: Vec<Vec<usize>> = specs.iter().map(|spec| shape(spec, config)).collect::<Result<_, _>>()?;
    let of_input = |(spec, shape): (&TensorSpec, &Vec<usize>)| {
        let size = spec.datatype.size().unwrap_or(4 + TEXT_LETTERS);
        rpc::tensor::elements(shape).and_then(|elements| elements.checked_mul(size))
    };
    let bytes = specs.iter().zip(&shapes).map(of_input).try_fold(0usize, |sum, bytes| sum.checked_add(bytes?));
    let bytes = bytes.filter(|bytes| *bytes <= REQUEST_BYTES_MAX);
    let bytes =
        bytes.ok_or_else(|| format!("its inputs of {shapes:?} come to more than 1 GiB: use a smaller --shape"))?;
    let variants = match config.inputs {
        Inputs::Random => (VARIANT_BYTES_MAX / bytes.max(1)).clamp(1, VARIANTS),
        Inputs::Zeros | Inputs::File(_) => 1,
    };
    let variant = |number: usize| {
        // A stream for each model and request, so that one more model changes nothing for the others.
        let key = (model * VARIANTS + number) as u64;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed ^ (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut tensor = |(spec, shape): (&TensorSpec, &Vec<usize>)| {
            let elements = rpc::tensor::elements(shape).expect("the product was checked");
            let data = match config.inputs {
                Inputs::Random => random(spec.datatype, elements, &mut rng),
                Inputs::Zeros | Inputs::File(_) => vec![0; elements * spec.datatype.size().unwrap_or(4)],
            };
            Tensor {
                name: spec.name.as_str().into(),
                datatype: spec.datatype,
                shape: shape.clone(),
                data: Bytes::from(data),
            }
        };
        specs.iter().zip(&shapes).map(&mut tensor).collect()
    };
    Ok((0..variants).map(variant).collect())
}

/// An input's shape: as was asked for, or else the declared one with the batch in front and 1 where any will do.
fn shape(spec: &TensorSpec, config: &Config) -> Result<Vec<usize>, String> {
    let declared = &spec.shape;
    let name = &spec.name;
    if let Some(asked) = config.shapes.iter().find(|shape| shape.input == *name) {
        let fits = |(declared, asked): (&i64, &usize)| *declared < 0 || *declared == *asked as i64;
        let same_rank = declared.len() == asked.dimensions.len();
        if !same_rank || !declared.iter().zip(&asked.dimensions).all(fits) {
            return Err(format!(
                "--shape gives `{name}` {:?}, which is not of the declared shape {declared:?}",
                asked.dimensions
            ));
        }
        return Ok(asked.dimensions.clone());
    }
    if config.batch > 1 && declared.first().is_none_or(|first| *first >= 0) {
        return Err(format!("its input `{name}` of shape {declared:?} has no batch dimension: leave out --batch"));
    }
    let dimension = |(place, declared): (usize, &i64)| match usize::try_from(*declared) {
        Ok(dimension) => dimension,
        Err(_) if place == 0 => config.batch,
        Err(_) => 1,
    };
    Ok(declared.iter().enumerate().map(dimension).collect())
}

/// Letters of a random text.
const TEXT_LETTERS: usize = 8;

fn random(datatype: DataType, elements: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..elements {
        // Small integers are valid indices of nearly any vocabulary.
        let integer = rng.random_range(0..128u8);
        // So few digits are the same in JSON and in every type but the shortest.
        let unit = f64::from(rng.random_range(0..4096u16)) / 4096.0;
        match datatype {
            DataType::Bool => data.push(integer & 1),
            DataType::Fp16 => data.extend(half::f16::from_f64(unit).to_le_bytes()),
            DataType::Bf16 => data.extend(half::bf16::from_f64(unit).to_le_bytes()),
            DataType::Fp32 => data.extend((unit as f32).to_le_bytes()),
            DataType::Fp64 => data.extend(unit.to_le_bytes()),
            DataType::Bytes => {
                data.extend((TEXT_LETTERS as u32).to_le_bytes());
                data.extend((0..TEXT_LETTERS).map(|_| rng.random_range(b'a'..=b'z')));
            }
            integers => {
                let size = integers.size().expect("only texts differ in size");
                data.extend(u64::from(integer).to_le_bytes().iter().take(size));
            }
        }
    }
    data
}

/// Requests as the protocol's JSON has them: one, or a list.
fn from_file(text: &str, specs: &[TensorSpec]) -> Result<Vec<Vec<Tensor>>, String> {
    #[derive(Deserialize)]
    struct Request {
        inputs: Vec<Input>,
    }
    #[derive(Deserialize)]
    struct Input {
        name: String,
        datatype: Option<String>,
        shape: Vec<usize>,
        data: Value,
    }
    let told = |error: serde_json::Error| format!("the file of --inputs is no request of the protocol: {error}");
    let requests: Vec<Request> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(told)?,
        false => vec![serde_json::from_str(text).map_err(told)?],
    };
    if requests.is_empty() {
        return Err("the file of --inputs has no requests".into());
    }
    let tensor = |input: Input| {
        let problem = |problem: &str| format!("input `{}` in the file of --inputs: {problem}", input.name);
        let spec = specs.iter().find(|spec| spec.name == input.name);
        let spec = spec.ok_or_else(|| {
            let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            problem(&format!("the model has none of that name; it has: {}", names.join(", ")))
        })?;
        let datatype = match &input.datatype {
            Some(name) => DataType::parse(name).ok_or_else(|| problem(&format!("there is no type {name}")))?,
            None => spec.datatype,
        };
        let (mut data, mut elements) = (Vec::new(), 0);
        flatten(&input.data, datatype, &mut data, &mut elements).map_err(|told| problem(&told))?;
        if rpc::tensor::elements(&input.shape) != Some(elements) {
            return Err(problem(&format!("its shape is {:?} and it has {elements} elements", input.shape)));
        }
        Ok(Tensor { name: input.name.as_str().into(), datatype, shape: input.shape, data: Bytes::from(data) })
    };
    requests.into_iter().map(|request| request.inputs.into_iter().map(tensor).collect()).collect()
}

/// Appends the elements of a list of lists, in order.
fn flatten(value: &Value, datatype: DataType, data: &mut Vec<u8>, elements: &mut usize) -> Result<(), String> {
    if let Value::Array(values) = value {
        return values.iter().try_for_each(|value| flatten(value, datatype, data, elements));
    }
    *elements += 1;
    let float = value.as_f64();
    let integer = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let within = |least: i128, most: i128| integer.filter(|integer| (least..=most).contains(integer));
    let append = |integer: i128, size: usize, data: &mut Vec<u8>| data.extend(integer.to_le_bytes().iter().take(size));
    let done = match datatype {
        DataType::Bool => {
            let truth = value.as_bool().map(i128::from).or_else(|| within(0, 1));
            truth.map(|truth| append(truth, 1, data))
        }
        DataType::Uint8 => within(0, u8::MAX.into()).map(|integer| append(integer, 1, data)),
        DataType::Uint16 => within(0, u16::MAX.into()).map(|integer| append(integer, 2, data)),
        DataType::Uint32 => within(0, u32::MAX.into()).map(|integer| append(integer, 4, data)),
        DataType::Uint64 => within(0, u64::MAX.into()).map(|integer| append(integer, 8, data)),
        DataType::Int8 => within(i8::MIN.into(), i8::MAX.into()).map(|integer| append(integer, 1, data)),
        DataType::Int16 => within(i16::MIN.into(), i16::MAX.into()).map(|integer| append(integer, 2, data)),
        DataType::Int32 => within(i32::MIN.into(), i32::MAX.into()).map(|integer| append(integer, 4, data)),
        DataType::Int64 => within(i64::MIN.into(), i64::MAX.into()).map(|integer| append(integer, 8, data)),
        DataType::Fp16 => float.map(|float| data.extend(half::f16::from_f64(float).to_le_bytes())),
        DataType::Bf16 => float.map(|float| data.extend(half::bf16::from_f64(float).to_le_bytes())),
        DataType::Fp32 => float.map(|float| data.extend((float as f32).to_le_bytes())),
        DataType::Fp64 => float.map(|float| data.extend(float.to_le_bytes())),
        DataType::Bytes => value.as_str().map(|text| {
            data.extend((text.len() as u32).to_le_bytes());
            data.extend(text.bytes());
        }),
    };
    done.ok_or_else(|| format!("{value} is not of type {}", datatype.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, json};
    use std::path::PathBuf;

    fn config() -> Config {
        crate::config::tests::config("http://127.0.0.1:1".parse().unwrap(), &["model"])
    }

    fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.into(), datatype, shape: shape.into() }
    }

    fn written(specs: &[TensorSpec], config: &Config, file: Option<&str>) -> Result<Vec<String>, String> {
        let requests = requests(specs, config, 0, file)?;
        Ok(requests.iter().map(|request| String::from_utf8(json::request(request, None)).unwrap()).collect())
    }

    #[test]
    fn open_dimensions_are_the_batch_and_then_one() {
        let specs = [spec("a", DataType::Fp32, &[-1, -1, 2]), spec("b", DataType::Bytes, &[-1])];
        let config = Config { batch: 2, ..config() };
        assert_eq!(
            written(&specs, &config, None).unwrap(),
            [
                r#"{"inputs":[{"data":[0.0,0.0,0.0,0.0],"datatype":"FP32","name":"a","shape":[2,1,2]},{"data":["",""],"datatype":"BYTES","name":"b","shape":[2]}]}"#
            ]
        );
    }

    #[test]
    fn shapes_that_do_not_fit_are_told() {
        let check = |declared: &[i64], batch: usize, shape: Option<&str>, expected: &str| {
            let shapes: Vec<Shape> = shape.iter().map(|shape| shape.parse().unwrap()).collect();
            let told = written(&[spec("a", DataType::Fp32, declared)], &Config { batch, shapes, ..config() }, None);
            assert_eq!(told.unwrap_err(), expected);
        };
        check(&[4], 2, None, "its input `a` of shape [4] has no batch dimension: leave out --batch");
        check(&[-1, 4], 1, Some("a:1x5"), "--shape gives `a` [1, 5], which is not of the declared shape [-1, 4]");
        check(&[-1, 4], 1, Some("a:4"), "--shape gives `a` [4], which is not of the declared shape [-1, 4]");
        let huge = "its inputs of [[1, 4294967296, 4294967296]] come to more than 1 GiB: use a smaller --shape";
        check(&[-1, 1 << 32, 1 << 32], 1, None, huge);
    }

    #[test]
    fn random_inputs_come_from_the_seed_and_are_of_every_type() {
        let config = Config { inputs: Inputs::Random, ..config() };
        for datatype in DataType::ALL {
            let specs = [spec("a", datatype, &[-1, 8])];
            let one = requests(&specs, &config, 0, None).unwrap();
            assert_eq!(one, requests(&specs, &config, 0, None).unwrap());
            assert_ne!(one, requests(&specs, &Config { seed: 9, ..config.clone() }, 0, None).unwrap());
            assert_eq!(one.len(), VARIANTS);
            // What is written as JSON reads back as the same bytes.
            let text = String::from_utf8(json::request(&one[0], None)).unwrap();
            assert_eq!(from_file(&text, &specs).unwrap()[0], one[0]);
        }
    }

    #[test]
    fn a_file_holds_requests_of_the_protocol() {
        let config = Config { inputs: Inputs::File(PathBuf::new()), ..config() };
        let specs = [spec("a", DataType::Int8, &[-1, 2])];
        let one = r#"{"inputs": [{"name": "a", "shape": [2, 2], "data": [[1, 2], [3, -4]]}]}"#;
        assert_eq!(
            written(&specs, &config, Some(&format!("[{one}, {one}]"))).unwrap()[1],
            r#"{"inputs":[{"data":[1,2,3,-4],"datatype":"INT8","name":"a","shape":[2,2]}]}"#
        );
        let check = |from: &str, to: &str, expected: &str| {
            assert_eq!(written(&specs, &config, Some(&one.replace(from, to))).unwrap_err(), expected);
        };
        let named = "input `a` in the file of --inputs: ";
        check("[2, 2]", "[3]", &format!("{named}its shape is [3] and it has 4 elements"));
        check("-4", "200", &format!("{named}200 is not of type INT8"));
        check("-4", "null", &format!("{named}null is not of type INT8"));
        check("\"a\"", "\"b\"", "input `b` in the file of --inputs: the model has none of that name; it has: a");
    }
}
