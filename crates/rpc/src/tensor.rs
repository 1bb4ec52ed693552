//! Tensors as they travel: a name, a type, a shape and the bytes.
//!
//! The bytes are little-endian and row-major, as in the protocol's raw form. Elements of `BYTES` each carry their
//! length in four bytes before them.

use bytes::Bytes;
use config::DataType;
use std::sync::Arc;

/// A tensor on its way. Whoever decodes one sees to it that `data` holds what `shape` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What the model calls it.
    pub name: Arc<str>,
    /// What its elements are.
    pub datatype: DataType,
    /// Its dimensions, the batch first.
    pub shape: Vec<usize>,
    /// Its elements.
    pub data: Bytes,
}

/// How many elements a shape holds; `None` when that overflows.
pub fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, dimension| product.checked_mul(*dimension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_dimensions_do_not_wrap() {
        assert_eq!(elements(&[2, 3, 4]), Some(24));
        assert_eq!(elements(&[]), Some(1));
        assert_eq!(elements(&[usize::MAX, 2]), None);
    }
}
