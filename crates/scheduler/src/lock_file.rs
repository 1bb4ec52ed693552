//! The engine of one machine, or of machines that share a folder: whoever has the lock on the state folder leads (`lead`).
//!
//! Not covered: between the look at the lead and the write of the store, another may take the lead.

use crate::lead::{Engine, Lead};
use crate::store::{Beat, FolderLock, replace_file};
use anyhow::{Context, Result, bail};
use policy::Span;
use rpc::{Term, timing};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file with the term of whoever led last.
const TERM: &str = "term";

/// The one who has the lock on a state folder leads.
pub struct LockFile {
    folder: PathBuf,
}

/// For how long the one that leads has given no sign of life.
#[derive(Debug)]
struct Silence<B> {
    last: Option<B>,
    length: Span,
}

impl<B: Copy + PartialEq> Silence<B> {
    /// Looks once more, so long after the last time. The last sign of life where there was none for [`timing::LEAD`].
    ///
    /// Silence lasts while this process runs: a leader on a machine that slept has woken with this one.
    fn look(&mut self, beat: Option<B>, passed: Span) -> Option<B> {
        self.length = match beat == self.last {
            true => self.length + passed.min(timing::HEARTBEAT),
            false => Span::ZERO,
        };
        self.last = beat;
        beat.filter(|_| self.length > timing::LEAD)
    }
}

impl LockFile {
    /// The lock of this folder, which is there.
    pub fn of(folder: &Path) -> LockFile {
        LockFile { folder: folder.to_owned() }
    }

    /// Leads, if nobody else does, or whoever does has been silent for too long.
    fn look(&mut self, silence: &mut Silence<Beat>, passed: Span) -> Result<Option<Arc<dyn Lead>>> {
        if let Some(lead) = self.try_lead()? {
            return Ok(Some(lead));
        }
        let Some(last) = silence.look(FolderLock::beat(&self.folder), passed) else { return Ok(None) };
        let Some(lock) = FolderLock::seize(&self.folder, last)? else { return Ok(None) };
        tracing::warn!("the scheduler that led gives no sign of life; this one takes its place");
        self.begin(lock).map(Some)
    }

    /// Begins a term.
    fn begin(&self, mut lock: FolderLock) -> Result<Arc<dyn Lead>> {
        let path = self.folder.join(TERM);
        let last = read(&self.folder).with_context(|| {
            format!("read {}: if nothing of this cluster runs any more, it may be removed", path.display())
        })?;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let term = Term::after(last, clock.as_nanos() as u64);
        write(&self.folder, term)?;
        lock.promise(&format!("process {} leads, term {}\n", std::process::id(), term.0)).context("mark the lock")?;
        let held = Arc::new(Locked { folder: self.folder.clone(), term, lock: Mutex::new(Some(lock)) });
        let renewed = Arc::downgrade(&held);
        let renew = move || {
            while renewed.upgrade().is_some_and(|held| held.renew()) {
                std::thread::sleep(Duration::from_nanos(timing::HEARTBEAT.nanos()));
            }
        };
        std::thread::Builder::new()
            .name("lead".into())
            .spawn(renew)
            .context("start the thread that renews the lock")?;
        Ok(held)
    }
}

impl Engine for LockFile {
    fn try_lead(&mut self) -> Result<Option<Arc<dyn Lead>>> {
        FolderLock::take(&self.folder)?.map(|lock| self.begin(lock)).transpose()
    }

    fn lead(&mut self) -> Arc<dyn Lead> {
        let mut silence = Silence { last: None, length: Span::ZERO };
        let (mut looked, mut said) = (Instant::now(), String::new());
        loop {
            let passed = Span::from_nanos(looked.elapsed().as_nanos() as u64);
            looked = Instant::now();
            let wait = match self.look(&mut silence, passed) {
                Ok(Some(lead)) => return lead,
                Ok(None) => timing::SEEK,
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != said {
                        tracing::warn!(error, "this scheduler cannot take the lead; trying again");
                        said = error;
                    }
                    timing::REJOIN
                }
            };
            std::thread::sleep(Duration::from_nanos(wait.nanos()));
        }
    }
}

/// The term that is written in a folder; the first where there is none.
fn read(folder: &Path) -> Result<Term> {
    match std::fs::read_to_string(folder.join(TERM)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Term::default()),
        text => Ok(Term(text?.trim().parse()?)),
    }
}

fn write(folder: &Path, term: Term) -> Result<()> {
    let written = replace_file(folder, TERM, format!("{}\n", term.0).as_bytes());
    written.with_context(|| format!("write {}", folder.join(TERM).display()))
}

struct Locked {
    folder: PathBuf,
    term: Term,
    lock: Mutex<Option<FolderLock>>,
}

impl Locked {
    fn lock(&self) -> MutexGuard<'_, Option<FolderLock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a sign of life; whether to go on.
    fn renew(&self) -> bool {
        let lock = self.lock();
        let Some(lock) = &*lock else { return false };
        if let Err(error) = lock.renew() {
            // If that lasts, a standby takes the lead, and this scheduler finds out.
            tracing::debug!(%error, "the lock of the state folder could not be renewed");
        }
        true
    }
}

impl Lead for Locked {
    fn term(&self) -> Term {
        self.term
    }

    /// Whoever takes the lead puts another file in place of the lock, or another term into the folder. A folder that cannot
    /// be looked at says nothing.
    fn is_held(&self) -> bool {
        let lost = |lock: &FolderLock| lock.is_lost() || read(&self.folder).is_ok_and(|written| written > self.term);
        self.lock().as_ref().is_some_and(|lock| !lost(lock))
    }

    fn surpass(&self, term: Term) -> Result<()> {
        let lock = self.lock();
        if lock.as_ref().is_none_or(FolderLock::is_lost) {
            bail!("write {}: another scheduler leads", self.folder.join(TERM).display());
        }
        match read(&self.folder)? < term {
            true => write(&self.folder, term),
            false => Ok(()),
        }
    }

    fn release(&self) {
        *self.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(folder: &Path) -> Option<Arc<dyn Lead>> {
        LockFile::of(folder).try_lead().unwrap()
    }

    #[test]
    fn one_leads_at_a_time_and_each_later_than_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let first = lead(folder.path()).unwrap();
        assert!(first.is_held());
        assert!(lead(folder.path()).is_none(), "somebody leads");
        let path = folder.path().to_owned();
        let waiting = std::thread::spawn(move || LockFile::of(&path).lead());
        first.release();
        let second = waiting.join().unwrap();
        assert!(second.term() > first.term() && second.is_held() && !first.is_held());
    }

    #[test]
    fn whoever_lost_the_lead_without_knowing_finds_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = lead(folder.path()).unwrap();
        std::fs::write(folder.path().join(TERM), format!("{}\n", first.term().0 + 1)).unwrap();
        assert!(!first.is_held(), "a later term is written");
        first.release();
        let first = lead(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("deployments.lock")).unwrap();
        assert!(first.is_held(), "nobody else leads");
        let second = lead(folder.path()).unwrap();
        assert!(!first.is_held() && second.is_held() && second.term() > first.term());
        assert!(first.surpass(Term(u64::MAX)).is_err(), "it writes nothing any more");
    }

    #[test]
    fn a_clock_that_went_back_gives_a_later_term_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(TERM), format!("{}\n", u64::MAX - 1)).unwrap();
        assert_eq!(lead(folder.path()).unwrap().term(), Term(u64::MAX));
        std::fs::write(folder.path().join(TERM), "yesterday").unwrap();
        let error = format!("{:#}", LockFile::of(folder.path()).try_lead().err().unwrap());
        assert!(error.contains("term: if nothing of this cluster runs"), "{error}");
    }

    #[test]
    fn members_that_have_followed_a_later_term_follow_the_next_leader() {
        let folder = tempfile::tempdir().unwrap();
        let first = lead(folder.path()).unwrap();
        let later = Term(first.term().0 + 3_600_000_000_000);
        first.surpass(later).unwrap();
        first.surpass(Term(1)).unwrap();
        assert!(!first.is_held());
        first.release();
        assert!(lead(folder.path()).unwrap().term() > later);
    }

    #[test]
    fn a_leader_that_gives_no_sign_of_life_is_silent_only_while_others_are_awake() {
        let tick = Span::from_millis(50);
        let mut silence = Silence { last: None, length: Span::ZERO };
        let ticks = timing::LEAD.nanos() / tick.nanos();
        assert!((0..=ticks * 2).all(|_| silence.look(None, tick).is_none()), "nobody promised any");
        assert!((0..=ticks).all(|_| silence.look(Some(1), tick).is_none()));
        assert_eq!(silence.look(Some(1), tick), Some(1));
        assert_eq!(silence.look(Some(2), tick), None);
        assert_eq!(silence.look(Some(2), Span::from_secs(3_600)), None, "all of us slept");
    }

    #[test]
    fn one_that_leads_gives_signs_of_life() {
        let folder = tempfile::tempdir().unwrap();
        let first = lead(folder.path()).unwrap();
        let seen = FolderLock::beat(folder.path()).unwrap();
        while FolderLock::beat(folder.path()) == Some(seen) {
            std::thread::yield_now();
        }
        assert!(first.is_held());
    }
}
