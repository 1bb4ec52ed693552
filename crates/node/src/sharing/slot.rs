//! One place for a process on a GPU: its two pages, their files, and who has them.
//!
//! Invariants:
//! 1. A process is given a slot's page to write only when the process that had it before has ended, or is the same one:
//!    a page that was handed out cannot be taken back.
//! 2. A slot's generation grows with every occupant, so that what an earlier one left behind is not taken for news.

use super::learned::Program;
use super::ledger::Token;
use super::pidfd::Watched;
use shm::{ControlPage, NotesPage, OwnPage, Tenant, TenantPage, read_only};
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The pages of one slot.
#[derive(Debug)]
pub(super) struct Slot {
    page: OwnPage<TenantPage>,
    /// To write the page with, and to read it with.
    writer: OwnedFd,
    reader: OwnedFd,
    pub(super) control: OwnPage<ControlPage>,
    control_reader: OwnedFd,
    generation: u64,
    pub(super) occupant: Option<Occupant>,
    /// Who had it last and may still write the page.
    last: Option<Watched>,
}

/// A process in a slot.
#[derive(Debug)]
pub(super) struct Occupant {
    pub(super) tenant: u32,
    pub(super) token: Token,
    pub(super) process: Watched,
    pub(super) program: Option<Program>,
    /// What its tenant runs, which may be another that starts this one.
    pub(super) command: Option<Program>,
    pub(super) notes: Notes,
    pub(super) seen: Seen,
}

/// What a process knows of its kernels, and the file to write it with.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) page: OwnPage<NotesPage>,
    writer: OwnedFd,
}

impl Notes {
    pub(super) fn new() -> Result<Notes> {
        let (page, writer) = OwnPage::create("weft-notes", true)?;
        Ok(Notes { page, writer })
    }
}

/// What a process's counters were when they were last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) charged_ns: u64,
    pub(super) launches: u64,
    pub(super) waited_ns: u64,
    pub(super) bursts: u64,
    pub(super) burst_ns_total: u64,
    /// What was counted already of the burst that went on.
    pub(super) burst_counted_ns: u64,
    /// Until when it had work, by its own clock.
    pub(super) busy_until_ns: u64,
    pub(super) burst_wait_ns_total: u64,
    pub(super) burst_work_ns_total: u64,
    pub(super) ended_bursts: u64,
    pub(super) unseen_bursts: u64,
    pub(super) unseen_burst_ns_total: u64,
    /// How often its work had been taken off the GPU, and whether it was off.
    pub(super) preemptions: u64,
    pub(super) preempted: bool,
    pub(super) refused: u64,
    pub(super) used_bytes: u64,
    /// Whether a launch is held at the moment.
    pub(super) waiting: bool,
    /// When it last had work or waited for leave to launch some.
    pub(super) active_ns: u64,
}

impl Slot {
    pub(super) fn new() -> Result<Slot> {
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

    /// Whether this process may have it.
    pub(super) fn is_free_for(&self, pid: u32) -> bool {
        self.occupant.is_none() && self.last.as_ref().is_none_or(|last| last.pid == pid || last.ended())
    }

    /// Whether nobody ever had it.
    pub(super) fn is_new(&self) -> bool {
        self.generation == 0
    }

    /// Puts a process here.
    pub(super) fn occupy(&mut self, occupant: Occupant, now_ns: u64) -> u64 {
        self.generation += 1;
        self.page.clear();
        self.control.open_for(self.generation, now_ns);
        self.last = None;
        self.occupant = Some(occupant);
        self.generation
    }

    /// Takes the process out: others see nobody here.
    pub(super) fn release(&mut self) {
        if let Some(occupant) = self.occupant.take() {
            self.page.clear();
            self.last = Some(occupant.process).filter(|process| !process.ended());
        }
    }

    /// What the process that is here says, if it has said anything yet.
    pub(super) fn read(&self) -> Option<Tenant> {
        self.page.read().filter(|said| said.generation == self.generation)
    }

    /// The files for the process that is here: its page to write, its control page to read, its notes to write.
    pub(super) fn own_files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let notes = self.occupant.as_ref().map(|occupant| occupant.notes.writer.as_fd());
        [self.writer.as_fd(), self.control_reader.as_fd()].into_iter().chain(notes)
    }

    /// The file for everybody: the page to read.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    #[cfg(test)]
    pub(super) fn page(&self) -> &TenantPage {
        &self.page
    }
}
