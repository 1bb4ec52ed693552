//! Types of a tensor's elements, as people and the protocol name them.

/// The protocol's data types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
#[allow(missing_docs)]
pub enum DataType {
    Bool = 0,
    Uint8 = 1,
    Uint16 = 2,
    Uint32 = 3,
    Uint64 = 4,
    Int8 = 5,
    Int16 = 6,
    Int32 = 7,
    Int64 = 8,
    Fp16 = 9,
    Bf16 = 10,
    Fp32 = 11,
    Fp64 = 12,
    Bytes = 13,
}

impl DataType {
    /// All of them; entry `i` is the type with number `i`.
    pub const ALL: [DataType; 14] = [
        DataType::Bool,
        DataType::Uint8,
        DataType::Uint16,
        DataType::Uint32,
        DataType::Uint64,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Fp16,
        DataType::Bf16,
        DataType::Fp32,
        DataType::Fp64,
        DataType::Bytes,
    ];

    /// The word for it in requests.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32",
            "FP64", "BYTES",
        ];
        NAMES[self as usize]
    }

    /// The type a word stands for.
    pub fn parse(name: &str) -> Option<DataType> {
        DataType::ALL.into_iter().find(|datatype| datatype.name() == name)
    }

    /// Bytes per element; `None` for `BYTES`, whose elements differ.
    pub const fn size(self) -> Option<usize> {
        match self {
            DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(1),
            DataType::Uint16 | DataType::Int16 | DataType::Fp16 | DataType::Bf16 => Some(2),
            DataType::Uint32 | DataType::Int32 | DataType::Fp32 => Some(4),
            DataType::Uint64 | DataType::Int64 | DataType::Fp64 => Some(8),
            DataType::Bytes => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_name_and_one_number() {
        for (number, datatype) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(datatype as usize, number);
            assert_eq!(DataType::parse(datatype.name()), Some(datatype));
        }
        assert_eq!(DataType::parse("FP8"), None);
    }
}
