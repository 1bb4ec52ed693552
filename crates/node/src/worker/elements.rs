//! Elements of tensors: bytes on our side, types on ONNX Runtime's.
//!
//! Numbers are looked at where they lie. Strings are the exception: ONNX Runtime wants its own copies, as text.

use anyhow::{Context, Result, anyhow, bail};
use bytemuck::{CheckedBitPattern, NoUninit, PodCastError};
use config::DataType;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, TensorRef};
use std::borrow::Cow;
use std::fmt::Debug;

/// Our word for a type of ONNX Runtime's, if there is one.
pub(crate) fn datatype(element: TensorElementType) -> Option<DataType> {
    Some(match element {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float16 => DataType::Fp16,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        TensorElementType::String => DataType::Bytes,
        _ => return None,
    })
}

/// Elements in memory as an input of a session.
pub(crate) fn input<'a>(datatype: DataType, shape: &[usize], data: &'a [u8]) -> Result<SessionInputValue<'a>> {
    match datatype {
        DataType::Bool => view::<bool>(shape, data),
        DataType::Uint8 => view::<u8>(shape, data),
        DataType::Uint16 => view::<u16>(shape, data),
        DataType::Uint32 => view::<u32>(shape, data),
        DataType::Uint64 => view::<u64>(shape, data),
        DataType::Int8 => view::<i8>(shape, data),
        DataType::Int16 => view::<i16>(shape, data),
        DataType::Int32 => view::<i32>(shape, data),
        DataType::Int64 => view::<i64>(shape, data),
        DataType::Fp16 => view::<f16>(shape, data),
        DataType::Bf16 => view::<bf16>(shape, data),
        DataType::Fp32 => view::<f32>(shape, data),
        DataType::Fp64 => view::<f64>(shape, data),
        DataType::Bytes => {
            let strings: Vec<String> = strings(data)?.into_iter().map(str::to_owned).collect();
            let tensor = Tensor::from_string_array((shape, &strings[..])).map_err(|error| anyhow!("{error}"))?;
            Ok(tensor.into())
        }
    }
}

/// The shape and elements of a session's output.
pub(crate) fn output(value: &DynValue, datatype: DataType) -> Result<(Vec<usize>, Cow<'_, [u8]>)> {
    match datatype {
        DataType::Bool => bytes::<bool>(value),
        DataType::Uint8 => bytes::<u8>(value),
        DataType::Uint16 => bytes::<u16>(value),
        DataType::Uint32 => bytes::<u32>(value),
        DataType::Uint64 => bytes::<u64>(value),
        DataType::Int8 => bytes::<i8>(value),
        DataType::Int16 => bytes::<i16>(value),
        DataType::Int32 => bytes::<i32>(value),
        DataType::Int64 => bytes::<i64>(value),
        DataType::Fp16 => bytes::<f16>(value),
        DataType::Bf16 => bytes::<bf16>(value),
        DataType::Fp32 => bytes::<f32>(value),
        DataType::Fp64 => bytes::<f64>(value),
        DataType::Bytes => {
            let (shape, strings) = value.try_extract_strings().map_err(|error| anyhow!("{error}"))?;
            let mut data = Vec::new();
            for string in strings {
                let length = u32::try_from(string.len()).context("a string is too long")?;
                data.extend_from_slice(&length.to_le_bytes());
                data.extend_from_slice(string.as_bytes());
            }
            Ok((sizes(shape)?, Cow::Owned(data)))
        }
    }
}

fn view<'a, T>(shape: &[usize], data: &'a [u8]) -> Result<SessionInputValue<'a>>
where
    T: PrimitiveTensorElementType + CheckedBitPattern + Debug + 'static,
{
    let elements: &'a [T] = bytemuck::checked::try_cast_slice(data).map_err(|error| match error {
        bytemuck::checked::CheckedCastError::InvalidBitPattern => anyhow!("a BOOL is neither 0 nor 1"),
        bytemuck::checked::CheckedCastError::PodCastError(error) => misplaced(error),
    })?;
    let tensor = TensorRef::from_array_view((shape.to_vec(), elements)).map_err(|error| anyhow!("{error}"))?;
    Ok(tensor.into())
}

fn bytes<T: PrimitiveTensorElementType + NoUninit>(value: &DynValue) -> Result<(Vec<usize>, Cow<'_, [u8]>)> {
    let (shape, elements) = value.try_extract_tensor::<T>().map_err(|error| anyhow!("{error}"))?;
    Ok((sizes(shape)?, Cow::Borrowed(bytemuck::try_cast_slice(elements).map_err(misplaced)?)))
}

fn misplaced(error: PodCastError) -> anyhow::Error {
    anyhow!("the elements do not lie as they should: {error}")
}

fn sizes(shape: &[i64]) -> Result<Vec<usize>> {
    shape.iter().map(|dimension| usize::try_from(*dimension).context("read a shape")).collect()
}

/// Strings that each carry their length.
fn strings(mut data: &[u8]) -> Result<Vec<&str>> {
    let mut strings = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let (string, rest) =
            rest.split_at_checked(u32::from_le_bytes(*length) as usize).context("an element is cut off")?;
        strings.push(std::str::from_utf8(string).context("ONNX models take text, and an element is not UTF-8")?);
        data = rest;
    }
    if !data.is_empty() {
        bail!("an element is cut off");
    }
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_to_the_end_or_not_at_all() {
        assert_eq!(strings(b"\x01\0\0\0a\0\0\0\0").unwrap(), ["a", ""]);
        assert_eq!(strings(b"").unwrap(), [""; 0]);
        assert!(strings(b"\x02\0\0\0a").is_err());
        assert!(strings(b"\x01\0\0").is_err());
        assert!(strings(b"\x01\0\0\0\xff").is_err());
    }
}
