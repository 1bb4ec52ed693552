//! Channel groups.
pub(crate) fn open(_device: i32) {}
