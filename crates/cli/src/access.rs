//! Who may administer a server on this machine: the user that runs it, by a socket, and whoever has its key, by a file.
//! Both are in the state folder.
//!
//! The socket is named after the metrics port, so that servers that share a folder do not get in each other's way and a
//! command finds the one that it was told to ask. Commands prefer it to the key: what is sent to a port may be read by
//! another user of the machine who took that port, and the kernel says whose a socket is.

use crate::output::Misuse;
use anyhow::{Context, Result, bail};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const KEY_FILE: &str = "admin.key";
/// Bytes of a key that is made here.
const KEY_BYTES: usize = 32;
/// The longest path that the address of a socket has room for.
const ADDRESS_BYTES: usize = 100;

/// The admin key of a state folder; made where there is none.
pub(crate) fn admin_key(state: &Path) -> Result<String> {
    let path = state.join(KEY_FILE);
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Misuse("make an admin key: the system has no randomness".into()))?;
    let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let new = state.join(format!("{KEY_FILE}.{}", std::process::id()));
    let written = write_new(&new, &key).and_then(|()| match std::fs::hard_link(&new, &path) {
        // Another server of this folder was quicker.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    });
    let _ = std::fs::remove_file(&new);
    written.with_context(|| format!("write {}", path.display()))?;
    tracing::info!(file = %path.display(), "made an admin key");
    read_key(&path)?.with_context(|| format!("read {}", path.display()))
}

fn write_new(path: &Path, key: &str) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(format!("{key}\n").as_bytes())?;
    file.sync_all()
}

/// The key in a file, if there is the file. One that others could read or have written is not taken for a key.
fn read_key(path: &Path) -> Result<Option<String>> {
    let shown = path.display();
    let mut file = match rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(Misuse(format!("read {shown}: {}", std::io::Error::from(error))).into()),
    };
    let facts = file.metadata().with_context(|| format!("read {shown}"))?;
    let own = rustix::process::geteuid().as_raw();
    if !facts.is_file() || (facts.uid() != own && facts.uid() != 0) {
        return Err(
            Misuse(format!("trust {shown}: it belongs to somebody else; remove it, and a new one is made")).into()
        );
    }
    if facts.mode() & 0o077 != 0 {
        let how = "others on this machine may read it; remove it, and a new key is made";
        return Err(Misuse(format!("trust {shown}: {how}")).into());
    }
    let mut key = String::new();
    file.read_to_string(&mut key).with_context(|| format!("read {shown}"))?;
    let key = key.trim();
    if key.len() < KEY_BYTES {
        return Err(Misuse(format!("use {shown}: it holds no key; remove it, and a new one is made")).into());
    }
    Ok(Some(key.to_owned()))
}

/// The key that is in a folder already.
pub(crate) fn existing_key(state: &Path) -> Option<String> {
    read_key(&state.join(KEY_FILE)).ok().flatten()
}

/// A socket that commands of the same user reach a server by. Its file goes with it.
pub(crate) struct LocalSocket {
    path: PathBuf,
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn socket_path(state: &Path, port: u16) -> PathBuf {
    state.join(format!("admin-{port}.sock"))
}

/// Listens for commands to the server with this metrics port.
pub(crate) fn listen(state: &Path, port: u16) -> Result<(LocalSocket, UnixListener)> {
    let path = socket_path(state, port);
    match at(&path, |path| UnixStream::connect(path)) {
        Ok(_) => bail!("{} is another server's", path.display()),
        // Left behind by a server that was killed.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(&path)?,
        Err(_) => {}
    }
    let listener =
        at(&path, |path| UnixListener::bind(path)).with_context(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((LocalSocket { path }, listener))
}

/// Does something with a socket's path, or with a shorter one for it where it is too long for an address.
fn at<T>(path: &Path, act: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    if path.as_os_str().len() <= ADDRESS_BYTES {
        return act(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return act(path) };
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
    act(&PathBuf::from(format!("/proc/self/fd/{number}")).join(name))
}

/// A connection to the server of a state folder: the one with this metrics port; without, the one with the usual port,
/// or the only one there is. None where no server listens.
pub(crate) fn connect(state: &Path, port: Option<u16>, usual: u16) -> Result<Option<UnixStream>> {
    let mut ports = match port {
        Some(port) => vec![port],
        None => ports_in(state),
    };
    if port.is_none() && ports.contains(&usual) {
        ports.insert(0, usual);
    }
    let mut found: Vec<(u16, UnixStream)> = Vec::new();
    for port in ports {
        let path = socket_path(state, port);
        match at(&path, |path| UnixStream::connect(path)) {
            Ok(stream) => {
                belongs(state, &stream).with_context(|| format!("use {}", path.display()))?;
                found.push((port, stream));
            }
            Err(error) if [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind()) => {}
            Err(error) => return Err(Misuse(format!("use {}: {error}", path.display())).into()),
        }
        if found.first().is_some_and(|(first, _)| *first == usual) {
            break;
        }
    }
    if found.len() > 1 {
        let ports: Vec<String> = found.iter().map(|(port, _)| port.to_string()).collect();
        let how = format!("say which with --server http://127.0.0.1:{}", ports[0]);
        return Err(Misuse(format!("choose a server: there are some on ports {}; {how}", ports.join(", "))).into());
    }
    Ok(found.pop().map(|(_, stream)| stream))
}

fn ports_in(state: &Path) -> Vec<u16> {
    let names = std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let port = |name: std::ffi::OsString| name.to_str()?.strip_prefix("admin-")?.strip_suffix(".sock")?.parse().ok();
    let mut ports: Vec<u16> = names.filter_map(port).collect();
    ports.sort_unstable();
    ports
}

/// Whether the server at the other end is one to tell things to: this user's, root's, or the state folder's owner's.
fn belongs(state: &Path, stream: &UnixStream) -> Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream).context("see whose it is")?.uid.as_raw();
    let owner = std::fs::metadata(state).with_context(|| format!("look at {}", state.display()))?.uid();
    if [rustix::process::geteuid().as_raw(), 0, owner].contains(&peer) {
        return Ok(());
    }
    Err(Misuse(format!("trust the server there: it is run by user {peer}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        scheduler::private_folder(&state).unwrap();
        assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        assert_eq!(existing_key(&state), None);
        let key = admin_key(&state).unwrap();
        assert_eq!((key.len(), admin_key(&state).unwrap()), (64, key.clone()));
        let path = state.join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "nothing else is left there");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(admin_key(other.path()).unwrap(), key);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(admin_key(&state).unwrap_err().to_string().contains("others on this machine may read it"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(admin_key(&state).is_err(), "a link is not followed");
    }

    #[test]
    fn sockets_are_found_by_their_ports() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than an address may be.
        let state = folder.path().join("x".repeat(120));
        scheduler::private_folder(&state).unwrap();
        let there = |port| connect(&state, port, 8002).map(|stream| stream.is_some());
        assert!(!there(None).unwrap() && !there(Some(9001)).unwrap());
        let (held, listener) = listen(&state, 9001).unwrap();
        assert_eq!(std::fs::metadata(&held.path).unwrap().mode() & 0o777, 0o600);
        assert!(there(None).unwrap() && there(Some(9001)).unwrap() && !there(Some(9002)).unwrap());
        assert!(listen(&state, 9001).is_err(), "it is not taken from a server that runs");
        let (second, _second_listener) = listen(&state, 9002).unwrap();
        assert!(there(None).unwrap_err().to_string().contains("9001, 9002"));
        let (_usual, _usual_listener) = listen(&state, 8002).unwrap();
        assert!(there(None).unwrap());
        drop((held, second));
        assert!(!there(Some(9001)).unwrap());
        // A server that was killed leaves a file behind.
        drop(listener);
        let (killed, listener) = listen(&state, 9001).unwrap();
        std::mem::forget(killed);
        drop(listener);
        assert!(!there(Some(9001)).unwrap());
        listen(&state, 9001).unwrap();
    }
}
