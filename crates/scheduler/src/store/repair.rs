//! A look at a store, and a store made whole again, while no server is running with it.

use super::disk::{self, Disk, Folder, free_name};
use super::format::{self, Contents, Line};
use super::{FILE, FolderLock, Record, explain, legacy, lock};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// What a look at a store found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file; none where nothing was ever deployed.
    pub file: Option<PathBuf>,
    /// Why the file is not whole.
    pub damage: Option<String>,
    /// Its records, in the order of the file.
    pub records: Vec<Record>,
}

impl Report {
    /// Whether a server would have all of it.
    pub fn is_well(&self) -> bool {
        self.damage.is_none() && self.records.iter().all(|record| record.content.is_ok())
    }
}

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was found before.
    pub before: Report,
    /// Where that lies which could not be kept, if there was any.
    pub aside: Option<PathBuf>,
}

/// Looks at the store of a state folder, and changes nothing.
pub fn inspect(folder: &Path) -> Result<Report> {
    let _lock = take(folder)?;
    Ok(look(folder)?.0)
}

/// Keeps the records that can be read, and moves the rest into a file beside.
pub fn repair(folder: &Path) -> Result<Repaired> {
    let _lock = take(folder)?;
    let (before, lines, unkept) = look(folder)?;
    let Some(file) = before.file.clone().filter(|_| !before.is_well()) else {
        return Ok(Repaired { before, aside: None });
    };
    if file.ends_with(legacy::FILE) && before.damage.is_some() {
        // Nothing of it can be read.
        let aside = free_name(&file, "damaged");
        std::fs::rename(&file, &aside).with_context(|| format!("rename {}", file.display()))?;
        return Ok(Repaired { before, aside: Some(aside) });
    }
    let disk = Folder(folder.to_owned());
    let write = |name: &str, bytes: &[u8]| {
        disk::replace(&disk, name, bytes).map_err(|error| explain(&folder.join(name), &error))
    };
    let aside = match unkept.is_empty() {
        true => None,
        false => {
            let aside = free_name(&folder.join(FILE), "damaged");
            let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            write(&name, &unkept)?;
            Some(aside)
        }
    };
    let kept: Vec<Line> = lines.into_iter().filter(|line| line.record.content.is_ok()).collect();
    write(FILE, &format::write(&kept))?;
    if file.ends_with(legacy::FILE) {
        legacy::set_aside(&file)?;
    }
    Ok(Repaired { before, aside })
}

fn take(folder: &Path) -> Result<FolderLock> {
    if !folder.is_dir() {
        bail!("look at {}: there is no such folder; name the server's with --state", folder.display());
    }
    lock(folder)
}

/// What is there: in words, line by line, and the bytes that a repair cannot keep.
fn look(folder: &Path) -> Result<(Report, Vec<Line>, Vec<u8>)> {
    let (path, old) = (folder.join(FILE), folder.join(legacy::FILE));
    let bytes = Folder(folder.to_owned()).read(FILE).with_context(|| format!("read {}", path.display()))?;
    let (file, contents) = match bytes {
        Some(bytes) => (Some(path), format::read(&bytes)),
        None => match legacy::read(&old) {
            Ok(None) => (None, Contents { lines: Vec::new(), damage: None }),
            Ok(Some(lines)) => (Some(old), Contents { lines, damage: None }),
            Err(error) => (Some(old), Contents { lines: Vec::new(), damage: Some(format!("{error:#}")) }),
        },
    };
    let Contents { lines, damage } = contents;
    let mut unkept = Vec::new();
    for line in lines.iter().filter(|line| line.record.content.is_err()) {
        unkept.extend(&line.raw);
        unkept.push(b'\n');
    }
    let records = lines.iter().map(|line| line.record.clone()).collect();
    Ok((Report { file, damage, records }, lines, unkept))
}
