//! Tensors whose elements came one by one in a message, and not as they lie in memory.

use bytes::{BufMut, Bytes, BytesMut};
use config::DataType;
use rpc::inference::InferTensorContents;

/// The elements as they lie in memory. `name` is the input's, for messages.
pub(super) fn to_raw(name: &str, datatype: DataType, contents: &InferTensorContents) -> Result<Bytes, String> {
    let (field, given) = match datatype {
        DataType::Bool => ("bool_contents", contents.bool_contents.len()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => ("int_contents", contents.int_contents.len()),
        DataType::Int64 => ("int64_contents", contents.int64_contents.len()),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => ("uint_contents", contents.uint_contents.len()),
        DataType::Uint64 => ("uint64_contents", contents.uint64_contents.len()),
        DataType::Fp32 => ("fp32_contents", contents.fp32_contents.len()),
        DataType::Fp64 => ("fp64_contents", contents.fp64_contents.len()),
        DataType::Bytes => ("bytes_contents", contents.bytes_contents.len()),
        DataType::Fp16 | DataType::Bf16 => {
            let word = datatype.name();
            return Err(format!("input `{name}` is {word}, which can only be sent in `raw_input_contents`"));
        }
    };
    if given != count(contents) {
        return Err(format!("input `{name}` is {}, whose elements belong in `{field}` alone", datatype.name()));
    }
    let beyond = |value: String| format!("input `{name}` is {}, which cannot be {value}", datatype.name());
    match datatype {
        DataType::Bool => Ok(contents.bool_contents.iter().map(|value| u8::from(*value)).collect()),
        DataType::Int8 => narrow(&contents.int_contents, i8::to_le_bytes, beyond),
        DataType::Int16 => narrow(&contents.int_contents, i16::to_le_bytes, beyond),
        DataType::Int32 => Ok(flat(&contents.int_contents, i32::to_le_bytes)),
        DataType::Int64 => Ok(flat(&contents.int64_contents, i64::to_le_bytes)),
        DataType::Uint8 => narrow(&contents.uint_contents, u8::to_le_bytes, beyond),
        DataType::Uint16 => narrow(&contents.uint_contents, u16::to_le_bytes, beyond),
        DataType::Uint32 => Ok(flat(&contents.uint_contents, u32::to_le_bytes)),
        DataType::Uint64 => Ok(flat(&contents.uint64_contents, u64::to_le_bytes)),
        DataType::Fp32 => Ok(flat(&contents.fp32_contents, f32::to_le_bytes)),
        DataType::Fp64 => Ok(flat(&contents.fp64_contents, f64::to_le_bytes)),
        DataType::Bytes | DataType::Fp16 | DataType::Bf16 => Ok(strings(&contents.bytes_contents)),
    }
}

/// How many elements of any type there are.
pub(super) fn count(contents: &InferTensorContents) -> usize {
    contents.bool_contents.len()
        + contents.int_contents.len()
        + contents.int64_contents.len()
        + contents.uint_contents.len()
        + contents.uint64_contents.len()
        + contents.fp32_contents.len()
        + contents.fp64_contents.len()
        + contents.bytes_contents.len()
}

fn flat<T: Copy, const N: usize>(values: &[T], bytes: fn(T) -> [u8; N]) -> Bytes {
    let mut data = BytesMut::with_capacity(values.len() * N);
    values.iter().for_each(|value| data.put_slice(&bytes(*value)));
    data.freeze()
}

/// Elements of a type that is shorter than the message's.
fn narrow<Wide, Narrow, const N: usize>(
    values: &[Wide],
    bytes: fn(Narrow) -> [u8; N],
    beyond: impl Fn(String) -> String,
) -> Result<Bytes, String>
where
    Wide: Copy + ToString,
    Narrow: TryFrom<Wide>,
{
    let mut data = BytesMut::with_capacity(values.len() * N);
    for value in values {
        let narrow = Narrow::try_from(*value).map_err(|_| beyond(value.to_string()))?;
        data.put_slice(&bytes(narrow));
    }
    Ok(data.freeze())
}

/// Strings with their lengths before them.
fn strings(values: &[Bytes]) -> Bytes {
    let mut data = BytesMut::with_capacity(values.iter().map(|value| value.len() + 4).sum());
    for value in values {
        // A message is shorter than four gigabytes, and so is a string in it.
        data.put_u32_le(value.len() as u32);
        data.put_slice(value);
    }
    data.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(datatype: DataType, contents: InferTensorContents, expected: Result<&[u8], &str>) {
        let raw = to_raw("a", datatype, &contents);
        assert_eq!(raw.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn every_type_has_a_field() {
        let none = InferTensorContents::default;
        check(DataType::Bool, InferTensorContents { bool_contents: vec![true, false], ..none() }, Ok(&[1, 0]));
        let ints = || InferTensorContents { int_contents: vec![-2, 1], ..none() };
        check(DataType::Int8, ints(), Ok(&[254, 1]));
        check(DataType::Int16, ints(), Ok(&[254, 255, 1, 0]));
        check(DataType::Int32, ints(), Ok(&[254, 255, 255, 255, 1, 0, 0, 0]));
        check(
            DataType::Int64,
            InferTensorContents { int64_contents: vec![-1], ..none() },
            Ok(&[255, 255, 255, 255, 255, 255, 255, 255]),
        );
        let unsigned = || InferTensorContents { uint_contents: vec![255], ..none() };
        check(DataType::Uint8, unsigned(), Ok(&[255]));
        check(DataType::Uint16, unsigned(), Ok(&[255, 0]));
        check(DataType::Uint32, unsigned(), Ok(&[255, 0, 0, 0]));
        check(
            DataType::Uint64,
            InferTensorContents { uint64_contents: vec![1], ..none() },
            Ok(&[1, 0, 0, 0, 0, 0, 0, 0]),
        );
        check(DataType::Fp32, InferTensorContents { fp32_contents: vec![1.0], ..none() }, Ok(&1f32.to_le_bytes()));
        check(DataType::Fp64, InferTensorContents { fp64_contents: vec![1.0], ..none() }, Ok(&1f64.to_le_bytes()));
        let bytes_contents = vec![Bytes::from_static(b"hi"), Bytes::new()];
        check(DataType::Bytes, InferTensorContents { bytes_contents, ..none() }, Ok(b"\x02\0\0\0hi\0\0\0\0"));
    }

    #[test]
    fn what_does_not_belong_is_named() {
        let none = InferTensorContents::default;
        check(
            DataType::Int8,
            InferTensorContents { int_contents: vec![200], ..none() },
            Err("input `a` is INT8, which cannot be 200"),
        );
        check(
            DataType::Fp32,
            InferTensorContents { fp64_contents: vec![1.0], ..none() },
            Err("input `a` is FP32, whose elements belong in `fp32_contents` alone"),
        );
        check(DataType::Bf16, none(), Err("input `a` is BF16, which can only be sent in `raw_input_contents`"));
    }
}
