//! The lock on a state folder: one process at a time works with it.
//!
//! It is a file lock (`flock`), which the kernel releases when its holder dies. A holder that is stopped keeps it, so one
//! that others wait for renews it, and whoever waits may seize a lock that is not renewed.
//!
//! Invariants:
//! 1. Whoever gets a [`FolderLock`] has locked the file that has the name at that moment: a file that was locked while
//!    another one took its name, or while it was removed, does not count.
//! 2. Only a lock that its holder has promised to renew can be seized, and only by one at a time.
//! 3. Whoever lost the lock finds out: the file that has the name is another one ([`FolderLock::is_lost`]).
//!
//! Not covered: a process that is stopped while it seizes the lock keeps others from seizing it until it goes on or dies.

use anyhow::{Context, Result};
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file that is locked.
const LOCK: &str = "deployments.lock";
/// What the next one is called until it takes the place of the last.
const NEXT: &str = "deployments.lock.next";
/// Held by whoever seizes the lock.
const SEIZING: &str = "seize.lock";

/// Which file it is, whatever its name.
type Identity = (u64, u64);

/// The lock. It ends with the process, or when this goes out of scope.
pub(crate) struct FolderLock {
    path: PathBuf,
    file: File,
    identity: Identity,
}

/// A sign of life of the process that holds a lock: another one each time that it renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    identity: Identity,
    renewed: SystemTime,
}

impl FolderLock {
    /// Takes the lock of a folder, unless another process has it.
    pub(crate) fn take(folder: &Path) -> Result<Option<FolderLock>> {
        loop {
            let (file, path) = open(folder, LOCK)?;
            if !try_lock(&file, &path)? {
                return Ok(None);
            }
            let lock = FolderLock::of(file, path)?;
            if std::fs::metadata(&lock.path).is_ok_and(|found| identity(&found) == lock.identity) {
                // It promises nothing yet.
                lock.file.set_len(0).with_context(|| format!("empty {}", lock.path.display()))?;
                return Ok(Some(lock));
            }
        }
    }

    fn of(file: File, path: PathBuf) -> Result<FolderLock> {
        let found = file.metadata().with_context(|| format!("look at {}", path.display()))?;
        Ok(FolderLock { identity: identity(&found), path, file })
    }

    /// Promises to renew the lock, and leaves a word on who has it.
    pub(crate) fn promise(&mut self, holder: &str) -> io::Result<()> {
        self.file.write_all(holder.as_bytes())
    }

    /// Renews it.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.file.set_modified(SystemTime::now())
    }

    /// Whether another process has the lock: the file has made room for another. One that was only removed is not lost.
    pub(crate) fn is_lost(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|found| identity(&found) != self.identity)
    }

    /// The last sign of life of whoever has promised to renew the lock of a folder.
    pub(crate) fn beat(folder: &Path) -> Option<Beat> {
        // Opened, so that a file system on another machine looks again.
        let found = File::open(folder.join(LOCK)).ok()?.metadata().ok()?;
        (found.len() > 0).then_some(Beat { identity: identity(&found), renewed: found.modified().ok()? })
    }

    /// Takes the lock from a holder of whom this was the last sign of life, unless it has given another since, or another
    /// process is seizing the lock.
    pub(crate) fn seize(folder: &Path, last: Beat) -> Result<Option<FolderLock>> {
        let (gate, gate_path) = open(folder, SEIZING)?;
        if !try_lock(&gate, &gate_path)? || FolderLock::beat(folder) != Some(last) {
            return Ok(None);
        }
        let (file, next) = open(folder, NEXT)?;
        if !try_lock(&file, &next)? {
            return Ok(None);
        }
        file.set_len(0).with_context(|| format!("empty {}", next.display()))?;
        let path = folder.join(LOCK);
        std::fs::rename(&next, &path).with_context(|| format!("put another file in place of {}", path.display()))?;
        FolderLock::of(file, path).map(Some)
    }
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

fn open(folder: &Path, name: &str) -> Result<(File, PathBuf)> {
    let path = folder.join(name);
    let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    Ok((opened.with_context(|| format!("open {}", path.display()))?, path))
}

/// Locks a file, unless another process has locked it.
fn try_lock(file: &File, path: &Path) -> Result<bool> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &Path) -> Option<FolderLock> {
        FolderLock::take(folder).unwrap()
    }

    #[test]
    fn one_has_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        assert!(take(folder.path()).is_none());
        drop(first);
        assert!(take(folder.path()).is_some_and(|second| !second.is_lost()));
    }

    #[test]
    fn a_file_that_was_removed_is_locked_by_nobody_and_whoever_had_it_finds_out_when_another_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join(LOCK)).unwrap();
        assert!(!first.is_lost(), "nobody else has it");
        let second = take(folder.path()).unwrap();
        assert!(first.is_lost() && !second.is_lost());
    }

    #[test]
    fn only_a_lock_that_was_promised_and_not_renewed_can_be_seized() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = take(folder.path()).unwrap();
        assert_eq!(FolderLock::beat(folder.path()), None, "nothing was promised");
        first.promise("first").unwrap();
        let seen = FolderLock::beat(folder.path()).unwrap();
        first.file.set_modified(seen.renewed + std::time::Duration::from_millis(1)).unwrap();
        assert!(FolderLock::seize(folder.path(), seen).unwrap().is_none(), "it was renewed");
        let seen = FolderLock::beat(folder.path()).unwrap();
        let second = FolderLock::seize(folder.path(), seen).unwrap().unwrap();
        assert!(first.is_lost() && !second.is_lost());
        assert!(take(folder.path()).is_none(), "it is locked");
        assert!(FolderLock::seize(folder.path(), seen).unwrap().is_none(), "that one was seized already");
        assert_eq!(FolderLock::beat(folder.path()), None, "whoever has it now promised nothing");
        drop(first);
        assert!(take(folder.path()).is_none(), "whoever lost it has nothing to release");
        drop(second);
        assert!(take(folder.path()).is_some());
    }

    #[test]
    fn one_seizes_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = take(folder.path()).unwrap();
        first.promise("first").unwrap();
        let seen = FolderLock::beat(folder.path()).unwrap();
        let (gate, path) = open(folder.path(), SEIZING).unwrap();
        assert!(try_lock(&gate, &path).unwrap());
        assert!(FolderLock::seize(folder.path(), seen).unwrap().is_none());
        drop(gate);
        assert!(FolderLock::seize(folder.path(), seen).unwrap().is_some());
    }
}
