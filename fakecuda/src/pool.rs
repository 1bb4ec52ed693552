//! Memory pools and stream-ordered allocation.
//!
//! A pool keeps nothing: memory freed in a stream's order is free at once, so a pool holds exactly what is in use.

use crate::boundary::{In, Out};
use crate::capture;
use crate::code::{Code, Status};
use crate::driver::{Handle, gpu, process};
use crate::memory::{self, Kind};
pub(crate) use crate::objects::Pool;
use crate::stream;

/// `CUmemPoolProps`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location: i32,
}

fn insert(device: i32) -> Result<Handle, Code> {
    gpu(device)?;
    let mut process = process()?;
    let handle = process.new_handle();
    process.pools.0.insert(handle, Pool { device, threshold: 0, used_bytes: 0, peak_bytes: 0 });
    Ok(handle)
}

/// The pool that a device has from the beginning.
pub(crate) fn of_device(device: i32) -> Result<Handle, Code> {
    let index = gpu(device)?.index();
    let known = process()?.default_pools[index];
    if known != 0 {
        return Ok(known);
    }
    let made = insert(device)?;
    process()?.default_pools[index] = made;
    Ok(made)
}

fn allocate(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Status {
    if bytes == 0 || out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let device = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        // In a capture this is a node that makes memory for the graph; it is made here and now.
        capture::of_stream(&mut process, stream)?;
        process.pools.get(pool)?.device
    };
    let address = memory::allocate_on(device, bytes, Kind::Device)?;
    let mut process = process()?;
    if let Some(made) = process.allocations.get_mut(&address) {
        made.pool = pool;
    }
    let pool = process.pools.get_mut(pool)?;
    pool.used_bytes += bytes as u64;
    pool.peak_bytes = pool.peak_bytes.max(pool.used_bytes);
    out.set(address)
}

pub(crate) fn cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Handle) -> Status {
    let device = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        process.streams.get(stream)?.device
    };
    allocate(out, bytes, of_device(device)?, stream)
}

pub(crate) fn cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Status {
    allocate(out, bytes, pool, stream)
}

pub(crate) fn cuMemFreeAsync(address: u64, stream: Handle) -> Status {
    {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        capture::of_stream(&mut process, stream)?;
    }
    memory::free(address)
}

pub(crate) fn cuMemPoolCreate(out: Out<Handle>, properties: In<PoolProperties>) -> Status {
    let properties = properties.get()?;
    if properties.location_type != 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    out.set(insert(properties.location)?)
}

pub(crate) fn cuMemPoolDestroy(pool: Handle) -> Status {
    let mut process = process()?;
    if process.default_pools.contains(&pool) {
        return Err(Code::INVALID_VALUE);
    }
    process.pools.remove(pool).map(|_| ())
}

pub(crate) fn cuMemPoolTrimTo(pool: Handle, _keep: usize) -> Status {
    process()?.pools.get(pool).map(|_| ())
}

pub(crate) fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<u64>) -> Status {
    let mut process = process()?;
    let pool = process.pools.get_mut(pool)?;
    match attribute {
        // Three switches, of 32 bits, that say what memory may be used again when.
        1..=3 => {}
        4 => pool.threshold = value.get()?,
        6 | 8 => pool.peak_bytes = pool.used_bytes,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, out: Out<u64>) -> Status {
    let pool = *process()?.pools.get(pool)?;
    match attribute {
        1..=3 => Out::<u32>::from(out).set(1),
        4 => out.set(pool.threshold),
        5 | 7 => out.set(pool.used_bytes),
        6 | 8 => out.set(pool.peak_bytes),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) fn cuMemPoolSetAccess(pool: Handle, _access: In<[u32; 3]>, _count: usize) -> Status {
    process()?.pools.get(pool).map(|_| ())
}

pub(crate) fn cuDeviceGetMemPool(out: Out<Handle>, device: i32) -> Status {
    out.set(of_device(device)?)
}

pub(crate) fn cuDeviceSetMemPool(device: i32, pool: Handle) -> Status {
    let index = gpu(device)?.index();
    let mut process = process()?;
    process.pools.get(pool)?;
    process.default_pools[index] = pool;
    Ok(())
}
