//! Making a folder in which programs find the stand-in under the names of the real libraries.

use std::io::Result;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names.
pub const NAMES: [&str; 4] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Makes `folder` with links to `library`. Programs find them with `LD_LIBRARY_PATH=folder`.
pub fn install(library: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in NAMES {
        let link = folder.join(name);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => symlink(library, &link)?,
        }
    }
    Ok(())
}

/// The library as Cargo builds it: beside this program, or beside the folder of a test.
pub fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let places = folders.flat_map(|folder| [folder.to_path_buf(), folder.join("deps")]);
    let mut found = places.map(|folder| folder.join("libfakecuda.so")).filter(|path| path.exists());
    found.next().ok_or_else(|| std::io::Error::other("libfakecuda.so is not beside this program; build fakecuda first"))
}
