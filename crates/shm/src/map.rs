//! Pages as memory: made by the daemon, mapped by whoever was handed the file.
//!
//! Invariants:
//! 1. A mapping is of a whole page of a file that cannot shrink, so touching it never faults; a file without that seal
//!    is refused. The mapping outlives the file descriptor, which is closed.
//! 2. Only [`OwnPage`] gives out a `&T`, through which a page can be written. A [`SeenPage`] may be mapped read-only and
//!    gives out values.
//!
//! A page that only its maker may ever write is sealed against later writers, because a read-only descriptor of a memory
//! file could otherwise be opened for writing again through `/proc`. A page that goes from one process to the next
//! cannot be; it is kept to its maker's user by its mode.

use crate::notes::NotesPage;
use crate::page::{ControlPage, TenantPage};
use crate::view::{Control, Tenant};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, open,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io::{Error, ErrorKind, Result};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A type that shared memory of some pages can be looked at as.
///
/// # Safety
/// The type is as large as some pages of [`PAGE_BYTES`](crate::PAGE_BYTES), needs at most the alignment of one, consists of atomics alone,
/// and every bit pattern is a value of it.
pub unsafe trait Page: Sync + 'static {}

// SAFETY: size and alignment are asserted where it is defined, and all its fields are atomic integers.
unsafe impl Page for TenantPage {}
// SAFETY: as for `TenantPage`.
unsafe impl Page for ControlPage {}
// SAFETY: as for `TenantPage`.
unsafe impl Page for NotesPage {}

/// A page that this process writes.
#[derive(Debug)]
pub struct OwnPage<T: Page>(Map<T>);

/// A page that another process writes.
#[derive(Debug)]
pub struct SeenPage<T: Page>(Map<T>);

impl<T: Page> OwnPage<T> {
    /// Makes a page of zeros and the file to hand it out with. `shared` says whether a process may be given the file to
    /// write the page; if not, nobody but the maker ever can.
    pub fn create(name: &str, shared: bool) -> Result<(OwnPage<T>, OwnedFd)> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size_of::<T>() as u64)?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let page = OwnPage::open(file.as_fd())?;
        if !shared {
            fcntl_add_seals(&file, SealFlags::FUTURE_WRITE)?;
        }
        fcntl_add_seals(&file, SealFlags::SEAL)?;
        Ok((page, file))
    }

    /// Maps a page that was handed to this process to be written. A child made by `fork` does not have it.
    pub fn open(file: BorrowedFd<'_>) -> Result<OwnPage<T>> {
        let map = Map::<T>::new(file, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: the range is this mapping, and it stays readable and writable here: only what a child inherits
        // changes.
        unsafe { madvise(map.pointer.as_ptr().cast(), size_of::<T>(), Advice::LinuxDontFork) }?;
        Ok(OwnPage(map))
    }
}

impl<T: Page> Deref for OwnPage<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get()
    }
}

impl<T: Page> SeenPage<T> {
    /// Maps a page that was handed to this process to be read.
    pub fn open(file: BorrowedFd<'_>) -> Result<SeenPage<T>> {
        Map::new(file, ProtFlags::READ).map(SeenPage)
    }

    /// One word of it.
    #[inline]
    pub fn word(&self, choose: impl Fn(&T) -> &AtomicU64) -> u64 {
        choose(self.0.get()).load(Ordering::Relaxed)
    }

    /// One half word of it. What was written before it was is seen after.
    #[inline]
    pub fn half(&self, choose: impl Fn(&T) -> &AtomicU32) -> u32 {
        choose(self.0.get()).load(Ordering::Acquire)
    }
}

impl SeenPage<TenantPage> {
    /// What it says, if a process is there.
    pub fn read(&self) -> Option<Tenant> {
        self.0.get().read()
    }
}

impl SeenPage<ControlPage> {
    /// What it says, if it is a control page.
    pub fn read(&self) -> Option<Control> {
        self.0.get().read()
    }

    /// Sleeps while the gate word is `seen`, at most this long.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        crate::futex::wait(&self.0.get().gate, seen, timeout);
    }
}

/// Ordinary memory looked at as a page, if it is large and aligned enough: for tests, where nothing is shared.
pub fn page_in<T: Page>(words: &[AtomicU64]) -> Option<&T> {
    let pointer = NonNull::from(words).cast::<T>();
    if size_of_val(words) < size_of::<T>() || !pointer.is_aligned() {
        return None;
    }
    // SAFETY: the words are borrowed for as long as the page, they are at least as many bytes and aligned (both just
    // checked), and a `Page` is atomics for which every bit pattern is a value.
    Some(unsafe { pointer.as_ref() })
}

/// The file of a page, opened again so that it can only be read.
pub fn read_only(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Refuses a file that is not that large, or may stop to be.
pub(crate) fn checked(file: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    if fcntl_get_seals(file)?.contains(SealFlags::SHRINK) && fstat(file)?.st_size >= bytes as i64 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, "what was handed over is not a page"))
}

#[derive(Debug)]
struct Map<T> {
    pointer: NonNull<T>,
}

// SAFETY: the mapping belongs to the process, and what is in it is `Sync` (required by `Page`).
unsafe impl<T: Page> Send for Map<T> {}
// SAFETY: as above.
unsafe impl<T: Page> Sync for Map<T> {}

impl<T> Map<T> {
    fn new(file: BorrowedFd<'_>, protection: ProtFlags) -> Result<Map<T>> {
        checked(file, size_of::<T>())?;
        // SAFETY: a null hint lets the kernel choose addresses that are free, so no memory of ours is replaced.
        let pointer = unsafe { mmap(std::ptr::null_mut(), size_of::<T>(), protection, MapFlags::SHARED, file, 0) }?;
        let pointer = NonNull::new(pointer.cast()).ok_or_else(|| Error::other("a page was mapped at address zero"))?;
        Ok(Map { pointer })
    }

    #[inline]
    fn get(&self) -> &T {
        // SAFETY: `pointer` is a mapping of a whole page, held by `self` (invariant 1), at an address that is a multiple
        // of the page size; `T` is a `Page`, so these bytes are a value of it whatever they are, and its fields are
        // atomics, so that others may write them meanwhile.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Drop for Map<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; references into it borrow `self`.
        let _ = unsafe { munmap(self.pointer.as_ptr().cast(), size_of::<T>()) };
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::page::{MAGIC, PAGE_BYTES};

    #[test]
    fn what_a_process_writes_others_see() {
        let (daemon, file) = OwnPage::<TenantPage>::create("tenant", true).unwrap();
        let process = OwnPage::<TenantPage>::open(file.as_fd()).unwrap();
        let other = SeenPage::<TenantPage>::open(read_only(file.as_fd()).unwrap().as_fd()).unwrap();
        assert_eq!(other.read(), None);
        process.occupy(7, 3, 11, 5);
        process.busy_until_ns.store(99, Ordering::Relaxed);
        let seen = other.read().unwrap();
        assert_eq!((seen.pid, seen.slot, seen.generation, seen.tenant, seen.busy_until_ns), (7, 3, 11, 5, 99));
        assert_eq!(other.word(|page| &page.busy_until_ns), 99);
        daemon.clear();
        assert_eq!(other.read(), None);
    }

    #[test]
    fn a_control_page_is_written_by_its_maker_alone() {
        let (daemon, file) = OwnPage::<ControlPage>::create("control", false).unwrap();
        daemon.open_for(4, 1);
        let reader = read_only(file.as_fd()).unwrap();
        let seen = SeenPage::<ControlPage>::open(reader.as_fd()).unwrap();
        assert_eq!(seen.read().unwrap().generation, 4);
        assert_eq!(seen.half(|page| &page.magic), MAGIC);
        assert!(OwnPage::<ControlPage>::open(reader.as_fd()).is_err(), "read-only");
        assert!(OwnPage::<ControlPage>::open(file.as_fd()).is_err(), "sealed");
        let again = open(format!("/proc/self/fd/{}", reader.as_raw_fd()), OFlags::RDWR, Mode::empty()).unwrap();
        assert!(OwnPage::<ControlPage>::open(again.as_fd()).is_err(), "sealed, however it was opened");
    }

    #[test]
    fn what_is_not_a_page_is_refused() {
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&unsealed, PAGE_BYTES as u64).unwrap();
        assert!(SeenPage::<TenantPage>::open(unsealed.as_fd()).is_err());
        let short = crate::Segment::create("test", 100).unwrap();
        assert!(SeenPage::<TenantPage>::open(short.file()).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(SeenPage::<TenantPage>::open(file.as_fd()).is_err());
    }

    #[test]
    fn a_changed_gate_ends_a_wait() {
        let (daemon, file) = OwnPage::<ControlPage>::create("control", false).unwrap();
        daemon.open_for(1, 1);
        let seen = SeenPage::<ControlPage>::open(file.as_fd()).unwrap();
        daemon.set_gate(true);
        let held = seen.read().unwrap();
        assert!(held.held);
        std::thread::scope(|scope| {
            scope.spawn(|| daemon.set_gate(false));
            while seen.read().unwrap().held {
                seen.wait(held.gate, Duration::from_secs(10));
            }
        });
    }
}
