//! Inference requests as they come over HTTP: JSON, and after it the tensors that are not in it.
//!
//! Pure: bytes in, a request or one line of text out. Binary tensors stay where they are in the body. What the model
//! expects is not known here; the core checks that.

use super::elements;
use super::json::Cursor;
use bytes::Bytes;
use config::DataType;
use policy::Span;
use rpc::tensor;
use std::sync::Arc;

/// More dimensions than any tensor has.
const DIMENSIONS_MAX: usize = 32;

/// A request as the protocol puts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferRequest {
    /// What the client calls it; comes back in the answer.
    pub id: Option<String>,
    /// How long it may take; none where it is 0.
    pub timeout: Option<Span>,
    /// From 0 to 9.
    pub priority: u8,
    /// Its tensors.
    pub inputs: Vec<Input>,
    /// What it wants back; everything where this is empty.
    pub outputs: Vec<Output>,
    /// Whether outputs come in binary form where they do not say.
    pub binary_output: bool,
}

/// A tensor of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What the model calls it.
    pub name: Arc<str>,
    /// What its elements are.
    pub datatype: DataType,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Where its elements are.
    pub data: Data,
}

/// Where the elements of an input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Here.
    Inline(Bytes),
    /// In memory that was registered.
    Shared(Place),
}

/// A part of a registered region of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region's name.
    pub region: String,
    /// Where it begins there.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// An output that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What the model calls it.
    pub name: String,
    /// Whether it comes in binary form, where that is said.
    pub binary: Option<bool>,
    /// How many of the largest values are asked for, with their places, instead of all; 0 for all.
    pub classes: usize,
    /// Where it goes, when it does not go into the answer.
    pub shared: Option<Place>,
}

/// Reads the body of a request. `json_length` is what `Inference-Header-Content-Length` says: how much of the body is
/// JSON; all of it where there is no such header.
pub fn decode(body: &Bytes, json_length: Option<usize>) -> Result<InferRequest, String> {
    let json_length = json_length.unwrap_or(body.len());
    let Some(json) = body.get(..json_length) else {
        let length = body.len();
        return Err(format!("Inference-Header-Content-Length is {json_length}, and the body holds {length} bytes"));
    };
    let json = std::str::from_utf8(json).map_err(|error| format!("the JSON is not UTF-8: {error}"))?;
    let mut request = InferRequest::default();
    let mut drafts: Option<Vec<Draft>> = None;
    let mut cursor = Cursor::new(json);
    cursor.object(|cursor, key| match key {
        "id" => {
            request.id = Some(cursor.string().map_err(|problem| format!("`id`: {problem}"))?.into_owned());
            Ok(())
        }
        "inputs" if drafts.is_some() => Err("`inputs` is given twice".into()),
        "inputs" => {
            let mut read = Vec::with_capacity(1);
            cursor.array(|cursor| {
                let number = read.len() + 1;
                read.push(Draft::read(cursor, json).map_err(|problem| format!("input {number}: {problem}"))?);
                Ok(())
            })?;
            drafts = Some(read);
            Ok(())
        }
        "outputs" if !request.outputs.is_empty() => Err("`outputs` is given twice".into()),
        "outputs" => cursor.array(|cursor| {
            let number = request.outputs.len() + 1;
            let output = read_output(cursor).map_err(|problem| format!("output {number}: {problem}"))?;
            if request.outputs.iter().any(|earlier| earlier.name == output.name) {
                return Err(format!("output `{}` is asked for twice", output.name));
            }
            request.outputs.push(output);
            Ok(())
        }),
        "parameters" => cursor.object(|cursor, key| {
            match key {
                "timeout" => {
                    let micros = cursor.unsigned("`timeout`")?;
                    request.timeout = (micros > 0).then(|| Span::from_nanos(micros.saturating_mul(1_000)));
                }
                "priority" => match cursor.unsigned("`priority`")? {
                    priority @ 0..=9 => request.priority = priority as u8,
                    other => return Err(format!("`priority` is {other}; 0 to 9 are allowed")),
                },
                "binary_data_output" => request.binary_output = cursor.boolean()?,
                _ => cursor.skip()?,
            }
            Ok(())
        }),
        _ => cursor.skip(),
    })?;
    cursor.end()?;
    let Some(drafts) = drafts else { return Err("`inputs` is missing".into()) };
    let mut binary = body.slice(json_length..);
    request.inputs.reserve_exact(drafts.len());
    for draft in drafts {
        request.inputs.push(draft.finish(&mut binary)?);
    }
    if !binary.is_empty() {
        return Err(format!("{} bytes follow the JSON and its binary tensors that belong to none", binary.len()));
    }
    Ok(request)
}

/// An input while it is read. Its keys come in any order.
#[derive(Default)]
struct Draft {
    name: Option<Arc<str>>,
    datatype: Option<DataType>,
    shape: Option<Vec<usize>>,
    data: Option<Vec<u8>>,
    parameters: Parameters,
}

impl Draft {
    fn read(cursor: &mut Cursor<'_>, json: &str) -> Result<Draft, String> {
        let mut draft = Draft::default();
        // Where data is that came before what it takes to read it.
        let mut early = None;
        cursor.object(|cursor, key| {
            match key {
                "name" => draft.name = Some(Arc::from(&*cursor.string()?)),
                "datatype" => {
                    let word = cursor.string()?;
                    let datatype = DataType::parse(&word);
                    draft.datatype = Some(datatype.ok_or_else(|| format!("there is no datatype `{word}`"))?);
                }
                "shape" => draft.shape = Some(read_shape(cursor)?),
                "data" if draft.data.is_some() || early.is_some() => return Err("`data` is given twice".into()),
                "data" => match (draft.datatype, &draft.shape) {
                    (Some(datatype), Some(shape)) => draft.data = Some(elements::read(cursor, datatype, shape)?),
                    _ => {
                        early = Some(cursor.position());
                        cursor.skip()?;
                    }
                },
                "parameters" => draft.parameters = Parameters::read(cursor)?,
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        if let (Some(at), Some(datatype), Some(shape)) = (early, draft.datatype, &draft.shape) {
            draft.data = Some(elements::read(&mut Cursor::new(json).back_at(at), datatype, shape)?);
        }
        Ok(draft)
    }

    /// Makes it an input, whose binary data is cut from the front of `binary`.
    fn finish(self, binary: &mut Bytes) -> Result<Input, String> {
        let Draft { name, datatype, shape, data, parameters } = self;
        let name = name.ok_or("an input has no `name`")?;
        let datatype = datatype.ok_or_else(|| format!("input `{name}` has no `datatype`"))?;
        let shape = shape.ok_or_else(|| format!("input `{name}` has no `shape`"))?;
        let place = parameters.place(&name)?;
        let data = match (data, parameters.binary_data_size, place) {
            (Some(data), None, None) => Data::Inline(data.into()),
            (None, Some(size), None) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if size > binary.len() {
                    let left = binary.len();
                    return Err(format!("input `{name}` has {size} bytes of binary data, and {left} follow the JSON"));
                }
                Data::Inline(binary.split_to(size))
            }
            (None, None, Some(place)) => Data::Shared(place),
            (None, None, None) => {
                return Err(format!("input `{name}` has no `data`, `binary_data_size` or `shared_memory_region`"));
            }
            _ => {
                return Err(format!(
                    "input `{name}` has more than one of `data`, `binary_data_size` and `shared_memory_region`"
                ));
            }
        };
        Ok(Input { name, datatype, shape, data })
    }
}

fn read_shape(cursor: &mut Cursor<'_>) -> Result<Vec<usize>, String> {
    let mut shape = Vec::with_capacity(4);
    cursor.array(|cursor| {
        let dimension = cursor.unsigned("a dimension")?;
        if shape.len() == DIMENSIONS_MAX {
            return Err(format!("it has more than {DIMENSIONS_MAX} dimensions"));
        }
        shape.push(usize::try_from(dimension).map_err(|_| format!("dimension {dimension} is too large"))?);
        Ok(())
    })?;
    // The largest elements are eight bytes long.
    match tensor::elements(&shape).and_then(|elements| elements.checked_mul(8)) {
        Some(_) => Ok(shape),
        None => Err(format!("its shape {shape:?} is more than can be counted")),
    }
}

fn read_output(cursor: &mut Cursor<'_>) -> Result<Output, String> {
    let mut name = None;
    let mut parameters = Parameters::default();
    cursor.object(|cursor, key| {
        match key {
            "name" => name = Some(cursor.string()?.into_owned()),
            "parameters" => parameters = Parameters::read(cursor)?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    let name = name.ok_or("it has no `name`")?;
    let shared = parameters.place(&name)?;
    let classes = usize::try_from(parameters.classification.unwrap_or(0)).unwrap_or(usize::MAX);
    if shared.is_some() && classes > 0 {
        return Err(format!("`{name}` cannot be classified into shared memory"));
    }
    Ok(Output { name, binary: parameters.binary_data, classes, shared })
}

/// The parameters of an input or output that mean something here.
#[derive(Default)]
struct Parameters {
    binary_data_size: Option<u64>,
    binary_data: Option<bool>,
    classification: Option<u64>,
    region: Option<String>,
    offset: Option<u64>,
    byte_size: Option<u64>,
}

impl Parameters {
    fn read(cursor: &mut Cursor<'_>) -> Result<Parameters, String> {
        let mut parameters = Parameters::default();
        cursor.object(|cursor, key| {
            match key {
                "binary_data_size" => parameters.binary_data_size = Some(cursor.unsigned("`binary_data_size`")?),
                "binary_data" => parameters.binary_data = Some(cursor.boolean()?),
                "classification" => parameters.classification = Some(cursor.unsigned("`classification`")?),
                "shared_memory_region" => parameters.region = Some(cursor.string()?.into_owned()),
                "shared_memory_offset" => parameters.offset = Some(cursor.unsigned("`shared_memory_offset`")?),
                "shared_memory_byte_size" => {
                    parameters.byte_size = Some(cursor.unsigned("`shared_memory_byte_size`")?);
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        Ok(parameters)
    }

    fn place(&self, name: &str) -> Result<Option<Place>, String> {
        let Some(region) = self.region.clone() else { return Ok(None) };
        let bytes = self.byte_size.ok_or_else(|| format!("`{name}` has a `shared_memory_region` and no byte size"))?;
        Ok(Some(Place { region, offset: self.offset.unwrap_or(0), bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, binary: &[u8]) -> Result<InferRequest, String> {
        let body = Bytes::from([text.as_bytes(), binary].concat());
        decode(&body, (!binary.is_empty()).then_some(text.len()))
    }

    #[test]
    fn a_request_in_json_is_read_whole() {
        let request = read(
            r#"{"id": "7", "parameters": {"timeout": 1500, "priority": 3, "sequence_id": [1, {"a": 2}]},
                "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1, 2.5]]}],
                "outputs": [{"name": "y", "parameters": {"binary_data": true, "classification": 2}}], "more": null}"#,
            b"",
        )
        .unwrap();
        assert_eq!((request.id.as_deref(), request.priority), (Some("7"), 3));
        assert_eq!(request.timeout, Some(Span::from_micros(1500)));
        let data = [1f32, 2.5].map(f32::to_le_bytes).concat();
        let expected =
            Input { name: "x".into(), datatype: DataType::Fp32, shape: vec![1, 2], data: Data::Inline(data.into()) };
        assert_eq!(request.inputs, [expected]);
        assert_eq!(request.outputs, [Output { name: "y".into(), binary: Some(true), classes: 2, shared: None }]);
    }

    #[test]
    fn keys_come_in_any_order_and_tensors_in_any_form() {
        let request = read(
            r#"{"inputs": [{"data": ["a"], "shape": [1], "datatype": "BYTES", "name": "s"},
                {"name": "b", "shape": [2], "datatype": "UINT8", "parameters": {"binary_data_size": 2}},
                {"name": "c", "shape": [3], "datatype": "UINT8", "parameters": {"binary_data_size": 3}},
                {"name": "m", "shape": [4], "datatype": "INT8", "parameters": {"shared_memory_region": "r",
                 "shared_memory_byte_size": 4}}], "parameters": {"binary_data_output": true, "timeout": 0}}"#,
            b"\x01\x02abc",
        )
        .unwrap();
        let data: Vec<&Data> = request.inputs.iter().map(|input| &input.data).collect();
        let inline = |bytes: &'static [u8]| Data::Inline(Bytes::from_static(bytes));
        let place = Place { region: "r".into(), offset: 0, bytes: 4 };
        assert_eq!(data, [&inline(b"\x01\0\0\0a"), &inline(b"\x01\x02"), &inline(b"abc"), &Data::Shared(place)]);
        assert!(request.binary_output && request.timeout.is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let input = |rest: &str| format!(r#"{{"inputs": [{{"name": "x", {rest}}}]}}"#);
        let check = |text: &str, binary: &[u8], expected: &str| {
            let problem = read(text, binary).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        };
        check("", b"", "`{` is expected, and the text ends");
        check("[]", b"", "`{` is expected");
        check("{}", b"", "`inputs` is missing");
        check(r#"{"inputs": []} x"#, b"", "nothing more is expected");
        check(r#"{"inputs": 3}"#, b"", "`[` is expected");
        check(r#"{"inputs": [], "inputs": []}"#, b"", "`inputs` is given twice");
        check(r#"{"id": 3, "inputs": []}"#, b"", "`id`: JSON, byte 7: a string is expected");
        check(r#"{"inputs": [{"shape": [1]}]}"#, b"", "an input has no `name`");
        check(&input(r#""shape": [1]"#), b"", "input `x` has no `datatype`");
        check(&input(r#""datatype": "FP32""#), b"", "input `x` has no `shape`");
        check(&input(r#""datatype": "FP8""#), b"", "there is no datatype `FP8`");
        check(&input(r#""shape": [-1]"#), b"", "a dimension is -1; a whole number from 0 is expected");
        check(&input(r#""shape": [1.5]"#), b"", "a dimension is 1.5");
        check(&input(r#""shape": [4294967296, 4294967296]"#), b"", "more than can be counted");
        check(&input(r#""shape": [99999999999999999999]"#), b"", "a dimension is 99999999999999999999");
        check(&input(&format!(r#""shape": [{}1]"#, "1,".repeat(40))), b"", "more than 32 dimensions");
        check(&input(r#""shape": [1], "datatype": "INT8""#), b"", "input `x` has no `data`");
        let sized = input(r#""shape": [4], "datatype": "INT8", "parameters": {"binary_data_size": 4}"#);
        check(&sized, b"abc", "input `x` has 4 bytes of binary data, and 3 follow the JSON");
        check(&sized, b"abcde", "1 bytes follow the JSON");
        let both = input(r#""shape": [1], "datatype": "INT8", "data": [1], "parameters": {"binary_data_size": 1}"#);
        check(&both, b"a", "more than one of");
        check(r#"{"inputs": [], "parameters": {"priority": 10}}"#, b"", "`priority` is 10; 0 to 9 are allowed");
        check(r#"{"inputs": [], "parameters": {"timeout": -5}}"#, b"", "`timeout` is -5");
        check(r#"{"inputs": [], "outputs": [{"name": "y"}, {"name": "y"}]}"#, b"", "asked for twice");
        let mut bytes = br#"{"inputs": [{"name": "x"#.to_vec();
        bytes.push(0xff);
        assert!(decode(&bytes.into(), None).unwrap_err().contains("not UTF-8"));
        assert!(decode(&Bytes::from_static(b"{}"), Some(3)).unwrap_err().contains("is 3, and the body holds 2"));
    }
}
