//! Where device memory really is: one sparse memory file for each process, pieces of which are mapped.
//!
//! Memory that nobody touches costs nothing, so that a stand-in GPU may have more of it than the machine. A piece can be
//! mapped at two addresses, or by another process, and shows the same bytes.

use crate::code::Code;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::{Mutex, OnceLock};

const PAGE: usize = 4096;

/// A piece of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

struct Arena {
    file: RawFd,
    end: Mutex<u64>,
}

fn arena() -> Result<&'static Arena, Code> {
    static ARENA: OnceLock<Option<Arena>> = OnceLock::new();
    let made = ARENA.get_or_init(|| {
        // SAFETY: the name is text that ends with a zero byte.
        let file = unsafe { libc::memfd_create(c"fakecuda-memory".as_ptr(), libc::MFD_CLOEXEC) };
        (file >= 0).then(|| Arena { file, end: Mutex::new(0) })
    });
    made.as_ref().ok_or(Code::OUT_OF_MEMORY)
}

/// The file's number in this process, by which another process finds it.
pub(crate) fn file() -> Result<RawFd, Code> {
    arena().map(|arena| arena.file)
}

/// Sets a piece of the file aside. It is all zeros.
pub(crate) fn take(bytes: usize) -> Result<Piece, Code> {
    let arena = arena()?;
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
    let mut end = arena.end.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let offset = *end;
    let longer = offset.checked_add(bytes as u64).filter(|longer| *longer < i64::MAX as u64);
    let longer = longer.ok_or(Code::OUT_OF_MEMORY)?;
    // SAFETY: changes the length of a file; the mappings of it lie below its old length.
    if unsafe { libc::ftruncate(arena.file, longer as i64) } != 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    *end = longer;
    Ok(Piece { offset, bytes })
}

/// Gives a piece back to the machine. Its place in the file is not used again.
pub(crate) fn give_back(piece: Piece) {
    let Ok(arena) = arena() else { return };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: makes zeros of a range of a file whose length stays; mappings of it, if there are any, read zeros.
    unsafe { libc::fallocate(arena.file, mode, piece.offset as i64, piece.bytes as i64) };
}

/// Maps a piece wherever there is room.
pub(crate) fn map(piece: Piece) -> Result<u64, Code> {
    map_file(file()?, piece)
}

/// Maps a piece of some process's file wherever there is room.
pub(crate) fn map_file(file: RawFd, piece: Piece) -> Result<u64, Code> {
    mmap(0, piece.bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, piece.offset)
}

/// Maps a piece over addresses that were reserved.
pub(crate) fn map_at(address: u64, piece: Piece) -> Result<(), Code> {
    mmap(address, piece.bytes, libc::PROT_NONE, libc::MAP_SHARED | libc::MAP_FIXED, file()?, piece.offset).map(|_| ())
}

/// Sets addresses aside without memory behind them, at `address` again or wherever there is room for zero.
pub(crate) fn reserve(address: u64, bytes: usize) -> Result<u64, Code> {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    mmap(address, bytes, libc::PROT_NONE, flags, -1, 0)
}

/// Memory of the host.
pub(crate) fn map_host(bytes: usize) -> Result<u64, Code> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    mmap(0, bytes.max(1), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
}

/// Says what may be done with mapped addresses.
pub(crate) fn protect(address: u64, bytes: usize, read: bool, write: bool) -> Result<(), Code> {
    let protection = match (read, write) {
        (_, true) => libc::PROT_READ | libc::PROT_WRITE,
        (true, false) => libc::PROT_READ,
        (false, false) => libc::PROT_NONE,
    };
    // SAFETY: the callers pass only ranges that they got from this file and did not unmap; Rust has no references there.
    let result = unsafe { libc::mprotect(address as *mut libc::c_void, bytes, protection) };
    if result == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Takes a mapping away.
pub(crate) fn unmap(address: u64, bytes: usize) {
    // SAFETY: the callers pass only ranges that they got from this file, once each; Rust has no references there.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes.max(1)) };
}

fn mmap(address: u64, bytes: usize, protection: c_int, flags: c_int, file: RawFd, offset: u64) -> Result<u64, Code> {
    // SAFETY: without `MAP_FIXED` the kernel chooses addresses that are free; with it, the callers name only addresses
    // that they reserved here, where Rust has no references.
    let start = unsafe { libc::mmap(address as *mut libc::c_void, bytes, protection, flags, file, offset as i64) };
    if start == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(start as u64) }
}
