//! What is deployed, on disk: written before anybody is told that it was done, so that it survives anything.
//!
//! A store is one text file, `deployments.txt`, with a line for each deployment (`format`). It is a handful of lines
//! that change when a person types a command, so every change writes the whole file anew under another name and renames
//! it (`disk`). A database that changes its file in place has to be right after a torn write at any byte; a rename needs
//! only that the file system keeps its word, and the file is the old one or the new one.
//!
//! Invariants:
//! 1. What a write that failed left behind is never read: memory and file keep what they had, and the next write starts
//!    from there. A disk that was full needs no restart.
//! 2. A line that cannot be read is written back byte for byte, until its model is deployed anew or undeployed.
//! 3. A file that is there and is not whole is an error, never an empty store: files are made by renaming them too, so
//!    nothing that Weft does leaves an empty one.
//! 4. One process at a time: it holds a lock on `deployments.lock`, which ends with it (`lock`). A scheduler that
//!    others may take over from writes only while it leads (`lead`).
//!
//! Not covered: a disk that says that it has written what it has not.

mod disk;
mod record;
mod format;
mod legacy;
mod lock;
mod repair;
#[cfg(test)]
mod tests;

pub(crate) use lock::{Beat, FolderLock};
pub use record::{Record, Stored};
pub use repair::{Repaired, Report, inspect, repair};

use crate::lead::Lead;
use anyhow::{Context, Result, bail};
use disk::{Disk, Folder, WriteError};
use format::{Contents, Line};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of deployments in a state folder.
const FILE: &str = "deployments.txt";

/// The deployments of a scheduler.
pub struct Store {
    lines: Vec<Line>,
    /// Where they are; nowhere for a store that is forgotten with the process.
    place: Option<Place>,
}

struct Place {
    folder: PathBuf,
    disk: Box<dyn Disk>,
    held: Held,
}

/// What keeps others from the store.
enum Held {
    /// For as long as it is open.
    Lock { _lock: FolderLock },
    /// For as long as this process leads.
    Lead(Arc<dyn Lead>),
    /// Nothing.
    #[cfg(test)]
    Nothing,
}

impl Store {
    /// Opens the store of a state folder. The folder is made where it is not there, for its owner alone.
    pub fn open(folder: &Path) -> Result<Store> {
        private_folder(folder)?;
        let lock = lock(folder)?;
        Store::held(folder, Held::Lock { _lock: lock })
    }

    /// Opens the store of a state folder for the scheduler that leads.
    pub fn led(folder: &Path, lead: Arc<dyn Lead>) -> Result<Store> {
        Store::held(folder, Held::Lead(lead))
    }

    fn held(folder: &Path, held: Held) -> Result<Store> {
        Store::read(Place { folder: folder.to_owned(), disk: Box::new(Folder(folder.to_owned())), held })
    }

    /// What its scheduler leads by, if others may take over.
    pub(crate) fn lead(&self) -> Option<&Arc<dyn Lead>> {
        match &self.place.as_ref()?.held {
            Held::Lead(lead) => Some(lead),
            _ => None,
        }
    }

    /// A store that is forgotten with the process.
    pub fn in_memory() -> Store {
        Store { lines: Vec::new(), place: None }
    }

    fn read(place: Place) -> Result<Store> {
        let path = place.folder.join(FILE);
        let Some(bytes) = place.disk.read(FILE).with_context(|| format!("read {}", path.display()))? else {
            return Store::migrate(place);
        };
        let Contents { lines, damage } = format::read(&bytes);
        if let Some(damage) = damage {
            bail!("read the deployments in {}: {damage}; {}", path.display(), remedy(&place.folder));
        }
        if place.folder.join(legacy::FILE).exists() {
            tracing::warn!(
                "{} is from an older Weft and is not read: {} is there",
                place.folder.join(legacy::FILE).display(),
                path.display()
            );
        }
        Ok(Store { lines, place: Some(place) })
    }

    /// Takes over what an older Weft wrote, if it did, and leaves that file beside under another name.
    fn migrate(place: Place) -> Result<Store> {
        let old = place.folder.join(legacy::FILE);
        let Some(lines) = legacy::read(&old)
            .with_context(|| format!("read the deployments in {}; {}", old.display(), remedy(&place.folder)))?
        else {
            return Ok(Store { lines: Vec::new(), place: Some(place) });
        };
        let mut store = Store { lines: Vec::new(), place: Some(place) };
        store.write(lines)?;
        let kept = legacy::set_aside(&old)?;
        tracing::info!("took over {} deployments; the old file is {}", store.lines.len(), kept.display());
        Ok(store)
    }

    /// All deployments, those that cannot be read among them, by name and version.
    pub fn all(&self) -> Vec<Record> {
        let mut all: Vec<Record> = self.lines.iter().map(|line| line.record.clone()).collect();
        all.sort_by(|one, other| (&one.name, one.version).cmp(&(&other.name, other.version)));
        all
    }

    /// Remembers deployments, all of them or none.
    pub fn put(&mut self, deployments: &[Stored]) -> Result<()> {
        let mut lines = self.lines.clone();
        for stored in deployments {
            stored.spec.check().map_err(anyhow::Error::msg).context("write a deployment that could not be read")?;
            lines.retain(|line| !line.is_of(&stored.spec.name, stored.spec.version));
            lines.push(Line::of(stored)?);
        }
        self.write(lines)
    }

    /// Forgets deployments, all of them or none.
    pub fn remove(&mut self, deployments: &[(String, u32)]) -> Result<()> {
        let mut lines = self.lines.clone();
        lines.retain(|line| !deployments.iter().any(|(name, version)| line.is_of(name, *version)));
        self.write(lines)
    }

    /// Lets the file hold these lines, and then the memory.
    fn write(&mut self, lines: Vec<Line>) -> Result<()> {
        if let Some(place) = &self.place {
            let path = place.folder.join(FILE);
            if let Held::Lead(lead) = &place.held
                && !lead.is_held()
            {
                bail!("write {}: another scheduler leads since; give it the order", path.display());
            }
            disk::replace(&*place.disk, FILE, &format::write(&lines)).map_err(|error| explain(&path, &error))?;
        }
        self.lines = lines;
        Ok(())
    }
}

/// What went wrong with a write, and what to do.
fn explain(path: &Path, WriteError { error, replaced }: &WriteError) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "make room on that disk",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "let this user write there",
        _ => "put that right",
    };
    let state = match replaced {
        false => "nothing was changed, and what was deployed before goes on",
        true => "what was deployed before goes on, and after a crash the change may be there all the same",
    };
    anyhow::anyhow!("write {}: {error}; {state}: {remedy} and try again", path.display())
}

fn remedy(folder: &Path) -> String {
    format!("`weft store repair --state {}` keeps what can be read and moves the rest aside", folder.display())
}

/// Makes sure that a state folder is there, that it is this user's, and that nobody else looks into it. What is in one that
/// others could write to may be theirs, and is not read.
pub fn private_folder(folder: &Path) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let making = || format!("make the folder {}", folder.display());
    let Ok(found) = std::fs::metadata(folder) else {
        if let Some(above) = folder.parent() {
            std::fs::create_dir_all(above).with_context(making)?;
        }
        return std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder).with_context(making);
    };
    let mode = found.permissions().mode() & 0o7777;
    let me = rustix::process::geteuid().as_raw();
    let link = std::fs::symlink_metadata(folder).with_context(|| format!("look at {}", folder.display()))?;
    if found.uid() != me || link.uid() != me {
        bail!("use the state folder {}: it belongs to another user; name another with --state", folder.display());
    }
    if mode & 0o002 != 0 && std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!(
            "use the state folder {}: everybody may write to it (mode {mode:o}), so what is in it may be anybody's; look at \
             it and `chmod 700` it, or name another with --state",
            folder.display()
        );
    }
    if mode & 0o077 == 0 {
        return Ok(());
    }
    // A folder that others use as well is not taken from them: `/tmp`, a folder with a project.
    let shared = mode & 0o1000 != 0 || folder.join("weft.toml").exists() || folder.parent().is_none();
    let tightened = match shared {
        false => std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)),
        true => Err(std::io::Error::other("it is not Weft's alone")),
    };
    match tightened {
        Ok(()) => {
            tracing::info!(folder = %folder.display(), "the state folder was open to others (mode {mode:o}); it has mode 700")
        }
        Err(error) => tracing::warn!(
            folder = %folder.display(),
            "the state folder is open to others (mode {mode:o}) and stays so: {error}; name another with --state"
        ),
    }
    Ok(())
}

fn lock(folder: &Path) -> Result<FolderLock> {
    FolderLock::take(folder)?.with_context(|| {
        format!(
            "open the deployments in {}: another `weft` is running with them; stop it, or name another folder with --state",
            folder.display()
        )
    })
}

/// Lets a file of a state folder hold this: all of it, or what it held before.
pub(crate) fn replace_file(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    disk::replace(&Folder(folder.to_owned()), name, bytes).map_err(|failed| failed.error)
}
