//! Where a daemon is: its socket and the files beside it.

use anyhow::{Context, Result, bail};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The socket of the machine's daemon, which root starts.
const MACHINE: &str = "/run/weft/node.sock";

/// The paths of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonPaths {
    /// The socket.
    pub socket: PathBuf,
}

impl DaemonPaths {
    /// The daemon with this socket.
    pub fn at(socket: impl Into<PathBuf>) -> DaemonPaths {
        DaemonPaths { socket: socket.into() }
    }

    /// This user's daemon: at `WEFT_SOCKET`, or in root's or this user's folder. It need not run.
    pub fn own() -> DaemonPaths {
        DaemonPaths::at(shm::socket_path())
    }

    /// Every daemon that this user may ask, the likeliest first.
    pub fn all() -> Vec<DaemonPaths> {
        let own = DaemonPaths::own();
        let chosen = std::env::var_os("WEFT_SOCKET").is_some_and(|path| !path.is_empty());
        let machine = DaemonPaths::at(MACHINE);
        if chosen || own == machine { vec![own] } else { vec![machine, own] }
    }

    /// The log of a daemon that was started on demand.
    pub fn log(&self) -> PathBuf {
        self.socket.with_extension("log")
    }

    /// The folder of the MPS server.
    pub fn mps(&self) -> PathBuf {
        self.socket.with_extension("mps")
    }

    /// The folder with what was learned about programs.
    pub fn learned(&self) -> PathBuf {
        self.socket.with_extension("learned")
    }

    /// The list of tenants, for the next daemon.
    pub fn tenants(&self) -> PathBuf {
        self.socket.with_extension("json")
    }

    /// Makes the folder, or checks that no other user could have put something into it.
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

    /// Takes the lock that only one daemon here can have. The kernel frees it when the process ends, however it ends.
    pub fn lock(&self) -> Result<File> {
        let path = self.socket.with_extension("lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.with_context(|| format!("open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "share GPUs at {}: another daemon runs there; stop it, or set WEFT_SOCKET to another path",
                    self.socket.display()
                )
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }

    fn folder(&self) -> &Path {
        self.socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}
