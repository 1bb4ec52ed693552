//! Outputs as a client asks for them with Triton's classification extension: not the scores, but the best classes.

use bytes::{BufMut, BytesMut};
use config::DataType;
use rpc::{Tensor, tensor};
use std::cmp::Ordering;
use std::fmt;

/// The `count` highest elements of an output, of each row where it has rows, as strings `value:index`, highest first.
pub fn classify(output: &Tensor, batched: bool, count: usize) -> Result<Tensor, String> {
    let unsuited = || format!("output `{}` is {}, which has no classes", output.name, output.datatype.name());
    let size = output.datatype.size().ok_or_else(unsuited)?;
    let rows = if batched { output.shape.first().copied().unwrap_or(1) } else { 1 };
    let width = tensor::elements(&output.shape).unwrap_or(0).checked_div(rows).unwrap_or(0);
    let count = count.min(width);
    let mut data = BytesMut::new();
    for row in output.data.chunks_exact((width * size).max(1)) {
        let scores: Option<Vec<Score>> = row.chunks_exact(size).map(|bytes| score(output.datatype, bytes)).collect();
        let mut ranked: Vec<(usize, Score)> = scores.ok_or_else(unsuited)?.into_iter().enumerate().collect();
        ranked.sort_by(|(_, one), (_, other)| other.compare(one));
        for (index, score) in ranked.into_iter().take(count) {
            let text = format!("{score}:{index}");
            data.put_u32_le(text.len() as u32);
            data.put_slice(text.as_bytes());
        }
    }
    let shape = if batched { vec![rows, count] } else { vec![count] };
    Ok(Tensor { name: output.name.clone(), datatype: DataType::Bytes, shape, data: data.freeze() })
}

/// An element, as it is compared and written.
#[derive(Clone, Copy)]
enum Score {
    Integer(i128),
    Real(f64),
}

impl Score {
    /// Elements of one tensor are of one kind; what is not a number comes last.
    fn compare(&self, other: &Score) -> Ordering {
        match (self, other) {
            (Score::Integer(one), Score::Integer(other)) => one.cmp(other),
            (Score::Real(one), Score::Real(other)) => {
                one.partial_cmp(other).unwrap_or_else(|| other.is_nan().cmp(&one.is_nan()))
            }
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Score::Integer(value) => write!(formatter, "{value}"),
            // Six digits, as Triton writes them.
            Score::Real(value) => write!(formatter, "{value:.6}"),
        }
    }
}

fn score(datatype: DataType, bytes: &[u8]) -> Option<Score> {
    let integer = |value: i128| Some(Score::Integer(value));
    match datatype {
        DataType::Uint8 => integer(i128::from(*bytes.first()?)),
        DataType::Uint16 => integer(u16::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Uint32 => integer(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Uint64 => integer(u64::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Int8 => integer(i8::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Int16 => integer(i16::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Int32 => integer(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Int64 => integer(i64::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Fp32 => Some(Score::Real(f32::from_le_bytes(bytes.try_into().ok()?).into())),
        DataType::Fp64 => Some(Score::Real(f64::from_le_bytes(bytes.try_into().ok()?))),
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: &[usize], values: &[f32], batched: bool, count: usize, expected: (&[usize], &[&str])) {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into();
        let output = Tensor { name: "scores".into(), datatype: DataType::Fp32, shape: shape.to_vec(), data };
        let classes = classify(&output, batched, count).unwrap();
        let strings = expected
            .1
            .iter()
            .flat_map(|text| (text.len() as u32).to_le_bytes().into_iter().chain(text.bytes()).collect::<Vec<u8>>());
        assert_eq!((&classes.shape[..], &classes.data[..]), (expected.0, &strings.collect::<Vec<u8>>()[..]));
    }

    #[test]
    fn the_best_come_first_in_each_row() {
        let values = [0.5, 2.0, -1.0, 7.0, 7.0, 8.25];
        check(&[2, 3], &values, true, 2, (&[2, 2], &["2.000000:1", "0.500000:0", "8.250000:2", "7.000000:0"]));
        check(&[2, 3], &values, false, 1, (&[1], &["8.250000:5"]));
        check(&[3], &[f32::NAN, 1.0, 2.0], false, 9, (&[3], &["2.000000:2", "1.000000:1", "NaN:0"]));
        check(&[0, 3], &[], true, 2, (&[0, 0], &[]));
    }

    #[test]
    fn strings_have_no_classes() {
        let output = Tensor { name: "o".into(), datatype: DataType::Bytes, shape: vec![0], data: Default::default() };
        assert_eq!(classify(&output, false, 1).unwrap_err(), "output `o` is BYTES, which has no classes");
    }
}
