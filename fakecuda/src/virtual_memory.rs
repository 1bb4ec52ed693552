//! Virtual memory management: memory without an address, addresses without memory, and bringing the two together.
//!
//! Memory counts from `cuMemCreate` until it was released and is mapped nowhere any more.

use crate::arena;
use crate::boundary::{In, Out};
use crate::code::{Code, Status};
use crate::driver::{Handle, gpu, process};
use crate::memory;
pub(crate) use crate::objects::{Physical, Reservation};
use std::collections::BTreeMap;

/// What sizes and addresses must be multiples of.
const GRANULARITY: usize = 2 << 20;

/// `CUmemAllocationProp`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Access {
    location_type: u32,
    location: i32,
    flags: u32,
}

pub(crate) fn cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, _option: u32) -> Status {
    properties.get()?;
    out.set(GRANULARITY)
}

pub(crate) fn cuMemCreate(out: Out<u64>, bytes: usize, properties: In<Properties>, flags: u64) -> Status {
    let properties = properties.get()?;
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 || properties.location_type != 1 {
        return Err(Code::INVALID_VALUE);
    }
    gpu(properties.location)?;
    memory::charge(properties.location, bytes as u64)?;
    let piece = match arena::take(bytes) {
        Ok(piece) => piece,
        Err(code) => return memory::discharge(properties.location, bytes as u64).and(Err(code)),
    };
    let mut process = process()?;
    let handle = process.new_handle();
    process.physical.0.insert(handle, Physical { device: properties.location, piece, users: 1 });
    out.set(handle as u64)
}

/// One user less; the last one lets the memory go.
fn leave(handle: Handle) -> Status {
    let gone = {
        let mut process = process()?;
        let physical = process.physical.get_mut(handle).map_err(|_| Code::INVALID_VALUE)?;
        physical.users -= 1;
        if physical.users > 0 {
            return Ok(());
        }
        process.physical.remove(handle)?
    };
    arena::give_back(gone.piece);
    memory::discharge(gone.device, gone.piece.bytes as u64)
}

pub(crate) fn cuMemRelease(handle: u64) -> Status {
    leave(handle as Handle)
}

pub(crate) fn cuMemRetainAllocationHandle(out: Out<u64>, address: u64) -> Status {
    let mut process = process()?;
    let (_, reservation) = process.reservations.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    let (start, (bytes, handle)) = reservation.mapped.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    if address >= start + *bytes as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let handle = *handle;
    process.physical.get_mut(handle)?.users += 1;
    out.set(handle as u64)
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(out: Out<Properties>, handle: u64) -> Status {
    let process = process()?;
    let location = process.physical.get(handle as Handle)?.device;
    out.set(Properties { allocation_type: 1, handle_types: 0, location_type: 1, location })
}

pub(crate) fn cuMemAddressReserve(out: Out<u64>, bytes: usize, alignment: usize, _hint: u64, _flags: u64) -> Status {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut process = process()?;
    let alignment = alignment.max(GRANULARITY);
    if !alignment.is_power_of_two() {
        return Err(Code::INVALID_VALUE);
    }
    let larger = bytes.checked_add(alignment).ok_or(Code::OUT_OF_MEMORY)?;
    let start = arena::reserve(0, larger)?;
    let aligned = start.next_multiple_of(alignment as u64);
    let before = (aligned - start) as usize;
    if before > 0 {
        arena::unmap(start, before);
    }
    arena::unmap(aligned + bytes as u64, alignment - before);
    process.reservations.insert(aligned, Reservation { bytes, mapped: BTreeMap::new() });
    out.set(aligned)
}

pub(crate) fn cuMemAddressFree(address: u64, bytes: usize) -> Status {
    let mut process = process()?;
    let found = process.reservations.get(&address).ok_or(Code::INVALID_VALUE)?;
    if found.bytes != bytes || !found.mapped.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    process.reservations.remove(&address);
    arena::unmap(address, bytes);
    Ok(())
}

pub(crate) fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) -> Status {
    let handle = handle as Handle;
    let mut process = process()?;
    let piece = process.physical.get(handle).map_err(|_| Code::INVALID_VALUE)?.piece;
    if offset != 0 || bytes != piece.bytes {
        return Err(Code::INVALID_VALUE);
    }
    let (start, reservation) = process.reservations.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    if address + bytes as u64 > start + reservation.bytes as u64 {
        return Err(Code::INVALID_VALUE);
    }
    let taken = reservation.mapped.range(..address + bytes as u64).next_back();
    if taken.is_some_and(|(other, (length, _))| other + *length as u64 > address) {
        return Err(Code::INVALID_VALUE);
    }
    arena::map_at(address, piece)?;
    reservation.mapped.insert(address, (bytes, handle));
    process.physical.get_mut(handle)?.users += 1;
    Ok(())
}

pub(crate) fn cuMemUnmap(address: u64, bytes: usize) -> Status {
    let gone: Vec<Handle> = {
        let mut process = process()?;
        let (_, reservation) = process.reservations.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        let end = address + bytes as u64;
        let inside: Vec<(u64, usize, Handle)> = reservation
            .mapped
            .range(address..end)
            .map(|(start, (length, handle))| (*start, *length, *handle))
            .collect();
        if inside.is_empty() || inside.iter().any(|(start, length, _)| start + *length as u64 > end) {
            return Err(Code::INVALID_VALUE);
        }
        for (start, length, _) in &inside {
            arena::reserve(*start, *length)?;
            reservation.mapped.remove(start);
        }
        inside.into_iter().map(|(_, _, handle)| handle).collect()
    };
    gone.into_iter().try_for_each(leave)
}

pub(crate) fn cuMemSetAccess(address: u64, bytes: usize, access: In<Access>, count: usize) -> Status {
    let process = process()?;
    let (_, reservation) = process.reservations.range(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    let mapped: usize = reservation.mapped.range(address..address + bytes as u64).map(|(_, (length, _))| *length).sum();
    if mapped != bytes {
        return Err(Code::INVALID_VALUE);
    }
    for index in 0..count {
        let access = access.at(index)?;
        arena::protect(address, bytes, access.flags & 1 != 0, access.flags == 3)?;
    }
    Ok(())
}

pub(crate) fn cuMemGetAccess(out: Out<u64>, _location: In<[u32; 2]>, _address: u64) -> Status {
    out.set(3)
}

/// Memory cannot be handed to other processes this way.
pub(crate) fn cuMemExportToShareableHandle(_out: Out<u64>, _handle: u64, _kind: u32, _flags: u64) -> Status {
    Err(Code::NOT_SUPPORTED)
}
