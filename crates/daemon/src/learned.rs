//! What the daemon learned about programs, kept between their runs: one file for each program on each kind of GPU.
//!
//! A program is its executable and its command line. What was learned holds for the same program on the same kind of GPU
//! under the same driver only, so the file's name is a hash of all of these and the file repeats them. It is only a start:
//! measurements of the new run correct everything in it. Files are replaced as a whole, and an unreadable file is
//! ignored.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use shm::{Note, stable_hash};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The version of the file's format.
const VERSION: u32 = 1;
/// How many programs are kept: those that ran last.
const PROGRAMS_MAX: usize = 256;
/// The longest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// A program on a kind of GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    user: u32,
    executable: String,
    /// The executable's size and when it was changed.
    changed: (u64, i64),
    /// A hash, because a command line can hold secrets.
    command: u64,
    gpu: String,
    driver: String,
}

/// What is known about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Knowledge {
    /// How long its bursts wait for the GPU alone, in thousandths of their GPU time.
    pub(crate) wait_permille: Option<u64>,
    /// Identity, duration and gap of its kernels.
    kernels: Vec<(u64, u32, u32)>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    program: Program,
    #[serde(flatten)]
    knowledge: Knowledge,
}

/// The folder with all files.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    folder: PathBuf,
    driver: String,
}

impl Knowledge {
    pub(crate) fn new(wait_permille: Option<u64>, notes: Vec<Note>) -> Knowledge {
        let kernels = notes.into_iter().map(|note| (note.key, note.duration_ns, note.gap_ns)).collect();
        Knowledge { wait_permille, kernels }
    }

    pub(crate) fn notes(&self) -> impl Iterator<Item = Note> {
        self.kernels.iter().map(|(key, duration_ns, gap_ns)| Note {
            key: *key,
            duration_ns: *duration_ns,
            gap_ns: *gap_ns,
        })
    }

    fn is_empty(&self) -> bool {
        *self == Knowledge::default()
    }
}

impl Learned {
    pub(crate) fn new(folder: PathBuf, driver: Option<&str>) -> Learned {
        Learned { folder, driver: driver.unwrap_or_default().to_owned() }
    }

    /// The program that a process runs, if `/proc` shows it.
    pub(crate) fn program(&self, pid: u32, user: u32, gpu: &str) -> Option<Program> {
        let of_it = |file: &str| PathBuf::from(format!("/proc/{pid}/{file}"));
        let about = std::fs::metadata(of_it("exe")).ok()?;
        Some(Program {
            user,
            executable: std::fs::read_link(of_it("exe")).ok()?.to_string_lossy().into_owned(),
            changed: (about.len(), about.mtime()),
            command: stable_hash(&std::fs::read(of_it("cmdline")).ok()?),
            gpu: gpu.to_owned(),
            driver: self.driver.clone(),
        })
    }

    /// A command that was asked for. It is kept like a program.
    pub(crate) fn command(&self, command: u64, user: u32, gpu: &str) -> Program {
        let (executable, changed) = (String::new(), (0, 0));
        Program { user, executable, changed, command, gpu: gpu.to_owned(), driver: self.driver.clone() }
    }

    /// What is known about a program.
    pub(crate) fn read(&self, program: &Program) -> Knowledge {
        let read = || -> Result<Written> {
            let path = self.path(program)?;
            ensure!(std::fs::metadata(&path)?.len() <= BYTES_MAX, "{} is too long", path.display());
            Ok(serde_json::from_slice(&std::fs::read(&path)?)?)
        };
        match read() {
            Ok(written) if written.version == VERSION && written.program == *program => written.knowledge,
            _ => Knowledge::default(),
        }
    }

    /// Keeps what is known about a program. An empty record does not replace an older one.
    pub(crate) fn write(&self, program: &Program, knowledge: Knowledge) {
        if knowledge.is_empty() {
            return;
        }
        let written = Written { version: VERSION, program: program.clone(), knowledge };
        if let Err(error) = self.replace(&written) {
            tracing::warn!("what was learned about `{}` could not be kept: {error:#}", program.executable);
        }
    }

    fn replace(&self, written: &Written) -> Result<()> {
        let path = self.path(&written.program)?;
        let make = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        make.with_context(|| format!("make {}", self.folder.display()))?;
        if !path.exists() {
            self.remove_oldest();
        }
        let beside = path.with_extension("new");
        let text = serde_json::to_vec(written)?;
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let write = file.and_then(|mut file| file.write_all(&text));
        write.with_context(|| format!("write {}", beside.display()))?;
        std::fs::rename(&beside, &path).with_context(|| format!("replace {}", path.display()))
    }

    /// Removes the programs that have not run for the longest time.
    fn remove_oldest(&self) {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let changed = |entry: std::fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
        let mut files: Vec<_> = files.filter_map(changed).collect();
        files.sort();
        let too_many = (files.len() + 1).saturating_sub(PROGRAMS_MAX);
        for (_, path) in files.iter().take(too_many) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn path(&self, program: &Program) -> Result<PathBuf> {
        // The file repeats the program, in case two have one hash.
        let hash = stable_hash(&serde_json::to_vec(program)?);
        Ok(self.folder.join(format!("{hash:016x}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(folder: &std::path::Path, driver: &str) -> Learned {
        Learned::new(folder.join("learned"), Some(driver))
    }

    fn knowledge() -> Knowledge {
        Knowledge::new(Some(40), vec![Note { key: 8, duration_ns: 1_000, gap_ns: 20 }])
    }

    #[test]
    fn a_program_is_known_again_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let all = learned(folder.path(), "580");
        let me = all.program(std::process::id(), 0, "H200").unwrap();
        assert_eq!(all.read(&me), Knowledge::default());
        all.write(&me, knowledge());
        assert_eq!(learned(folder.path(), "580").read(&me), knowledge());
        all.write(&me, Knowledge::default());
        assert_eq!(all.read(&me), knowledge(), "a run that learned nothing takes nothing away");

        let on = |gpu| all.program(std::process::id(), 0, gpu).unwrap();
        assert_eq!(all.read(&on("A100")), Knowledge::default(), "another GPU");
        let newer = learned(folder.path(), "590");
        let me = newer.program(std::process::id(), 0, "H200").unwrap();
        assert_eq!(newer.read(&me), Knowledge::default(), "another driver");
        let other_user = Program { user: 7, ..on("H200") };
        assert_eq!(all.read(&other_user), Knowledge::default());
    }

    #[test]
    fn a_file_that_makes_no_sense_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let all = learned(folder.path(), "580");
        let me = all.program(std::process::id(), 0, "H200").unwrap();
        all.write(&me, knowledge());
        let path = all.path(&me).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let another = text.replace("\"gpu\":\"H200\"", "\"gpu\":\"A100\"");
        for broken in
            ["", "{", "[]", &text[..text.len() / 2], &another, &text.replace("\"version\":1", "\"version\":9")]
        {
            assert_ne!(broken, text);
            std::fs::write(&path, broken).unwrap();
            assert_eq!(all.read(&me), Knowledge::default(), "{broken}");
        }
        std::fs::write(&path, text).unwrap();
        assert_eq!(all.read(&me), knowledge());
    }

    #[test]
    fn those_that_ran_last_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let all = learned(folder.path(), "580");
        let me = all.program(std::process::id(), 0, "H200").unwrap();
        for number in 0..PROGRAMS_MAX as u64 + 20 {
            all.write(&Program { command: number, ..me.clone() }, knowledge());
        }
        assert_eq!(std::fs::read_dir(&all.folder).unwrap().count(), PROGRAMS_MAX);
        let last = Program { command: PROGRAMS_MAX as u64 + 19, ..me };
        assert_eq!(all.read(&last), knowledge());
    }
}
