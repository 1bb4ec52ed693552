//! The file that a profile is kept in, and what is done about one that is there already.

use config::profile::{Profile, Subject};
use harness::{Misuse, WholeFile, read_text, reason};
use std::path::{Path, PathBuf};

/// Where a profile says what a person should know while it measures.
pub type Note<'a> = &'a dyn Fn(&str);

/// A file for a profile.
#[derive(Debug)]
pub struct ProfileFile {
    path: PathBuf,
    file: WholeFile,
    /// What is in it, unless it is to be measured anew.
    profile: Option<Profile>,
}

impl ProfileFile {
    /// Finds out whether it can be written, and what is in it, before anything is measured.
    pub fn open(path: &Path, again: bool) -> Result<ProfileFile, Misuse> {
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", path.display()));
        let file = WholeFile::new(path).map_err(refused)?;
        let mut profile = None;
        if !again && path.exists() {
            let text = read_text(path).map_err(|error| wrong(path, reason(&error)))?;
            let read = Profile::read(&text);
            profile = Some(read.map_err(|error| wrong(path, format!("{error}; --again replaces it")))?);
        }
        Ok(ProfileFile { path: path.to_owned(), file, profile })
    }

    /// What is in it, if that is about this. One that is about something else is refused.
    pub(super) fn about(&self, subject: &Subject) -> Result<Option<&Profile>, Misuse> {
        let Some(profile) = &self.profile else { return Ok(None) };
        match profile.check_for(subject) {
            Ok(()) => Ok(Some(profile)),
            Err(stale) => {
                let what = "--again replaces it, -o FILE writes another";
                Err(wrong(&self.path, format!("{stale}; {what}")))
            }
        }
    }

    pub(super) fn write(&self, profile: &Profile) -> Result<(), Misuse> {
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", self.path.display()));
        self.file.write(&profile.write()).map_err(refused)
    }

    /// Says that nothing was measured.
    pub(super) fn note_measured_already(&self, profile: &Profile, note: Note<'_>) {
        let when = profile.measured.map_or("before".to_owned(), |date| format!("on {date}"));
        note(&format!("measured already {when}, in {}; --again to measure anew", self.path.display()));
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn wrong(path: &Path, problem: impl std::fmt::Display) -> Misuse {
    Misuse(format!("read profile {}: {problem}", path.display()))
}
