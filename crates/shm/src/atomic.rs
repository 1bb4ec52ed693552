//! The atomics that pages are made of. Under `--cfg loom` they are loom's, which try every order that the memory model
//! allows; those are larger and cannot lie in shared memory, so what maps pages is not there then.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
