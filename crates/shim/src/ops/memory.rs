//! Memory: every way to get some is counted before and refused over the limit; every way to give it back is counted.

#![deny(unsafe_code)]

use crate::allocations::{ALLOCATIONS, Holding, Kind};
use crate::boundary::Driver;
use crate::gpu::{self, Gpu};
use crate::types::{
    Allocation, AllocationProperties, Array, Array3dDescriptor, ArrayDescriptor, CuResult, Device, DevicePointer,
    IpcHandle, OUT_OF_MEMORY, Other, Out, SUCCESS, Stream,
};
use crate::{current, real};
use std::ffi::{c_uint, c_ulonglong};

/// Rows are padded to a multiple of this, or less.
const PITCH: u64 = 512;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_uint = 1;

pub(crate) fn alloc(driver: &Driver<'_>, out: Out<DevicePointer>, bytes: usize) -> CuResult {
    pointer(driver, current::current(), out, bytes as u64)
}

pub(crate) fn alloc_managed(driver: &Driver<'_>, out: Out<DevicePointer>, bytes: usize, _: c_uint) -> CuResult {
    pointer(driver, current::current(), out, bytes as u64)
}

pub(crate) fn alloc_async(driver: &Driver<'_>, out: Out<DevicePointer>, bytes: usize, stream: Stream) -> CuResult {
    pointer(driver, current::of_stream(stream), out, bytes as u64)
}

/// A pool of another GPU than the stream's is taken for one of the stream's: the driver does not say whose a pool is.
pub(crate) fn alloc_pool(
    driver: &Driver<'_>,
    out: Out<DevicePointer>,
    bytes: usize,
    _: Other,
    stream: Stream,
) -> CuResult {
    pointer(driver, current::of_stream(stream), out, bytes as u64)
}

fn pointer(driver: &Driver<'_>, gpu: Option<&'static Gpu>, out: Out<DevicePointer>, bytes: u64) -> CuResult {
    allocate(driver, gpu, Kind::Pointer, bytes, || Some((out.get()?.0, bytes)))
}

pub(crate) fn alloc_pitch(
    driver: &Driver<'_>,
    out: Out<DevicePointer>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    _: c_uint,
) -> CuResult {
    let row = (width as u64).checked_next_multiple_of(PITCH).unwrap_or(u64::MAX);
    let bytes = row.saturating_mul(height as u64);
    allocate(driver, current::current(), Kind::Pointer, bytes, || {
        let real = (pitch.get()? as u64).saturating_mul(height as u64);
        Some((out.get()?.0, real))
    })
}

pub(crate) fn array(driver: &Driver<'_>, out: Out<Array>, descriptor: Out<ArrayDescriptor>) -> CuResult {
    let bytes = descriptor.get().map_or(0, |array| {
        texels(array.width, array.height, 1).saturating_mul(texel_bytes(array.format, array.channels))
    });
    allocate(driver, current::current(), Kind::Array, bytes, || Some((out.get()?.0 as u64, bytes)))
}

pub(crate) fn array_3d(driver: &Driver<'_>, out: Out<Array>, descriptor: Out<Array3dDescriptor>) -> CuResult {
    mipmapped(driver, out, descriptor, 1)
}

pub(crate) fn mipmapped(
    driver: &Driver<'_>,
    out: Out<Array>,
    descriptor: Out<Array3dDescriptor>,
    levels: c_uint,
) -> CuResult {
    let bytes = descriptor.get().map_or(0, |array| {
        let level = |level: u32| {
            let side = |length: usize| if length == 0 { 0 } else { (length >> level).max(1) };
            texels(side(array.width), side(array.height), side(array.depth))
        };
        let all = (0..levels.clamp(1, 32)).fold(0u64, |sum, number| sum.saturating_add(level(number)));
        all.saturating_mul(texel_bytes(array.format, array.channels))
    });
    allocate(driver, current::current(), Kind::Array, bytes, || Some((out.get()?.0 as u64, bytes)))
}

fn texels(width: usize, height: usize, depth: usize) -> u64 {
    [width, height, depth].iter().fold(1u64, |product, side| product.saturating_mul((*side as u64).max(1)))
}

/// `CUarray_format`: bytes are in the low four bits' place of the common ones, and one of the rest is never more than 4.
fn texel_bytes(format: c_uint, channels: c_uint) -> u64 {
    let bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    };
    bytes * u64::from(channels.clamp(1, 4))
}

/// Takes the bytes, lets the driver do it, and writes down under which key and how much it came to.
fn allocate(
    driver: &Driver<'_>,
    gpu: Option<&'static Gpu>,
    kind: Kind,
    bytes: u64,
    made: impl FnOnce() -> Option<(u64, u64)>,
) -> CuResult {
    let Some(gpu) = gpu else { return driver.call() };
    if !gpu.take(bytes) {
        return OUT_OF_MEMORY;
    }
    let result = driver.call();
    let made = if result == SUCCESS { made() } else { None };
    let Some((key, real)) = made else {
        gpu.give_back(bytes);
        return result;
    };
    if real < bytes {
        gpu.give_back(bytes - real);
    }
    let context = real::current_context().map_or(0, |context| context.0);
    let holding = Holding { gpu: gpu.index, bytes: real.min(bytes), context };
    let before = ALLOCATIONS.lock().put(kind, key, holding);
    give_back(before);
    result
}

pub(crate) fn free(driver: &Driver<'_>, pointer: DevicePointer) -> CuResult {
    give(driver, Kind::Pointer, pointer.0)
}

pub(crate) fn free_async(driver: &Driver<'_>, pointer: DevicePointer, _: Stream) -> CuResult {
    give(driver, Kind::Pointer, pointer.0)
}

pub(crate) fn array_destroy(driver: &Driver<'_>, array: Array) -> CuResult {
    give(driver, Kind::Array, array.0 as u64)
}

fn give(driver: &Driver<'_>, kind: Kind, key: u64) -> CuResult {
    let holding = ALLOCATIONS.lock().take(kind, key);
    let result = driver.call();
    match holding {
        Some(holding) if result != SUCCESS => {
            let before = ALLOCATIONS.lock().put(kind, key, holding);
            give_back(before);
        }
        holding => give_back(holding),
    }
    result
}

fn give_back(holding: Option<Holding>) {
    if let Some(holding) = holding {
        give_back_to(holding.gpu, holding.bytes);
    }
}

fn give_back_to(gpu: usize, bytes: u64) {
    if let Some(gpu) = gpu::at(gpu) {
        gpu.give_back(bytes);
    }
}

pub(crate) fn create(
    driver: &Driver<'_>,
    out: Out<Allocation>,
    bytes: usize,
    properties: Out<AllocationProperties>,
    _: c_ulonglong,
) -> CuResult {
    let gpu: Option<&'static Gpu> = match properties.get() {
        Some(properties) if properties.location == ON_DEVICE => current::of(Device(properties.device)),
        // The host's memory is not the GPU's.
        _ => None,
    };
    let Some(gpu) = gpu else { return driver.call() };
    if !gpu.take(bytes as u64) {
        return OUT_OF_MEMORY;
    }
    let result = driver.call();
    match out.get() {
        Some(handle) if result == SUCCESS => ALLOCATIONS.lock().create(handle.0, gpu.index, bytes as u64),
        _ => gpu.give_back(bytes as u64),
    }
    result
}

pub(crate) fn release(driver: &Driver<'_>, allocation: Allocation) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        let free = ALLOCATIONS.lock().release(allocation.0);
        if let Some((gpu, bytes)) = free {
            give_back_to(gpu, bytes);
        }
    }
    result
}

pub(crate) fn retain(driver: &Driver<'_>, out: Out<Allocation>, address: usize) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(handle) = out.get()
    {
        ALLOCATIONS.lock().retain(address as u64, handle.0);
    }
    result
}

pub(crate) fn map(
    driver: &Driver<'_>,
    pointer: DevicePointer,
    bytes: usize,
    _: usize,
    allocation: Allocation,
    _: c_ulonglong,
) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        ALLOCATIONS.lock().map(pointer.0, bytes as u64, allocation.0);
    }
    result
}

pub(crate) fn unmap(driver: &Driver<'_>, pointer: DevicePointer, bytes: usize) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        let free = ALLOCATIONS.lock().unmap(pointer.0, bytes as u64);
        for (gpu, bytes) in free {
            give_back_to(gpu, bytes);
        }
    }
    result
}

/// Memory of another process is charged to that process, and here to nobody; it is known, so that closing it is too.
pub(crate) fn ipc_open(driver: &Driver<'_>, out: Out<DevicePointer>, _: IpcHandle, _: c_uint) -> CuResult {
    pointer(driver, current::current(), out, 0)
}

pub(crate) fn ipc_close(driver: &Driver<'_>, pointer: DevicePointer) -> CuResult {
    give(driver, Kind::Pointer, pointer.0)
}
