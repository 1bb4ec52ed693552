//! One slot for a process on a GPU: its pages, their files, and the process that has them.
//!
//! Invariants:
//! 1. A process gets a slot's page only when the process that had it before has ended or is the same one, because a page
//!    that was handed out cannot be taken back.
//! 2. A slot's generation grows with every occupant, so that nobody takes an earlier occupant's words for new ones.

use crate::learned::Program;
use crate::pidfd::Watched;
use crate::registry::Token;
use shm::{ControlPage, NotesPage, OwnPage, Tenant, TenantPage, read_only};
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The pages of one slot.
#[derive(Debug)]
pub(crate) struct Slot {
    page: OwnPage<TenantPage>,
    /// Files to write the page through, and to read it through.
    writer: OwnedFd,
    reader: OwnedFd,
    pub(crate) control: OwnPage<ControlPage>,
    control_reader: OwnedFd,
    generation: u64,
    pub(crate) occupant: Option<Occupant>,
    /// The process that had it last and may still write the page.
    last: Option<Watched>,
}

/// A process in a slot.
#[derive(Debug)]
pub(crate) struct Occupant {
    pub(crate) tenant: u32,
    pub(crate) token: Token,
    pub(crate) process: Watched,
    pub(crate) program: Option<Program>,
    /// The command of its tenant, which may be another program that started this one.
    pub(crate) command: Option<Program>,
    pub(crate) notes: Notes,
    pub(crate) seen: Seen,
}

/// What a process knows about its kernels, and the file to write it through.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) page: OwnPage<NotesPage>,
    writer: OwnedFd,
}

impl Notes {
    pub(crate) fn new() -> Result<Notes> {
        let (page, writer) = OwnPage::create("weft-notes", true)?;
        Ok(Notes { page, writer })
    }
}

/// A process's counters at the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) charged_ns: u64,
    pub(crate) launches: u64,
    pub(crate) waited_ns: u64,
    pub(crate) bursts: u64,
    pub(crate) burst_ns_total: u64,
    /// The part of the current burst that was counted already.
    pub(crate) burst_counted_ns: u64,
    /// Until when it had work, by its own clock.
    pub(crate) busy_until_ns: u64,
    pub(crate) burst_wait_ns_total: u64,
    pub(crate) burst_work_ns_total: u64,
    pub(crate) ended_bursts: u64,
    pub(crate) untracked_bursts: u64,
    pub(crate) untracked_burst_ns_total: u64,
    /// How often its work had been preempted, and whether it was.
    pub(crate) preemptions: u64,
    pub(crate) preempted: bool,
    pub(crate) refused: u64,
    pub(crate) used_bytes: u64,
    /// Whether a launch waits at the moment.
    pub(crate) waiting: bool,
    /// When it last had work, or a launch that waited.
    pub(crate) active_ns: u64,
}

impl Slot {
    pub(crate) fn new() -> Result<Slot> {
        let (page, writer) = OwnPage::create("weft-tenant", true)?;
        let (control, control_file) = OwnPage::create("weft-control", false)?;
        Ok(Slot {
            reader: read_only(writer.as_fd())?,
            control_reader: read_only(control_file.as_fd())?,
            page,
            writer,
            control,
            generation: 0,
            occupant: None,
            last: None,
        })
    }

    /// Whether this process may take it.
    pub(crate) fn is_free_for(&self, pid: u32) -> bool {
        self.occupant.is_none() && self.last.as_ref().is_none_or(|last| last.pid == pid || last.ended())
    }

    /// Whether no process ever had it.
    pub(crate) fn is_new(&self) -> bool {
        self.generation == 0
    }

    /// Gives the slot to a process, and returns its generation.
    pub(crate) fn occupy(&mut self, occupant: Occupant, now_ns: u64) -> u64 {
        self.generation += 1;
        self.page.clear();
        self.control.open_for(self.generation, now_ns);
        self.last = None;
        self.occupant = Some(occupant);
        self.generation
    }

    /// Removes the process; others then see an empty slot.
    pub(crate) fn release(&mut self) {
        if let Some(occupant) = self.occupant.take() {
            self.page.clear();
            self.last = Some(occupant.process).filter(|process| !process.ended());
        }
    }

    /// The page of the process here, once it has written one.
    pub(crate) fn read(&self) -> Option<Tenant> {
        self.page.read().filter(|page| page.generation == self.generation)
    }

    /// The files for the process that is here: its page to write, its control page to read, its notes to write.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let notes = self.occupant.as_ref().map(|occupant| occupant.notes.writer.as_fd());
        [self.writer.as_fd(), self.control_reader.as_fd()].into_iter().chain(notes)
    }

    /// The file for all processes: the page, read-only.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    #[cfg(test)]
    pub(crate) fn page(&self) -> &TenantPage {
        &self.page
    }
}
