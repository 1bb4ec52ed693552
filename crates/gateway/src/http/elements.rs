//! The elements of a tensor between JSON and bytes.
//!
//! Reading takes arrays that are nested as the shape says, or one flat array; both end as the same bytes. Writing makes
//! flat arrays, as Triton does. A number that its type cannot hold is refused, never bent.
//!
//! Floats that are no numbers are written as `NaN`, `Infinity` and `-Infinity`. That is not JSON, and there is no JSON
//! for it; Python's `json` and the `rapidjson` of Triton's clients read it. Who needs strict JSON asks for such an
//! output in binary form.

use super::json::{Cursor, write_string};
use config::DataType;
use half::{bf16, f16};
use rpc::tensor;

/// Reads an array into bytes. The shape's product fits.
pub(super) fn read(cursor: &mut Cursor<'_>, datatype: DataType, shape: &[usize]) -> Result<Vec<u8>, String> {
    match datatype {
        DataType::Bool => arrays(cursor, datatype, shape, |cursor, out| {
            out.push(u8::from(cursor.boolean()?));
            Ok(())
        }),
        DataType::Uint8 => unsigned::<u8, 1>(cursor, datatype, shape, u8::to_le_bytes),
        DataType::Uint16 => unsigned::<u16, 2>(cursor, datatype, shape, u16::to_le_bytes),
        DataType::Uint32 => unsigned::<u32, 4>(cursor, datatype, shape, u32::to_le_bytes),
        DataType::Uint64 => unsigned::<u64, 8>(cursor, datatype, shape, u64::to_le_bytes),
        DataType::Int8 => signed::<i8, 1>(cursor, datatype, shape, i8::to_le_bytes),
        DataType::Int16 => signed::<i16, 2>(cursor, datatype, shape, i16::to_le_bytes),
        DataType::Int32 => signed::<i32, 4>(cursor, datatype, shape, i32::to_le_bytes),
        DataType::Int64 => signed::<i64, 8>(cursor, datatype, shape, i64::to_le_bytes),
        DataType::Fp16 => arrays(cursor, datatype, shape, |cursor, out| {
            let number = cursor.number()?;
            let value = f16::from_f64(number.double());
            out.extend_from_slice(&value.to_le_bytes());
            fits(value.is_finite(), number.text, datatype)
        }),
        DataType::Bf16 => arrays(cursor, datatype, shape, |cursor, out| {
            let number = cursor.number()?;
            let value = bf16::from_f64(number.double());
            out.extend_from_slice(&value.to_le_bytes());
            fits(value.is_finite(), number.text, datatype)
        }),
        DataType::Fp32 => arrays(cursor, datatype, shape, |cursor, out| {
            let number = cursor.number()?;
            let value = number.single();
            out.extend_from_slice(&value.to_le_bytes());
            fits(value.is_finite(), number.text, datatype)
        }),
        DataType::Fp64 => arrays(cursor, datatype, shape, |cursor, out| {
            let number = cursor.number()?;
            let value = number.double();
            out.extend_from_slice(&value.to_le_bytes());
            fits(value.is_finite(), number.text, datatype)
        }),
        DataType::Bytes => arrays(cursor, datatype, shape, |cursor, out| {
            let text = cursor.string()?;
            let length = u32::try_from(text.len()).map_err(|_| "a string of 4 GiB or more".to_string())?;
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }),
    }
}

fn unsigned<T: TryFrom<u64>, const SIZE: usize>(
    cursor: &mut Cursor<'_>,
    datatype: DataType,
    shape: &[usize],
    bytes: impl Fn(T) -> [u8; SIZE],
) -> Result<Vec<u8>, String> {
    arrays(cursor, datatype, shape, |cursor, out| {
        let number = cursor.number()?;
        match number.unsigned().and_then(|value| T::try_from(value).ok()) {
            Some(value) => out.extend_from_slice(&bytes(value)),
            None => return fits(false, number.text, datatype),
        }
        Ok(())
    })
}

fn signed<T: TryFrom<i64>, const SIZE: usize>(
    cursor: &mut Cursor<'_>,
    datatype: DataType,
    shape: &[usize],
    bytes: impl Fn(T) -> [u8; SIZE],
) -> Result<Vec<u8>, String> {
    arrays(cursor, datatype, shape, |cursor, out| {
        let number = cursor.number()?;
        match number.signed().and_then(|value| T::try_from(value).ok()) {
            Some(value) => out.extend_from_slice(&bytes(value)),
            None => return fits(false, number.text, datatype),
        }
        Ok(())
    })
}

#[inline]
fn fits(fits: bool, text: &str, datatype: DataType) -> Result<(), String> {
    if fits { Ok(()) } else { Err(format!("{} cannot hold {text}", datatype.name())) }
}

/// Reads nested or flat arrays whose elements `element` reads.
#[inline]
fn arrays(
    cursor: &mut Cursor<'_>,
    datatype: DataType,
    shape: &[usize],
    element: impl Fn(&mut Cursor<'_>, &mut Vec<u8>) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let elements = tensor::elements(shape).ok_or("its shape is more than can be counted")?;
    // An element takes a letter and a comma at least, so that a vast shape before a short text reserves little.
    let possible = elements.min(cursor.left() / 2 + 1);
    let mut out = Vec::with_capacity(possible * datatype.size().unwrap_or(8));
    if cursor.peek() != b'[' {
        return Err(cursor.expected("an array"));
    }
    let start = cursor.position();
    cursor.take(b'[');
    let is_nested = cursor.peek() == b'[';
    *cursor = cursor.back_at(start);
    if is_nested && shape.len() > 1 {
        nested(cursor, shape, &element, &mut out, shape)?;
    } else {
        row(cursor, elements, &element, &mut out, shape)?;
    }
    Ok(out)
}

fn nested(
    cursor: &mut Cursor<'_>,
    dimensions: &[usize],
    element: &impl Fn(&mut Cursor<'_>, &mut Vec<u8>) -> Result<(), String>,
    out: &mut Vec<u8>,
    shape: &[usize],
) -> Result<(), String> {
    match dimensions {
        [] => element(cursor, out),
        [length] => row(cursor, *length, element, out, shape),
        [length, rest @ ..] => {
            let mut count = 0;
            cursor.array(|cursor| {
                count += 1;
                if count > *length {
                    return Err(uneven(shape, *length, "more"));
                }
                nested(cursor, rest, element, out, shape)
            })?;
            if count < *length { Err(uneven(shape, *length, &count.to_string())) } else { Ok(()) }
        }
    }
}

#[inline]
fn row(
    cursor: &mut Cursor<'_>,
    length: usize,
    element: &impl Fn(&mut Cursor<'_>, &mut Vec<u8>) -> Result<(), String>,
    out: &mut Vec<u8>,
    shape: &[usize],
) -> Result<(), String> {
    let mut count = 0;
    cursor.array(|cursor| {
        count += 1;
        if count > length {
            return Err(uneven(shape, length, "more"));
        }
        if cursor.peek() == b'[' {
            return Err(format!("its arrays are nested deeper than its shape {shape:?}"));
        }
        element(cursor, out)
    })?;
    if count < length { Err(uneven(shape, length, &count.to_string())) } else { Ok(()) }
}

#[cold]
fn uneven(shape: &[usize], wanted: usize, found: &str) -> String {
    format!("its arrays do not match its shape {shape:?}: {wanted} elements are expected, and there are {found}")
}

/// Writes a tensor's elements as one flat array. The bytes are as many as the elements take; fails when they are
/// strings that are no text.
pub(super) fn write(datatype: DataType, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut digits = itoa::Buffer::new();
    out.push(b'[');
    match datatype {
        DataType::Bool => {
            for byte in data {
                out.extend_from_slice(if *byte == 0 { b"false" } else { b"true" });
                out.push(b',');
            }
        }
        DataType::Uint8 => each(data, out, |bytes, out| text(out, digits.format(u8::from_le_bytes(bytes)))),
        DataType::Uint16 => each(data, out, |bytes, out| text(out, digits.format(u16::from_le_bytes(bytes)))),
        DataType::Uint32 => each(data, out, |bytes, out| text(out, digits.format(u32::from_le_bytes(bytes)))),
        DataType::Uint64 => each(data, out, |bytes, out| text(out, digits.format(u64::from_le_bytes(bytes)))),
        DataType::Int8 => each(data, out, |bytes, out| text(out, digits.format(i8::from_le_bytes(bytes)))),
        DataType::Int16 => each(data, out, |bytes, out| text(out, digits.format(i16::from_le_bytes(bytes)))),
        DataType::Int32 => each(data, out, |bytes, out| text(out, digits.format(i32::from_le_bytes(bytes)))),
        DataType::Int64 => each(data, out, |bytes, out| text(out, digits.format(i64::from_le_bytes(bytes)))),
        DataType::Fp16 => each(data, out, |bytes, out| single(out, f16::from_le_bytes(bytes).to_f32())),
        DataType::Bf16 => each(data, out, |bytes, out| single(out, bf16::from_le_bytes(bytes).to_f32())),
        DataType::Fp32 => each(data, out, |bytes, out| single(out, f32::from_le_bytes(bytes))),
        DataType::Fp64 => each(data, out, |bytes, out| double(out, f64::from_le_bytes(bytes))),
        DataType::Bytes => {
            for string in Strings(data) {
                let string = string.ok_or("the model's strings are cut off")?;
                let string = std::str::from_utf8(string).map_err(|_| "it holds bytes that are no UTF-8 text")?;
                write_string(string, out);
                out.push(b',');
            }
        }
    }
    match out.last_mut() {
        Some(last @ b',') => *last = b']',
        _ => out.push(b']'),
    }
    Ok(())
}

#[inline]
fn each<const SIZE: usize>(data: &[u8], out: &mut Vec<u8>, mut one: impl FnMut([u8; SIZE], &mut Vec<u8>)) {
    for bytes in data.as_chunks::<SIZE>().0 {
        one(*bytes, out);
        out.push(b',');
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

#[inline]
fn single(out: &mut Vec<u8>, value: f32) {
    if value.is_finite() { text(out, zmij::Buffer::new().format_finite(value)) } else { no_number(out, value.into()) }
}

#[inline]
fn double(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() { text(out, zmij::Buffer::new().format_finite(value)) } else { no_number(out, value) }
}

#[cold]
fn no_number(out: &mut Vec<u8>, value: f64) {
    text(
        out,
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        },
    );
}

/// The strings of a `BYTES` tensor; ends with `None` when one is cut off.
pub(super) struct Strings<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        if self.0.is_empty() {
            return None;
        }
        let split = self.0.split_first_chunk::<4>();
        let split = split.and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let Some((string, rest)) = split else {
            self.0 = &[];
            return Some(None);
        };
        self.0 = rest;
        Some(Some(string))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(datatype: DataType, shape: &[usize], text: &str, expected: Result<&str, &str>) {
        let mut cursor = Cursor::new(text);
        let read = read(&mut cursor, datatype, shape).and_then(|data| cursor.end().map(|()| data));
        let written = read.map(|data| {
            let mut out = Vec::new();
            write(datatype, &data, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        });
        match (written, expected) {
            (Ok(written), Ok(expected)) => assert_eq!(written, expected, "{text}"),
            (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{text}: {problem}"),
            (written, expected) => panic!("{text}: {written:?}, and {expected:?} is expected"),
        }
    }

    #[test]
    fn every_type_reads_and_writes() {
        check(DataType::Bool, &[3], "[true, false,true]", Ok("[true,false,true]"));
        check(DataType::Uint8, &[2], "[0,255]", Ok("[0,255]"));
        check(DataType::Uint16, &[2], "[0,65535]", Ok("[0,65535]"));
        check(DataType::Uint32, &[2], "[0,4294967295]", Ok("[0,4294967295]"));
        check(DataType::Uint64, &[2], "[0,18446744073709551615]", Ok("[0,18446744073709551615]"));
        check(DataType::Int8, &[2], "[-128,127]", Ok("[-128,127]"));
        check(DataType::Int16, &[2], "[-32768,32767]", Ok("[-32768,32767]"));
        check(DataType::Int32, &[2], "[-2147483648,2147483647]", Ok("[-2147483648,2147483647]"));
        check(
            DataType::Int64,
            &[2],
            "[-9223372036854775808,9223372036854775807]",
            Ok("[-9223372036854775808,9223372036854775807]"),
        );
        check(DataType::Fp16, &[3], "[1.5, -2, 65504]", Ok("[1.5,-2.0,65504.0]"));
        check(DataType::Bf16, &[2], "[1.5, -2]", Ok("[1.5,-2.0]"));
        check(DataType::Fp32, &[3], "[0.1, -1e-7, 3]", Ok("[0.1,-1e-7,3.0]"));
        check(DataType::Fp64, &[2], "[0.1, 1e300]", Ok("[0.1,1e+300]"));
        check(DataType::Bytes, &[2], r#"["a\n", "é"]"#, Ok(r#"["a\n","é"]"#));
        check(DataType::Fp32, &[0], "[]", Ok("[]"));
    }

    #[test]
    fn arrays_are_nested_as_the_shape_or_flat() {
        check(DataType::Int8, &[2, 2], "[[1,2],[3,4]]", Ok("[1,2,3,4]"));
        check(DataType::Int8, &[2, 2], "[1,2,3,4]", Ok("[1,2,3,4]"));
        check(DataType::Int8, &[1, 2, 1], "[ [ [1] , [2] ] ]", Ok("[1,2]"));
        check(DataType::Int8, &[2, 0], "[[],[]]", Ok("[]"));
        check(DataType::Int8, &[], "[7]", Ok("[7]"));
        check(DataType::Int8, &[2, 2], "[[1,2],[3]]", Err("2 elements are expected, and there are 1"));
        check(DataType::Int8, &[2, 2], "[[1,2],[3,4,5]]", Err("2 elements are expected, and there are more"));
        check(DataType::Int8, &[2, 2], "[[1,2]]", Err("2 elements are expected, and there are 1"));
        check(DataType::Int8, &[2, 2], "[[1,2],3,4]", Err("`[` is expected"));
        check(DataType::Int8, &[2, 2], "[1,[2],3,4]", Err("nested deeper"));
        check(DataType::Int8, &[2], "[[1,2]]", Err("nested deeper"));
        check(DataType::Int8, &[2, 1], "[[[1],[2]]]", Err("nested deeper"));
        check(DataType::Int8, &[usize::MAX], "[1]", Err("and there are 1"));
        check(DataType::Int8, &[2], "7", Err("an array is expected"));
        check(DataType::Int8, &[2], "[1,2", Err("`,` or `]` is expected, and the text ends"));
    }

    #[test]
    fn what_a_type_cannot_hold_is_refused() {
        check(DataType::Uint8, &[1], "[256]", Err("UINT8 cannot hold 256"));
        check(DataType::Uint8, &[1], "[-1]", Err("UINT8 cannot hold -1"));
        check(DataType::Int32, &[1], "[2147483648]", Err("INT32 cannot hold 2147483648"));
        check(DataType::Int32, &[1], "[1.5]", Err("INT32 cannot hold 1.5"));
        check(DataType::Int64, &[1], "[9223372036854775808]", Err("INT64 cannot hold"));
        check(DataType::Fp16, &[1], "[65520]", Err("FP16 cannot hold 65520"));
        check(DataType::Fp32, &[1], "[3.5e38]", Err("FP32 cannot hold 3.5e38"));
        check(DataType::Fp64, &[1], "[1e309]", Err("FP64 cannot hold 1e309"));
        check(DataType::Fp32, &[1], "[NaN]", Err("a number is expected, and `NaN` found"));
        check(DataType::Fp32, &[1], "[\"1\"]", Err("a number is expected"));
        check(DataType::Fp32, &[1], "[null]", Err("a number is expected"));
        check(DataType::Bool, &[1], "[1]", Err("`true` or `false` is expected"));
        check(DataType::Bytes, &[1], "[1]", Err("a string is expected"));
    }

    #[test]
    fn what_is_no_number_is_written_as_python_reads_it() {
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let mut out = Vec::new();
        write(DataType::Fp32, &values.map(f32::to_le_bytes).concat(), &mut out).unwrap();
        assert_eq!(out, b"[NaN,Infinity,-Infinity]");
        assert!(write(DataType::Bytes, b"\x01\0\0\0\xff", &mut out).unwrap_err().contains("no UTF-8"));
        assert!(write(DataType::Bytes, b"\x09\0\0\0a", &mut out).unwrap_err().contains("cut off"));
    }
}
