//! Where the daemon is: its socket, and the files beside it.

use anyhow::{Context, Result, bail};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where the daemon of the whole machine is, when root started one.
const MACHINE: &str = "/run/weft/node.sock";

/// Paths of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The socket.
    pub socket: PathBuf,
}

impl Place {
    /// The daemon with this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Place {
        Place { socket: socket.into() }
    }

    /// Where this user's daemon is or would be: `WEFT_SOCKET`, or a folder of root's or of this user.
    pub fn own() -> Place {
        Place::at(shm::socket_path())
    }

    /// Where a daemon may be that this user can ask, the likeliest first.
    pub fn all() -> Vec<Place> {
        let own = Place::own();
        let chosen = std::env::var_os("WEFT_SOCKET").is_some_and(|path| !path.is_empty());
        let machine = Place::at(MACHINE);
        if chosen || own == machine { vec![own] } else { vec![machine, own] }
    }

    /// What a daemon that was started on demand prints.
    pub fn log(&self) -> PathBuf {
        self.socket.with_extension("log")
    }

    /// The folder of the MPS server.
    pub(super) fn mps(&self) -> PathBuf {
        self.socket.with_extension("mps")
    }

    /// The folder of what was learned of programs.
    pub(super) fn learned(&self) -> PathBuf {
        self.socket.with_extension("learned")
    }

    /// Who there is, for the next daemon.
    pub(super) fn tenants(&self) -> PathBuf {
        self.socket.with_extension("json")
    }

    /// Makes the folder, or makes sure that nobody else could have put something into it.
    pub fn prepare(&self) -> Result<()> {
        let folder = self.folder();
        let me = rustix::process::getuid();
        let mode = if me.is_root() { 0o755 } else { 0o700 };
        match DirBuilder::new().recursive(true).mode(mode).create(folder) {
            Ok(()) => {}
            Err(error) => bail!("make the folder {}: {error}", folder.display()),
        }
        let found = std::fs::metadata(folder).with_context(|| format!("look at the folder {}", folder.display()))?;
        if found.uid() != me.as_raw() && found.uid() != 0 {
            bail!("use the folder {}: it belongs to another user; set WEFT_SOCKET to another path", folder.display());
        }
        Ok(())
    }

    /// Becomes the only daemon here, for as long as the file is held; the kernel lets go of it however a process ends.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.socket.with_extension("lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.with_context(|| format!("open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!("share GPUs at {}: a daemon is there already", self.socket.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }

    fn folder(&self) -> &Path {
        self.socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}
