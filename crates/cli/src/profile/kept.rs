//! The file that a profile is kept in, and what is done about one that is there already.

use super::file::{text, wrong};
use crate::output::{Misuse, WholeFile};
use rpc::profile::{Profile, Subject};
use std::path::{Path, PathBuf};

/// A file for a profile.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    file: WholeFile,
    /// What is in it, unless it is to be measured anew.
    profile: Option<Profile>,
}

impl Kept {
    /// Finds out whether it can be written, and what is in it, before anything is measured.
    pub(super) fn open(path: &Path, again: bool) -> Result<Kept, Misuse> {
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", path.display()));
        let file = WholeFile::new(path).map_err(refused)?;
        let mut profile = None;
        if !again && path.exists() {
            let read = Profile::read(&text("profile", path)?);
            profile = Some(read.map_err(|error| wrong("profile", path, format!("{error}; --again replaces it")))?);
        }
        Ok(Kept { path: path.to_owned(), file, profile })
    }

    /// What is in it, if that is about this. One that is about something else is refused.
    pub(super) fn about(&self, subject: &Subject) -> Result<Option<&Profile>, Misuse> {
        let Some(profile) = &self.profile else { return Ok(None) };
        match profile.check_for(subject) {
            Ok(()) => Ok(Some(profile)),
            Err(stale) => {
                let what = "--again replaces it, -o FILE writes another";
                Err(wrong("profile", &self.path, format!("{stale}; {what}")))
            }
        }
    }

    pub(super) fn write(&self, profile: &Profile) -> Result<(), Misuse> {
        let refused = |problem: String| Misuse(format!("write profile {}: {problem}", self.path.display()));
        self.file.write(&profile.write()).map_err(refused)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
