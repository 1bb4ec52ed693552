//! Files: read with a limit, and written as a whole or not at all.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file beyond this is no scenario, profile or trace, but perhaps a device without an end.
const BYTES_MAX: u64 = 1 << 30;

/// The text of a file, unless it is larger than 1 GiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_text_from(fs::File::open(path)?)
}

/// The text of what can be read, unless it is larger than 1 GiB.
pub fn read_text_from(from: impl Read) -> io::Result<String> {
    at_most(from, BYTES_MAX)
}

fn at_most(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    from.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} MiB", bytes_max >> 20)));
    }
    Ok(text)
}

/// Why a file or folder could not be used, without the system's error numbers.
pub fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or folder".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        ErrorKind::IsADirectory => "it is a folder, not a file".into(),
        ErrorKind::InvalidData => "it is not UTF-8 text".into(),
        _ => error.to_string(),
    }
}

/// A file that is written as a whole, or not at all.
#[derive(Debug)]
pub struct WholeFile {
    target: PathBuf,
}

impl WholeFile {
    /// Finds out whether the file can be written, before the work that goes into it is done.
    pub fn new(path: &Path) -> Result<WholeFile, String> {
        // A link stays, and what it leads to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(found) if found.is_dir() => return Err("it is a folder, not a file".into()),
            // A device or pipe would not be written to but replaced.
            Ok(found) if !found.is_file() => return Err("it is not a plain file".into()),
            Ok(_) | Err(_) => {}
        }
        let file = WholeFile { target };
        file.beside().map(|_| file).map_err(|error| reason(&error))
    }

    /// Writes it.
    pub fn write(&self, text: &str) -> Result<(), String> {
        let write = || {
            let mut file = self.beside()?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&self.target)?;
            Ok(())
        };
        write().map_err(|error: io::Error| reason(&error))
    }

    /// A new file in the same folder, so that renaming is all that is left to do. It is gone when dropped.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        builder.prefix(".weft-").suffix(".tmp");
        // As readable as any other new file, not only to its owner.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(folder.unwrap_or(Path::new("."))).map_err(|error| io::Error::from(error.kind()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_written_as_a_whole_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let file = WholeFile::new(&path).unwrap();
        assert!(names(folder.path()).is_empty());
        file.write("one").unwrap();
        file.write("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(names(folder.path()), ["page.html"]);
    }

    #[test]
    fn what_cannot_be_written_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let why = |path: &Path| WholeFile::new(path).unwrap_err();
        assert_eq!(why(folder.path()), "it is a folder, not a file");
        assert_eq!(why(&folder.path().join("none/page.html")), "no such file or folder");
        assert_eq!(why(Path::new("/dev/null")), "it is not a plain file");
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("page.html"), folder.path().join("latest"));
        fs::write(&path, "one").unwrap();
        std::os::unix::fs::symlink("page.html", &link).unwrap();
        WholeFile::new(&link).unwrap().write("two").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }

    #[test]
    fn a_device_without_an_end_is_refused() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b' ');
                Ok(buffer.len())
            }
        }
        assert_eq!(at_most(Endless, 1 << 20).unwrap_err().to_string(), "it is larger than 1 MiB");
    }
}
