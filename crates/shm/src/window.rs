//! All pages that a process has of one GPU, at addresses that never change.
//!
//! Launches look at pages without taking anything, so pages cannot be unmapped under them when a daemon is restarted and
//! hands out new ones. A window keeps its addresses for as long as it lives: new pages are put in the place of old ones,
//! by the kernel, at once.
//!
//! Invariants:
//! 1. All addresses of a window are mapped and readable from `reserve` on; the first page and the notes are writable as well.
//! 2. What is mapped is anonymous memory or a whole page of a file that cannot shrink, so touching it never faults.
//!
//! Before it was filled, and after it was emptied, a window is pages of zeros: no daemon, no other tenants, and a page of
//! one's own that nobody reads.

use crate::map::{Page, checked};
use crate::notes::NotesPage;
use crate::page::{ControlPage, PAGE_BYTES, SLOTS, TenantPage};
use crate::view::{Control, Tenant};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// One's own page, the control page, the slots, the notes.
const PAGES: usize = AT_NOTES + size_of::<NotesPage>() / PAGE_BYTES;
const AT_NOTES: usize = 2 + SLOTS;

/// The pages of one GPU.
#[derive(Debug)]
pub struct PageWindow {
    base: NonNull<c_void>,
}

// SAFETY: the mapping belongs to the process, and what is in it is atomics.
unsafe impl Send for PageWindow {}
// SAFETY: as above; replacing pages is done by the kernel, between two accesses.
unsafe impl Sync for PageWindow {}

impl PageWindow {
    /// A window of zeros. It takes addresses, and no memory until it is touched.
    pub fn reserve() -> Result<PageWindow> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose addresses that are free, so no memory of ours is replaced.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                PAGES * PAGE_BYTES,
                protection,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base).ok_or_else(|| Error::other("pages were mapped at address zero"))?;
        Ok(PageWindow { base })
    }

    /// Puts the pages that the daemon handed over into the window. The page of one's own is there last, so that what
    /// others may read is written by whoever knows their limits.
    pub fn fill<F: AsFd>(&self, own: F, control: F, notes: F, slots: &[F]) -> Result<()> {
        let read = ProtFlags::READ;
        for (index, slot) in slots.iter().take(SLOTS).enumerate() {
            self.put::<TenantPage>(2 + index, slot.as_fd(), read)?;
        }
        self.put::<NotesPage>(AT_NOTES, notes.as_fd(), read | ProtFlags::WRITE)?;
        self.put::<ControlPage>(1, control.as_fd(), read)?;
        self.put::<TenantPage>(0, own.as_fd(), read | ProtFlags::WRITE)
    }

    /// Makes the window one of zeros again. Makes nothing but one system call, so that a child may call it after `fork`.
    pub fn empty(&self) {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is the window's own, and everything that refers to it is atomics for which zeros are values.
        let _ = unsafe { mmap_anonymous(self.base.as_ptr(), PAGES * PAGE_BYTES, protection, flags) };
    }

    fn put<T: Page>(&self, index: usize, file: BorrowedFd<'_>, protection: ProtFlags) -> Result<()> {
        checked(file, size_of::<T>())?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is one of the window's own, the file holds as much and cannot shrink (just checked), and
        // everything that refers to it is atomics for which all bytes are values.
        unsafe { mmap(self.address(index).as_ptr(), size_of::<T>(), protection, flags, file, 0) }?;
        Ok(())
    }

    #[inline]
    fn address(&self, index: usize) -> NonNull<c_void> {
        // SAFETY: `index` is below `PAGES` in all callers, so the sum stays inside the one mapping.
        unsafe { self.base.byte_add(index * PAGE_BYTES) }
    }

    /// The page of one's own.
    #[inline]
    pub fn own(&self) -> &TenantPage {
        // SAFETY: mapped and writable for as long as `self` (invariant 1), page-aligned, and all bytes are a value.
        unsafe { self.base.cast().as_ref() }
    }

    /// What the daemon says.
    #[inline]
    pub fn control(&self) -> Seen<'_, ControlPage> {
        // SAFETY: mapped and readable for as long as `self` (invariant 1), page-aligned, and all bytes are a value.
        Seen(unsafe { self.address(1).cast().as_ref() })
    }

    /// What the program knows of its kernels.
    #[inline]
    pub fn notes(&self) -> &NotesPage {
        // SAFETY: as for `own`; the notes are the last pages of the window.
        unsafe { self.address(AT_NOTES).cast().as_ref() }
    }

    /// What the process in a slot says; slots are counted modulo their number.
    #[inline]
    pub fn slot(&self, index: usize) -> Seen<'_, TenantPage> {
        // SAFETY: as for `control`; the index is inside the window.
        Seen(unsafe { self.address(2 + index % SLOTS).cast().as_ref() })
    }
}

impl Drop for PageWindow {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `reserve`; references into it borrow `self`.
        let _ = unsafe { munmap(self.base.as_ptr(), PAGES * PAGE_BYTES) };
    }
}

/// A page that another process writes, in a window.
#[derive(Debug)]
pub struct Seen<'a, T>(&'a T);

impl<T> Clone for Seen<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Seen<'_, T> {}

impl<T> Seen<'_, T> {
    /// One word of it.
    #[inline]
    pub fn word(self, choose: impl Fn(&T) -> &AtomicU64) -> u64 {
        choose(self.0).load(Ordering::Relaxed)
    }

    /// One half word of it. What was written before it was is seen after.
    #[inline]
    pub fn half(self, choose: impl Fn(&T) -> &AtomicU32) -> u32 {
        choose(self.0).load(Ordering::Acquire)
    }
}

impl Seen<'_, TenantPage> {
    /// What it says, if a process is there.
    pub fn read(self) -> Option<Tenant> {
        self.0.read()
    }
}

impl Seen<'_, ControlPage> {
    /// What it says, if it is a control page.
    pub fn read(self) -> Option<Control> {
        self.0.read()
    }

    /// Sleeps while the gate word is `seen`, at most this long.
    pub fn wait(self, seen: u32, timeout: Duration) {
        crate::futex::wait(&self.0.gate, seen, timeout);
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::{OwnPage, read_only};

    #[test]
    fn pages_come_and_go_at_the_same_addresses() {
        let window = PageWindow::reserve().unwrap();
        let own = window.own();
        own.launches.store(3, Ordering::Relaxed);
        assert!(window.control().read().is_none());
        assert!((0..SLOTS).all(|slot| window.slot(slot).read().is_none()));

        let (daemon, page) = OwnPage::<TenantPage>::create("tenant", true).unwrap();
        let (control, control_file) = OwnPage::<ControlPage>::create("control", false).unwrap();
        control.open_for(9, 1);
        let reader = |file: &std::os::fd::OwnedFd| read_only(file.as_fd()).unwrap();
        let (notes, notes_file) = OwnPage::<NotesPage>::create("notes", true).unwrap();
        let (control_file, seen) = (reader(&control_file), reader(&page));
        window.fill(page.as_fd(), control_file.as_fd(), notes_file.as_fd(), &[seen.as_fd()]).unwrap();
        window.notes().put(crate::Note { key: 9, duration_ns: 4, gap_ns: 2 });
        assert_eq!(notes.read().len(), 1);
        own.occupy(1, 0, 9, 2);
        assert_eq!(window.control().read().unwrap().generation, 9);
        assert_eq!(window.slot(0).read().unwrap().tenant, 2);
        assert_eq!(daemon.read().unwrap().pid, 1);

        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(window.fill(file.as_fd(), file.as_fd(), file.as_fd(), &[]).is_err());
        assert_eq!(daemon.read().unwrap().pid, 1, "what is no page replaces none");
        window.empty();
        assert!(window.control().read().is_none() && own.read().is_none() && window.notes().read().is_empty());
        assert_eq!(daemon.read().unwrap().pid, 1);
    }
}
