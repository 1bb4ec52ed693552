//! A file that is replaced as a whole: written under another name, on disk before it is renamed, and the rename on disk
//! before anybody is told.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A folder's files, as far as a store needs them. Tests put one here that fails wherever it can.
pub(super) trait Disk: Send {
    /// What a file holds; none where there is no such file.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// A new, empty file; one of that name is gone.
    fn create(&self, name: &str) -> io::Result<Box<dyn Draft>>;
    /// Gives a file the name of another, which is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Waits until names are on disk.
    fn sync_names(&self) -> io::Result<()>;
    /// Takes a file away.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A file that is being written.
pub(super) trait Draft {
    /// Adds to it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until it is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file could not be replaced.
pub(super) struct WriteError {
    pub(super) error: io::Error,
    /// Whether the new file has the name already, and only a crash could bring back the old one.
    pub(super) replaced: bool,
}

/// Lets a file hold this: either all of it, or what it held before.
pub(super) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
    let draft = format!("{name}.new");
    let prepare = || {
        let mut file = disk.create(&draft)?;
        file.write(bytes)?;
        file.sync()?;
        disk.rename(&draft, name)
    };
    if let Err(error) = prepare() {
        // It takes room that may be needed. If it stays, the next write takes its place.
        let _ = disk.remove(&draft);
        return Err(WriteError { error, replaced: false });
    }
    disk.sync_names().map_err(|error| WriteError { error, replaced: true })
}

/// A folder of this machine.
pub(super) struct Folder(pub(super) PathBuf);

impl Disk for Folder {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Draft>> {
        let path = self.0.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Deployments may have secrets in their environment.
        let file = File::options().create_new(true).write(true).mode(0o600).open(&path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }
}

impl Draft for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The name of a file with more at its end, such as nobody has.
pub(super) fn free_name(path: &Path, more: &str) -> PathBuf {
    let name = |count: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(if count == 0 { format!(".{more}") } else { format!(".{more}-{}", count + 1) });
        PathBuf::from(name)
    };
    (0..).map(name).find(|path| !path.exists()).expect("there are many numbers")
}
