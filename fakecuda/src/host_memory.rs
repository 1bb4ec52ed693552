//! Memory of the host that the driver knows of. It counts to nobody.

use crate::arena;
use crate::boundary::Out;
use crate::capture;
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Process, process};

pub(crate) fn cuMemHostAlloc(out: Out<u64>, bytes: usize, _flags: u32) -> Status {
    current::current()?;
    if bytes == 0 || out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut process = process()?;
    capture::forbid_unsafe(&mut process)?;
    let address = arena::map_host(bytes)?;
    process.host_allocations.insert(address, bytes);
    out.set(address)
}

pub(crate) fn cuMemAllocHost(out: Out<u64>, bytes: usize) -> Status {
    cuMemHostAlloc(out, bytes, 0)
}

pub(crate) fn cuMemFreeHost(address: u64) -> Status {
    let bytes = process()?.host_allocations.remove(&address).ok_or(Code::INVALID_VALUE)?;
    arena::unmap(address, bytes);
    Ok(())
}

pub(crate) fn cuMemHostRegister(address: u64, bytes: usize, _flags: u32) -> Status {
    current::current()?;
    if address == 0 || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    match process()?.host_allocations.insert(address, bytes) {
        None => Ok(()),
        Some(_) => Err(Code::HOST_MEMORY_ALREADY_REGISTERED),
    }
}

pub(crate) fn cuMemHostUnregister(address: u64) -> Status {
    process()?.host_allocations.remove(&address).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
}

/// Whether the driver knows of this memory.
pub(crate) fn is_pinned(process: &Process, address: u64) -> bool {
    let below = process.host_allocations.range(..=address).next_back();
    below.is_some_and(|(start, bytes)| address < start + *bytes as u64)
}

pub(crate) fn cuMemHostGetDevicePointer(out: Out<u64>, address: u64, _flags: u32) -> Status {
    if !is_pinned(&*process()?, address) {
        return Err(Code::INVALID_VALUE);
    }
    out.set(address)
}

pub(crate) fn cuMemHostGetFlags(out: Out<u32>, address: u64) -> Status {
    process()?.host_allocations.get(&address).ok_or(Code::INVALID_VALUE)?;
    out.set(0)
}
