//! Which of several schedulers leads: decided by the engine underneath, never by votes of schedulers.
//!
//! An [`Engine`] lets one process lead at a time, and gives it a [`Term`] that is later than all before. On one machine,
//! or where machines share a folder whose locks work, that is a lock on a file in the state folder: the kernel releases
//! it when its holder dies. A Lease of Kubernetes can be another.
//!
//! Whoever leads may have stopped to without knowing: an engine that counts time gives the lead to the next while the
//! first one is suspended. So nothing depends on the lead alone: members do not follow an earlier term than the latest
//! that they know (`rpc::leader::Fence`), the store is not written by whoever does not lead, and a scheduler that a member
//! tells of a later term ends.
//!
//! Not covered: a leader that is suspended keeps its lock, so with [`LockFile`] nobody takes its place until it is killed;
//! and between the look at the lead and the write of the store, another may take it.

use crate::store::{lock, replace_file, wait_for_lock};
use anyhow::{Context, Result};
use rpc::Term;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file with the term of whoever led last.
const TERM: &str = "term";

/// Says who leads.
pub trait Engine: Send {
    /// Leads, if nobody else does.
    fn try_lead(&mut self) -> Result<Arc<dyn Lead>>;
    /// Waits until nobody else leads, and leads.
    fn lead(&mut self) -> Result<Arc<dyn Lead>>;
}

/// To be the one that leads, until it is released or the process ends.
pub trait Lead: Send + Sync {
    /// Later than the terms of all who led before.
    fn term(&self) -> Term;
    /// Whether nobody else has begun to lead, for all that is known.
    fn is_held(&self) -> bool;
    /// Lets another one lead.
    fn release(&self);
}

/// The one who has the lock on a state folder leads.
pub struct LockFile {
    folder: PathBuf,
}

impl LockFile {
    /// The lock of this folder, which is there.
    pub fn of(folder: &Path) -> LockFile {
        LockFile { folder: folder.to_owned() }
    }

    /// Begins a term.
    fn begin(&self, lock: File) -> Result<Arc<dyn Lead>> {
        let path = self.folder.join(TERM);
        let last = read(&self.folder).with_context(|| {
            format!("read {}: if nothing of this cluster runs any more, it may be removed", path.display())
        })?;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let term = Term::after(last, clock.as_nanos() as u64);
        replace_file(&self.folder, TERM, format!("{}\n", term.0).as_bytes())
            .with_context(|| format!("write {}", path.display()))?;
        Ok(Arc::new(Locked { folder: self.folder.clone(), term, lock: Mutex::new(Some(lock)) }))
    }
}

impl Engine for LockFile {
    fn try_lead(&mut self) -> Result<Arc<dyn Lead>> {
        self.begin(lock(&self.folder)?)
    }

    fn lead(&mut self) -> Result<Arc<dyn Lead>> {
        self.begin(wait_for_lock(&self.folder)?)
    }
}

/// The term that is written in a folder; the first where there is none.
fn read(folder: &Path) -> Result<Term> {
    match std::fs::read_to_string(folder.join(TERM)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Term::default()),
        text => Ok(Term(text?.trim().parse()?)),
    }
}

struct Locked {
    folder: PathBuf,
    term: Term,
    lock: Mutex<Option<File>>,
}

impl Locked {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lead for Locked {
    fn term(&self) -> Term {
        self.term
    }

    /// A file system over the network may have given the lock to another: that one has written its term.
    fn is_held(&self) -> bool {
        self.lock().is_some() && read(&self.folder).is_ok_and(|written| written <= self.term)
    }

    fn release(&self) {
        *self.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leads_at_a_time_and_each_later_than_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let first = LockFile::of(folder.path()).try_lead().unwrap();
        assert!(first.is_held());
        assert!(LockFile::of(folder.path()).try_lead().is_err(), "somebody leads");
        let path = folder.path().to_owned();
        let waiting = std::thread::spawn(move || LockFile::of(&path).lead().unwrap());
        first.release();
        let second = waiting.join().unwrap();
        assert!(second.term() > first.term() && second.is_held() && !first.is_held());
    }

    #[test]
    fn whoever_lost_the_lock_without_knowing_finds_out() {
        let folder = tempfile::tempdir().unwrap();
        let lead = LockFile::of(folder.path()).try_lead().unwrap();
        std::fs::write(folder.path().join(TERM), format!("{}\n", lead.term().0 + 1)).unwrap();
        assert!(!lead.is_held());
    }

    #[test]
    fn a_clock_that_went_back_gives_a_later_term_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(TERM), format!("{}\n", u64::MAX - 1)).unwrap();
        assert_eq!(LockFile::of(folder.path()).try_lead().unwrap().term(), Term(u64::MAX));
        std::fs::write(folder.path().join(TERM), "yesterday").unwrap();
        let error = format!("{:#}", LockFile::of(folder.path()).try_lead().err().unwrap());
        assert!(error.contains("term: if nothing of this cluster runs"), "{error}");
    }
}
