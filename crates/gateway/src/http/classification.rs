//! The classification extension: the largest values of an output and where they are, as text.
//!
//! One string per value, `value:index`, with floats to six decimals as Triton prints them. Weft knows no labels, so
//! there is no third part. Equal values come in the order of their places.

use config::DataType;
use half::{bf16, f16};
use rpc::Tensor;

/// The `classes` largest values of every row of a tensor, which becomes one of strings. Rows are what lies behind the
/// first dimension of a tensor with a batch, else all of it.
pub(super) fn classify(tensor: &Tensor, classes: usize, has_batch: bool) -> Result<Tensor, String> {
    let rows = if has_batch { tensor.shape.first().copied().unwrap_or(1) } else { 1 };
    let data = &tensor.data;
    let strings = match tensor.datatype {
        DataType::Uint8 => top(data, rows, classes, u8::from_le_bytes, u8::to_string),
        DataType::Uint16 => top(data, rows, classes, u16::from_le_bytes, u16::to_string),
        DataType::Uint32 => top(data, rows, classes, u32::from_le_bytes, u32::to_string),
        DataType::Uint64 => top(data, rows, classes, u64::from_le_bytes, u64::to_string),
        DataType::Int8 => top(data, rows, classes, i8::from_le_bytes, i8::to_string),
        DataType::Int16 => top(data, rows, classes, i16::from_le_bytes, i16::to_string),
        DataType::Int32 => top(data, rows, classes, i32::from_le_bytes, i32::to_string),
        DataType::Int64 => top(data, rows, classes, i64::from_le_bytes, i64::to_string),
        DataType::Fp16 => top(data, rows, classes, |bytes| f16::from_le_bytes(bytes).to_f64(), decimals),
        DataType::Bf16 => top(data, rows, classes, |bytes| bf16::from_le_bytes(bytes).to_f64(), decimals),
        DataType::Fp32 => top(data, rows, classes, |bytes| f64::from(f32::from_le_bytes(bytes)), decimals),
        DataType::Fp64 => top(data, rows, classes, f64::from_le_bytes, decimals),
        DataType::Bool | DataType::Bytes => {
            return Err(format!("output `{}` is {}, which has no order", tensor.name, tensor.datatype.name()));
        }
    };
    let each = strings.len() / rows.max(1);
    let mut bytes = Vec::new();
    for string in strings {
        bytes.extend_from_slice(&(string.len() as u32).to_le_bytes());
        bytes.extend_from_slice(string.as_bytes());
    }
    let shape = if has_batch { vec![rows, each] } else { vec![each] };
    Ok(Tensor { name: tensor.name.clone(), datatype: DataType::Bytes, shape, data: bytes.into() })
}

fn decimals(value: &f64) -> String {
    format!("{value:.6}")
}

fn top<const SIZE: usize, T: PartialOrd>(
    data: &[u8],
    rows: usize,
    classes: usize,
    read: impl Fn([u8; SIZE]) -> T,
    write: impl Fn(&T) -> String,
) -> Vec<String> {
    let values: Vec<T> = data.as_chunks::<SIZE>().0.iter().map(|bytes| read(*bytes)).collect();
    let width = values.len() / rows.max(1);
    let mut strings = Vec::new();
    for row in values.chunks_exact(width.max(1)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        // What is no number comes last; the sort is stable.
        order.sort_by(|left, right| {
            let is_number = |place: usize| row[place].partial_cmp(&row[place]).is_some();
            let falling = row[*right].partial_cmp(&row[*left]);
            falling.unwrap_or_else(|| is_number(*right).cmp(&is_number(*left)))
        });
        strings.extend(order.iter().take(classes).map(|place| format!("{}:{place}", write(&row[*place]))));
    }
    strings
}

#[cfg(test)]
mod tests {
    use super::super::elements::Strings;
    use super::*;

    fn check(datatype: DataType, shape: &[usize], data: Vec<u8>, has_batch: bool) -> (Vec<usize>, Vec<String>) {
        let tensor = Tensor { name: "y".into(), datatype, shape: shape.into(), data: data.into() };
        let classified = classify(&tensor, 2, has_batch).unwrap();
        let text = |string: Option<&[u8]>| String::from_utf8(string.unwrap().to_vec()).unwrap();
        (classified.shape, Strings(&classified.data).map(text).collect())
    }

    #[test]
    fn the_largest_come_first_for_every_row() {
        let floats = [0.1f32, 0.7, 0.2, 5.0, f32::NAN, 5.0].map(f32::to_le_bytes).concat();
        let (shape, strings) = check(DataType::Fp32, &[2, 3], floats.clone(), true);
        assert_eq!(shape, [2, 2]);
        assert_eq!(strings, ["0.700000:1", "0.200000:2", "5.000000:0", "5.000000:2"]);
        assert_eq!(check(DataType::Fp32, &[6], floats, false).0, [2]);
        let (shape, strings) = check(DataType::Int8, &[1], vec![0xff], true);
        assert_eq!((shape, strings), (vec![1, 1], vec!["-1:0".to_string()]));
        assert_eq!(check(DataType::Int8, &[0, 3], vec![], true), (vec![0, 0], vec![]));
    }

    #[test]
    fn what_has_no_order_is_refused() {
        let tensor = Tensor { name: "y".into(), datatype: DataType::Bytes, shape: vec![0], data: vec![].into() };
        assert!(classify(&tensor, 1, false).unwrap_err().contains("output `y` is BYTES"));
    }
}
