//! Where packages are made, and files that are put where there is no folder yet.

use anyhow::{Context, Result};
use std::path::Path;

/// Where packages are, in the build folder. `dist` there is what Cargo builds with that profile.
pub(super) const FOLDER: &str = "packages";

/// Copies a file to where its folder need not exist yet.
pub(super) fn place(from: &Path, to: &Path) -> Result<()> {
    make_folder_of(to)?;
    std::fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display())).map(drop)
}

/// Writes a file to where its folder need not exist yet.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    make_folder_of(path)?;
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
