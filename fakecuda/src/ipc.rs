//! Memory of one process opened by another: a handle names the process, its memory file and a piece of that.
//!
//! Opened memory counts to the process that made it.

use crate::arena::{self, Piece};
use crate::boundary::Out;
use crate::code::{Code, Status};
use crate::current;
use crate::driver::process;
use crate::memory::{self, Allocation, Kind};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

/// `CUipcMemHandle`: 64 bytes, which travel by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryHandle {
    pid: u64,
    file: u64,
    offset: u64,
    bytes: u64,
    mapped: u64,
    magic: u64,
    unused: [u64; 2],
}

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipc1");

pub(crate) fn cuIpcGetMemHandle(out: Out<MemoryHandle>, address: u64) -> Status {
    let process = process()?;
    let (_, found) = memory::find(&process, address).ok_or(Code::INVALID_VALUE)?;
    let piece = found.piece.ok_or(Code::INVALID_VALUE)?;
    out.set(MemoryHandle {
        pid: u64::from(std::process::id()),
        file: arena::file()? as u64,
        offset: piece.offset,
        bytes: found.bytes as u64,
        mapped: piece.bytes as u64,
        magic: MAGIC,
        unused: [0; 2],
    })
}

pub(crate) fn cuIpcOpenMemHandle(out: Out<u64>, handle: MemoryHandle, _flags: u32) -> Status {
    let context = current::current()?;
    let device = current::device()?;
    // Its own memory a process has already.
    if handle.magic != MAGIC || handle.pid == u64::from(std::process::id()) {
        return Err(Code::INVALID_CONTEXT);
    }
    let path = format!("/proc/{}/fd/{}", handle.pid, handle.file);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| Code::INVALID_VALUE)?;
    let piece = Piece { offset: handle.offset, bytes: handle.mapped as usize };
    let address = arena::map_file(file.as_raw_fd(), piece)?;
    let bytes = handle.bytes as usize;
    let opened = Allocation { device, context, bytes, counted: 0, piece: None, kind: Kind::Opened, pool: 0 };
    process()?.allocations.insert(address, opened);
    out.set(address)
}

pub(crate) fn cuIpcCloseMemHandle(address: u64) -> Status {
    match process()?.allocations.get(&address) {
        Some(found) if found.kind == Kind::Opened => {}
        _ => return Err(Code::INVALID_VALUE),
    }
    memory::free(address)
}
