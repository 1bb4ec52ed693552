//! A program in the background: what is written down of it.
//!
//! A job has a record, a log and a lock in the folder of jobs. Whoever looks after it holds the lock for as long as it
//! lives, so that a job whose record says that it runs and whose lock is free was killed with everything around it.

use crate::output::Misuse;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) command: Vec<String>,
    /// The program, and first of its process group.
    pub(super) process: Option<u32>,
    /// Seconds since 1970.
    pub(super) started: u64,
    pub(super) ended: Option<Ended>,
    /// Whether it has its share.
    #[serde(default)]
    pub(super) entered: bool,
    /// Why it does not run yet.
    #[serde(default)]
    pub(super) waiting: Option<String>,
    /// For whom it makes room at the moment.
    #[serde(default)]
    pub(super) leaving: Option<String>,
    /// How often it made room and was started again.
    #[serde(default)]
    pub(super) requeued: u32,
}

/// How long a job's record may take to be there.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);
/// The variable that tells a program's starter which job it is.
pub(super) const OWN: &str = "WEFT_JOB";

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    /// Seconds since 1970.
    pub(super) at: u64,
    /// Its exit code, or the signal that ended it.
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
}

/// Where a job is written down.
#[derive(Clone, Debug)]
pub(super) struct Job {
    folder: PathBuf,
    name: String,
}

/// Held for as long as a job is looked after.
#[derive(Debug)]
pub(super) struct Held(#[allow(dead_code, reason = "the lock goes with it")] File);

impl Job {
    /// The job of this name, whether or not there is one.
    pub(super) fn named(name: &str) -> Result<Job, Misuse> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(fits) {
            return Err(Misuse(format!("call a job `{name}`: 1 to 64 letters, digits, `-`, `_` and `.` are allowed")));
        }
        Ok(Job { folder: folder()?, name: name.to_owned() })
    }

    /// The job that this process is.
    pub(super) fn own() -> Option<Job> {
        Job::named(std::env::var_os(OWN)?.to_str()?).ok()
    }

    /// Writes down that it waits, and for what, or that it has its share.
    pub(super) fn note(&self, waiting: Option<&str>) {
        // Whoever looks after it makes its record, a moment after it was started.
        let until = Instant::now() + RECORD_PATIENCE;
        let record = loop {
            match self.read() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                record => break record,
            }
        };
        if let Some(mut record) = record {
            (record.entered, record.waiting) = (waiting.is_none(), waiting.map(str::to_owned));
            // Whoever runs it does without.
            let _ = self.write(&record);
        }
    }

    /// All jobs that are written down, by name.
    pub(super) fn all() -> Result<Vec<(Job, Record)>> {
        let entries = std::fs::read_dir(folder()?).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned));
        let mut names: Vec<String> = names.collect();
        names.sort();
        let jobs = names.iter().filter_map(|name| Job::named(name).ok());
        Ok(jobs.filter_map(|job| job.read().map(|record| (job, record))).collect())
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path("log")
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", self.name))
    }

    /// What is written down; `None` where there is nothing, or nothing that makes sense.
    pub(super) fn read(&self) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.path("json")).ok()?).ok()
    }

    /// Writes it down, as a whole.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        let (path, beside) = (self.path("json"), self.path("new"));
        let text = serde_json::to_vec_pretty(record)?;
        std::fs::write(&beside, text).with_context(|| format!("write {}", beside.display()))?;
        std::fs::rename(&beside, &path).with_context(|| format!("replace {}", path.display()))
    }

    /// Makes the job this process's to look after; `None` while somebody else does.
    pub(super) fn hold(&self) -> Result<Option<Held>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .with_context(|| format!("make {}", self.folder.display()))?;
        let path = self.path("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(Held(file)))
    }

    /// Whether somebody looks after it.
    pub(super) fn is_held(&self) -> bool {
        File::open(self.path("lock")).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    /// Whoever looks after it is not to start it again.
    pub(super) fn end_for_good(&self) -> Result<()> {
        let path = self.path("stop");
        std::fs::write(&path, []).with_context(|| format!("write {}", path.display()))
    }

    /// Whether it was said that it is not to be started again.
    pub(super) fn is_to_end(&self) -> bool {
        self.path("stop").exists()
    }

    /// Forgets it.
    pub(super) fn remove(&self) {
        for kind in ["json", "log", "lock", "stop"] {
            let _ = std::fs::remove_file(self.path(kind));
        }
    }
}

/// Where jobs are written down: `WEFT_JOBS`, or a folder of this user's.
fn folder() -> Result<PathBuf, Misuse> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let folder = set("WEFT_JOBS").or_else(|| Some(state()?.join("weft/jobs")));
    folder.ok_or_else(|| Misuse("find a folder for jobs: set HOME, or WEFT_JOBS".to_owned()))
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// How a job ended, in words.
pub(super) fn how(ended: &Ended) -> String {
    match (ended.code, ended.signal) {
        (Some(0), _) => "done".to_owned(),
        (Some(code), _) => format!("failed with {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
