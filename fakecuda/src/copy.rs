//! Copying and setting memory.
//!
//! Bytes move at once, since kernels change none; a synchronous copy then waits for its stream, an asynchronous one is done
//! when the stream reaches it. Neither takes time on the GPU. An asynchronous copy to memory of the host that is not pinned
//! returns when it is done, as the driver has it.

use crate::boundary::copy_bytes;
use crate::capture;
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Handle, process};
use crate::graph::Kind;
use crate::host_memory;
use crate::queue::{self, Work};
use crate::stream;

fn synchronous(target: u64, source: u64, bytes: usize) -> Status {
    current::current()?;
    let end = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, 0)?;
        capture::forbid_unsafe(&mut process)?;
        capture::forbid_stream(&mut process, stream)?;
        stream::end_of(&process, stream)?
    };
    queue::synchronize(end)?;
    copy_bytes(target, source, bytes)
}

fn asynchronous(stream: Handle, kind: Kind, transfer: impl FnOnce() -> Status) -> Status {
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    if capture::record(&mut process, stream, kind)? {
        return Ok(());
    }
    let device = process.streams.get(stream)?.device;
    let end = queue::submit(&mut process, device, Work::Marker)?;
    process.streams.get_mut(stream)?.end = end;
    transfer()
}

pub(crate) fn cuMemcpy(target: u64, source: u64, bytes: usize) -> Status {
    synchronous(target, source, bytes)
}

pub(crate) fn cuMemcpyAsync(target: u64, source: u64, bytes: usize, stream: Handle) -> Status {
    asynchronous(stream, Kind::Copy, || copy_bytes(target, source, bytes))
}

pub(crate) fn cuMemcpyDtoHAsync(target: u64, source: u64, bytes: usize, stream: Handle) -> Status {
    cuMemcpyAsync(target, source, bytes, stream)?;
    let end = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        if host_memory::is_pinned(&process, target) || process.streams.get(stream)?.capture.is_some() {
            return Ok(());
        }
        stream::end_of(&process, stream)?
    };
    queue::synchronize(end)
}

pub(crate) fn cuMemcpyPeer(target: u64, _to: Handle, source: u64, _from: Handle, bytes: usize) -> Status {
    synchronous(target, source, bytes)
}

pub(crate) fn cuMemcpyPeerAsync(
    target: u64,
    _to: Handle,
    source: u64,
    _from: Handle,
    bytes: usize,
    stream: Handle,
) -> Status {
    cuMemcpyAsync(target, source, bytes, stream)
}

fn fill(target: u64, pattern: &[u8], count: usize) -> Status {
    if target == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let page: Vec<u8> = pattern.iter().copied().cycle().take(65_536).collect();
    let bytes = count * pattern.len();
    for offset in (0..bytes).step_by(page.len()) {
        copy_bytes(target + offset as u64, page.as_ptr() as u64, page.len().min(bytes - offset))?;
    }
    Ok(())
}

fn set(target: u64, pattern: &[u8], count: usize, stream: Handle) -> Status {
    asynchronous(stream, Kind::Set, || fill(target, pattern, count))
}

pub(crate) fn cuMemsetD8(target: u64, value: u8, count: usize) -> Status {
    set(target, &[value], count, 0)
}

pub(crate) fn cuMemsetD8Async(target: u64, value: u8, count: usize, stream: Handle) -> Status {
    set(target, &[value], count, stream)
}

pub(crate) fn cuMemsetD16(target: u64, value: u16, count: usize) -> Status {
    set(target, &value.to_ne_bytes(), count, 0)
}

pub(crate) fn cuMemsetD16Async(target: u64, value: u16, count: usize, stream: Handle) -> Status {
    set(target, &value.to_ne_bytes(), count, stream)
}

pub(crate) fn cuMemsetD32(target: u64, value: u32, count: usize) -> Status {
    set(target, &value.to_ne_bytes(), count, 0)
}

pub(crate) fn cuMemsetD32Async(target: u64, value: u32, count: usize, stream: Handle) -> Status {
    set(target, &value.to_ne_bytes(), count, stream)
}
