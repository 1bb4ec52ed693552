//! Contexts: when a GPU comes into use, and what goes when a context goes.

#![deny(unsafe_code)]

use crate::allocations::ALLOCATIONS;
use crate::boundary::Driver;
use crate::ops::code;
use crate::types::{Context, CuResult, Device, Opaque, Out, SUCCESS};
use crate::{current, gpu};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

pub(crate) fn retain(driver: &Driver<'_>, out: Out<Context>, device: Device) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = current::of(device)
        && let Some(context) = out.get()
    {
        gpu.primary.store(context.0, Ordering::Relaxed);
        gpu.primary_holders.fetch_add(1, Ordering::Relaxed);
    }
    result
}

pub(crate) fn release(driver: &Driver<'_>, device: Device) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = usize::try_from(device.0).ok().and_then(gpu::at)
    {
        let less = |holders: u32| holders.checked_sub(1);
        if gpu.primary_holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1) {
            gone(gpu.primary.load(Ordering::Relaxed));
        }
    }
    result
}

pub(crate) fn reset(driver: &Driver<'_>, device: Device) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = usize::try_from(device.0).ok().and_then(gpu::at)
    {
        gone(gpu.primary.load(Ordering::Relaxed));
    }
    result
}

pub(crate) fn create(driver: &Driver<'_>, _: Out<Context>, _: c_uint, device: Device) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        current::of(device);
    }
    result
}

pub(crate) fn create_3(
    driver: &Driver<'_>,
    out: Out<Context>,
    _: Opaque,
    _: c_int,
    flags: c_uint,
    device: Device,
) -> CuResult {
    create(driver, out, flags, device)
}

pub(crate) fn create_4(driver: &Driver<'_>, out: Out<Context>, _: Opaque, flags: c_uint, device: Device) -> CuResult {
    create(driver, out, flags, device)
}

pub(crate) fn destroy(driver: &Driver<'_>, context: Context) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        gone(context.0);
    }
    result
}

/// What belonged to a context is gone with it: its memory, its events, its functions.
fn gone(context: usize) {
    let holdings = ALLOCATIONS.lock().take_context(context);
    for holding in holdings {
        if let Some(gpu) = gpu::at(holding.gpu) {
            gpu.give_back(holding.bytes);
        }
    }
    for gpu in gpu::in_use() {
        gpu.publish_untracked();
        gpu.samples.forget_context(context);
        if gpu.primary.load(Ordering::Relaxed) == context {
            gpu.sm_cap.forget_parts();
        }
    }
    code::forget();
}
