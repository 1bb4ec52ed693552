//! One stretch of shared memory: a memory file, mapped.
//!
//! Invariants:
//! 1. `pointer` is a mapping of the first `length` bytes of `file`, made by this segment and given back when it is
//!    dropped or replaced; nobody else unmaps it.
//! 2. The file is never shorter than `length`: files made here are sealed against shrinking by whoever has them, and
//!    [`Segment::open`] refuses a file without that seal. Touching the mapping therefore never faults.
//! 3. Every offset is checked against `length` before it is used.
//!
//! What they do not cover: the other process may write at any time. The processes take turns, by messages on a socket,
//! and whoever has the turn is alone with the memory. A process that breaks this gets torn bytes, never memory that is
//! not in the segment; nothing here or in the callers gives a meaning to bytes that some bit patterns lack without
//! checking them.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mremap, munmap};
use std::ffi::c_void;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

/// What a process may do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look at it.
    Read,
    /// Look at it, change it and make it larger.
    Write,
}

/// Memory shared with another process.
#[derive(Debug)]
pub struct Segment {
    file: OwnedFd,
    pointer: NonNull<u8>,
    length: usize,
    access: Access,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and this value is its only owner
// (invariant 1).
unsafe impl Send for Segment {}

impl Segment {
    /// Makes a segment of zeros. The name is seen by people who look at a process, and need not be unique.
    pub fn create(name: &str, bytes: usize) -> Result<Segment> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, at_least_one(bytes) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        Segment::map(file, at_least_one(bytes), Access::Write)
    }

    /// Opens a segment that another process made, as large as it is.
    pub fn open(file: OwnedFd, access: Access) -> Result<Segment> {
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(Error::new(ErrorKind::InvalidInput, "shared memory that may shrink cannot be used safely"));
        }
        let length = file_length(&file)?;
        Segment::map(file, length, access)
    }

    fn map(file: OwnedFd, length: usize, access: Access) -> Result<Segment> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a null hint lets the kernel choose addresses that are free, so no memory of ours is replaced.
        let pointer = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0) }?;
        let pointer = NonNull::new(pointer.cast()).ok_or_else(|| Error::other("memory was mapped at address zero"))?;
        Ok(Segment { file, pointer, length, access })
    }

    /// How many bytes of it are mapped here.
    #[allow(clippy::len_without_is_empty)] // A segment is never empty.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The file to hand to another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes it at least this large. The other process sees the rest when it [follows](Segment::follow).
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.length {
            return Ok(());
        }
        self.require_write()?;
        // The other side may have made the file larger; to shrink it to `bytes` would be refused.
        if file_length(&self.file)? < bytes {
            ftruncate(&self.file, bytes as u64)?;
        }
        self.remap(bytes)
    }

    /// Maps at least this much of what the other process made larger. Refuses when the file is not that large.
    pub fn follow(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.length {
            return Ok(());
        }
        let length = file_length(&self.file)?;
        if length < bytes {
            let message = format!("the other side speaks of {bytes} bytes of shared memory; there are {length}");
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        self.remap(bytes)
    }

    fn remap(&mut self, length: usize) -> Result<()> {
        let old: *mut c_void = self.pointer.as_ptr().cast();
        // SAFETY: `old` and `self.length` are exactly a mapping this segment owns (invariant 1), the file holds
        // `length` bytes (both callers saw to it, and it cannot shrink), and `&mut self` means that no slice into the
        // mapping is alive while it moves.
        let pointer = unsafe { mremap(old, self.length, length, MremapFlags::MAYMOVE) }?;
        self.pointer = NonNull::new(pointer.cast()).ok_or_else(|| Error::other("memory was mapped at address zero"))?;
        self.length = length;
        Ok(())
    }

    /// Copies bytes into it.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.bytes_mut(offset..offset.saturating_add(bytes.len()))?.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies bytes out of it.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        Ok(self.bytes(range)?.to_vec())
    }

    /// Bytes of it, to look at while it is this process's turn.
    pub fn bytes(&self, range: Range<usize>) -> Result<&[u8]> {
        let length = self.check(&range)?;
        // SAFETY: `range` lies in the mapping (just checked), so the sum stays inside one allocation.
        let start = unsafe { self.pointer.as_ptr().add(range.start) };
        // SAFETY: `length` bytes from `start` are mapped and readable (invariants 1 and 2), any byte is a valid `u8`,
        // and the slice borrows `self`, so that neither `remap` nor `drop` can take the mapping away under it.
        Ok(unsafe { slice::from_raw_parts(start, length) })
    }

    /// Bytes of it, to change while it is this process's turn.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> Result<&mut [u8]> {
        self.require_write()?;
        let length = self.check(&range)?;
        // SAFETY: `range` lies in the mapping (just checked), so the sum stays inside one allocation.
        let start = unsafe { self.pointer.as_ptr().add(range.start) };
        // SAFETY: as in `bytes`; the mapping is writable (just checked), and `&mut self` makes this the only slice
        // into it in this process.
        Ok(unsafe { slice::from_raw_parts_mut(start, length) })
    }

    /// How long a range is, if it lies in the mapping.
    fn check(&self, range: &Range<usize>) -> Result<usize> {
        match range.end.checked_sub(range.start) {
            Some(length) if range.end <= self.length => Ok(length),
            _ => {
                let message = format!("bytes {range:?} are not all in shared memory of {} bytes", self.length);
                Err(Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }

    fn require_write(&self) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(ErrorKind::PermissionDenied, "this shared memory was opened to be read")),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping this segment owns (invariant 1), and no slice into it outlives `self`.
        let result = unsafe { munmap(self.pointer.as_ptr().cast(), self.length) };
        debug_assert!(result.is_ok(), "a mapping of ours could not be given back: {result:?}");
    }
}

fn file_length(file: &OwnedFd) -> Result<usize> {
    usize::try_from(fstat(file)?.st_size).map_err(Error::other)
}

/// The kernel maps nothing of length zero.
fn at_least_one(bytes: usize) -> usize {
    bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other_side(segment: &Segment, access: Access) -> Segment {
        Segment::open(segment.file().try_clone_to_owned().unwrap(), access).unwrap()
    }

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let mut ours = Segment::create("test", 4096).unwrap();
        let theirs = other_side(&ours, Access::Read);
        ours.write(100, b"hello").unwrap();
        assert_eq!(theirs.read(100..105).unwrap(), b"hello");
        assert_eq!(theirs.bytes(98..101).unwrap(), b"\0\0h");
    }

    #[test]
    fn growth_keeps_what_was_there_and_is_followed() {
        let mut ours = Segment::create("test", 10).unwrap();
        let mut theirs = other_side(&ours, Access::Read);
        ours.write(0, b"first").unwrap();
        ours.grow(3_000_000).unwrap();
        ours.grow(5).unwrap();
        ours.write(2_999_995, b"later").unwrap();
        assert!(theirs.read(2_999_995..3_000_000).is_err(), "not mapped yet");
        theirs.follow(3_000_000).unwrap();
        assert_eq!(theirs.read(2_999_995..3_000_000).unwrap(), b"later");
        assert_eq!(theirs.read(0..5).unwrap(), b"first");
    }

    #[test]
    fn nothing_outside_is_reached() {
        let mut segment = Segment::create("test", 16).unwrap();
        assert!(segment.write(15, b"ab").is_err());
        assert!(segment.write(usize::MAX, b"ab").is_err());
        assert!(segment.read(17..17).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = segment.read(9..8);
        assert!(backwards.is_err());
        assert_eq!(segment.read(16..16).unwrap(), b"");
        assert!(segment.follow(17).is_err(), "nobody made it that large");
    }

    #[test]
    fn a_reader_cannot_write_and_nobody_can_shrink() {
        let ours = Segment::create("test", 4096).unwrap();
        let mut theirs = other_side(&ours, Access::Read);
        assert_eq!(theirs.write(0, b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(theirs.grow(8192).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(ftruncate(theirs.file(), 0).is_err());
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Segment::open(unsealed, Access::Read).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
