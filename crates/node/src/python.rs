//! The Python package that workers import, carried in the binary and written out when a node starts.
//!
//! So that one file is all that must be installed. What is written equals `python/weft` in the repository.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const FILES: [(&str, &str); 8] = [
    ("__init__.py", include_str!("../../../python/weft/__init__.py")),
    ("_cuda.py", include_str!("../../../python/weft/_cuda.py")),
    ("_files.py", include_str!("../../../python/weft/_files.py")),
    ("_format.py", include_str!("../../../python/weft/_format.py")),
    ("_keeper.py", include_str!("../../../python/weft/_keeper.py")),
    ("_protocol.py", include_str!("../../../python/weft/_protocol.py")),
    ("_weights.py", include_str!("../../../python/weft/_weights.py")),
    ("worker.py", include_str!("../../../python/weft/worker.py")),
];

/// The folder to be searched for the package.
pub(crate) fn folder(directory: &Path) -> PathBuf {
    directory.join("python")
}

/// Writes the package, unless it is there already.
pub(crate) fn install(directory: &Path) -> Result<()> {
    let package = folder(directory).join("weft");
    std::fs::create_dir_all(&package).with_context(|| format!("create {}", package.display()))?;
    // Earlier versions let Python keep compiled files here, which may be cut off.
    let _ = std::fs::remove_dir_all(package.join("__pycache__"));
    for (name, text) in FILES {
        let path = package.join(name);
        if std::fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            continue;
        }
        // Moved into place, so that a worker that starts meanwhile sees the old file or the new one.
        let new = package.join(format!("{name}.{}", std::process::id()));
        std::fs::write(&new, text).with_context(|| format!("write {}", new.display()))?;
        std::fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
