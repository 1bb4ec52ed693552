//! What workers leave of weights that they shared, removed.
//!
//! `python/weft/_files.py` makes the files and says when they count: while somebody has them locked. A worker that is
//! killed cannot remove its own, so its node does, after every end of a worker and when it starts. It reads nothing of
//! what is in them.

use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the names of files end with, after the key. The lock goes last: who has it has the others to itself.
const KINDS: [&str; 4] = ["weights", "new", "socket", "lock"];

/// Where workers share weights.
pub(crate) fn folder(directory: &Path) -> PathBuf {
    // Workers may run in another folder than the one this path counts from.
    std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()).join("weights")
}

/// Removes what nobody has any more. Never waits.
pub(crate) fn sweep(directory: &Path) {
    let folder = folder(directory);
    let ours =
        |found: std::fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o77 == 0;
    // Where others can write, names may lead anywhere; workers share nothing there.
    if !std::fs::symlink_metadata(&folder).is_ok_and(ours) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(&folder) else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let key =
        |name: String| name.rsplit_once('.').filter(|(_, kind)| KINDS.contains(kind)).map(|(key, _)| key.to_owned());
    let keys: BTreeSet<String> = names.filter_map(key).collect();
    for key in keys {
        if let Err(error) = discard(&folder, &key) {
            tracing::warn!(key, %error, "shared weights are left behind");
        }
    }
}

/// Removes the files of one key, unless somebody has the weights or is at them.
fn discard(folder: &Path, key: &str) -> Result<()> {
    let at = |kind: &str| folder.join(format!("{key}.{kind}"));
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(at("lock"))?;
    if lock.try_lock().is_err() || !is_at(&lock, &at("lock")) {
        return Ok(());
    }
    match File::open(at("weights")) {
        Ok(weights) if weights.try_lock().is_err() => return Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for kind in KINDS {
        match std::fs::remove_file(at(kind)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a file is still there, and not another of the same name.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |one: std::fs::Metadata, other: std::fs::Metadata| one.dev() == other.dev() && one.ino() == other.ino();
    file.metadata().is_ok_and(|one| std::fs::symlink_metadata(path).is_ok_and(|other| same(one, other)))
}
