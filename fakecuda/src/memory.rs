//! Device memory: allocating, freeing, how much there is, and what an address is.
//!
//! What counts is what was asked for, to the byte; for pitched memory, the padded size. Managed memory counts as device
//! memory, and so does an array. Memory counts until it is freed, its context is destroyed, or its process ends.

use crate::arena;
use crate::boundary::{In, Out};
use crate::capture;
use crate::code::{Code, Status};
use crate::current::{self, current_device};
use crate::driver::{Handle, Process, gpu, process, slot};
pub(crate) use crate::objects::{Allocation, MemoryKind as Kind};
use crate::queue;

/// Counts memory to this process if the GPU has it.
pub(crate) fn charge(device: i32, bytes: u64) -> Status {
    let (gpu, slot) = (gpu(device)?, slot(device)?);
    let attempt = || {
        gpu.update(|book| {
            if bytes > gpu.total_bytes().saturating_sub(book.used_bytes()) {
                return false;
            }
            let slot = &mut book.slots[slot];
            slot.used_bytes += bytes;
            slot.peak_bytes = slot.peak_bytes.max(slot.used_bytes);
            slot.allocations += 1;
            true
        })
    };
    if attempt() {
        return Ok(());
    }
    // Somebody may have died with what is missing.
    gpu.look();
    if attempt() {
        return Ok(());
    }
    queue::count(device, |slot| slot.refused += 1)?;
    Err(Code::OUT_OF_MEMORY)
}

/// Counts memory to this process no more.
pub(crate) fn discharge(device: i32, bytes: u64) -> Status {
    queue::count(device, |slot| slot.used_bytes -= bytes)
}

/// Makes memory of the current device.
pub(crate) fn allocate(bytes: usize, kind: Kind) -> Result<u64, Code> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let device = current::device()?;
    allocate_on(device, bytes, kind)
}

/// Makes memory of a device.
pub(crate) fn allocate_on(device: i32, bytes: usize, kind: Kind) -> Result<u64, Code> {
    charge(device, bytes as u64)?;
    let made = arena::take(bytes).and_then(|piece| arena::map(piece).map(|address| (piece, address)));
    let (piece, address) = match made {
        Ok(made) => made,
        Err(code) => return discharge(device, bytes as u64).and(Err(code)),
    };
    let context = current::current().unwrap_or(0);
    let counted = bytes as u64;
    process()?
        .allocations
        .insert(address, Allocation { device, context, bytes, counted, piece: Some(piece), kind, pool: 0 });
    Ok(address)
}

/// Memory that counts to nobody and stays.
pub(crate) fn uncounted(bytes: usize) -> Result<u64, Code> {
    arena::map(arena::take(bytes)?)
}

/// Frees memory that begins at an address.
pub(crate) fn free(address: u64) -> Status {
    let freed = {
        let mut process = process()?;
        let freed = process.allocations.remove(&address).ok_or(Code::INVALID_VALUE)?;
        if let Ok(pool) = process.pools.get_mut(freed.pool) {
            pool.used_bytes -= freed.counted;
        }
        freed
    };
    release(address, freed)
}

fn release(address: u64, freed: Allocation) -> Status {
    arena::unmap(address, freed.piece.map_or(freed.bytes, |piece| piece.bytes));
    if let Some(piece) = freed.piece {
        arena::give_back(piece);
    }
    if freed.counted == 0 { Ok(()) } else { discharge(freed.device, freed.counted) }
}

/// Frees what was made in a context.
pub(crate) fn free_context(process: &mut Process, context: Handle) -> Status {
    let addresses: Vec<u64> = process
        .allocations
        .iter()
        .filter(|(_, allocation)| allocation.context == context)
        .map(|(address, _)| *address)
        .collect();
    for address in addresses {
        if let Some(freed) = process.allocations.remove(&address) {
            release(address, freed)?;
        }
    }
    Ok(())
}

/// The memory that an address lies in, and where that begins.
pub(crate) fn find(process: &Process, address: u64) -> Option<(u64, Allocation)> {
    let (start, found) = process.allocations.range(..=address).next_back()?;
    (address < start + found.bytes as u64).then_some((*start, *found))
}

pub(crate) fn cuMemAlloc(out: Out<u64>, bytes: usize) -> Status {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    current::current()?;
    capture::forbid_unsafe(&mut *process()?)?;
    out.set(allocate(bytes, Kind::Device)?)
}

pub(crate) fn cuMemAllocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Status {
    if !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    let padded = width.checked_next_multiple_of(512).ok_or(Code::OUT_OF_MEMORY)?;
    let bytes = padded.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
    cuMemAlloc(out, bytes)?;
    pitch.set(padded)
}

pub(crate) fn cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) -> Status {
    if out.is_null() || !matches!(flags, 1 | 2) {
        return Err(Code::INVALID_VALUE);
    }
    current::current()?;
    capture::forbid_unsafe(&mut *process()?)?;
    out.set(allocate(bytes, Kind::Managed)?)
}

pub(crate) fn cuMemFree(address: u64) -> Status {
    if address == 0 {
        return Ok(());
    }
    let device = {
        let mut process = process()?;
        capture::forbid_unsafe(&mut process)?;
        let found = process.allocations.get(&address).ok_or(Code::INVALID_VALUE)?;
        if !matches!(found.kind, Kind::Device | Kind::Managed) {
            return Err(Code::INVALID_VALUE);
        }
        found.device
    };
    queue::synchronize(queue::end(device)?)?;
    free(address)
}

pub(crate) fn cuMemGetInfo(free: Out<usize>, total: Out<usize>) -> Status {
    let gpu = gpu(current::device()?)?;
    let used = gpu.update(|book| book.used_bytes());
    free.set((gpu.total_bytes() - used) as usize)?;
    total.set(gpu.total_bytes() as usize)
}

pub(crate) fn cuMemGetAddressRange(base: Out<u64>, bytes: Out<usize>, address: u64) -> Status {
    let process = process()?;
    let (start, found) = find(&process, address).ok_or(Code::NOT_FOUND)?;
    base.offer(start);
    bytes.offer(found.bytes);
    Ok(())
}

pub(crate) fn cuMemPrefetchAsync(_address: u64, _bytes: usize, _device: i32, _stream: Handle) -> Status {
    current::current().map(|_| ())
}

pub(crate) fn cuMemPrefetchAsync_v2(
    _address: u64,
    _bytes: usize,
    _location: u64,
    _flags: u32,
    _stream: Handle,
) -> Status {
    current::current().map(|_| ())
}

pub(crate) fn cuMemAdvise(_address: u64, _bytes: usize, _advice: u32, _device: i32) -> Status {
    current::current().map(|_| ())
}

pub(crate) fn cuPointerGetAttribute(out: Out<u64>, attribute: u32, address: u64) -> Status {
    let process = process()?;
    let found = find(&process, address);
    let host = process.host_allocations.range(..=address).next_back();
    let host = host.filter(|(start, bytes)| address < **start + **bytes as u64);
    if found.is_none() && host.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let device = found.map_or_else(|| current_device(&process), |(_, found)| Ok(found.device))?;
    let narrow = Out::<u32>::from(out);
    match attribute {
        1 => out.set(found.map_or_else(|| current::current().unwrap_or(0), |(_, found)| found.context) as u64),
        2 => narrow.set(if found.is_some() { 2 } else { 1 }),
        3 | 4 => out.set(address),
        7 => out.set(found.map_or(address, |(start, _)| start + 1)),
        8 => narrow.set(found.is_some_and(|(_, found)| found.kind == Kind::Managed) as u32),
        9 => narrow.set(device as u32),
        11 => out.set(found.map_or_else(|| host.map_or(0, |(start, _)| *start), |(start, _)| start)),
        12 => out.set(found.map_or_else(|| host.map_or(0, |(_, bytes)| *bytes), |(_, found)| found.bytes) as u64),
        13 => narrow.set(1),
        _ => narrow.set(0),
    }
}

pub(crate) fn cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<u64>>, address: u64) -> Status {
    for index in 0..count as usize {
        let out = values.at(index)?;
        // An address that nobody knows is answered with zeros, not with an error.
        if cuPointerGetAttribute(out, attributes.at(index)?, address).is_err() {
            Out::<u32>::from(out).offer(0);
        }
    }
    Ok(())
}

pub(crate) fn cuPointerSetAttribute(_value: In<u64>, _attribute: u32, address: u64) -> Status {
    find(&*process()?, address).map(|_| ()).ok_or(Code::INVALID_VALUE)
}
