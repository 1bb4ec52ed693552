//! Functions: what they are called, and when that ends.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::identity::KERNELS;
use crate::types::{CuResult, Function, Other, Out, SUCCESS, Text, bytes};
use crate::{gpu, notes};

/// A function is looked up by its name.
pub(crate) fn named(driver: &Driver<'_>, out: Out<Function>, _: Other, name: Text) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let (Some(function), Some(name)) = (out.get(), bytes(name))
    {
        notes::is_named(function.0, name);
    }
    result
}

/// The function of a kernel: two handles of the same.
pub(crate) fn also(driver: &Driver<'_>, out: Out<Function>, kernel: Function) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(function) = out.get()
    {
        notes::is_also(function.0, kernel.0);
    }
    result
}

/// A module or library is unloaded: handles of its functions may be given to others.
pub(crate) fn unload(driver: &Driver<'_>, _: Other) -> CuResult {
    let result = driver.call();
    forget();
    result
}

/// Handles of functions may mean others from here on.
pub(crate) fn forget() {
    KERNELS.forget_kernels();
    for gpu in gpu::in_use() {
        gpu.clock.forget();
    }
}
