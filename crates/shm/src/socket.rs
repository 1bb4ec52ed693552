//! The way between processes and the daemon: a Unix socket of packets, each whole or not at all, with files attached.
//!
//! Who is at the other end is asked of the kernel. Files that come with a packet are closed on exec and closed when
//! dropped, also those nobody expected.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with, socketpair,
};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest packet.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// The most files that come with one: a page, a control page, notes and the pages of all slots fit.
const MAX_FILES: usize = 3 + crate::page::SLOTS;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Files that came with a packet.
pub type FileList = Vec<OwnedFd>;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is what its name says, as the kernel saw it when the connection was made")]
pub struct Peer {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Where the daemon listens: `$WEFT_SOCKET`, else a path that root or this user owns.
pub fn socket_path() -> PathBuf {
    let user = rustix::process::getuid();
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("WEFT_SOCKET") {
        return path;
    }
    let folder = match set("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run/weft"),
        Some(folder) => folder.join("weft"),
        None => PathBuf::from(format!("/tmp/weft-{}", user.as_raw())),
    };
    folder.join("node.sock")
}

/// The daemon's end.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens at a path. A socket that nobody listens at any more is replaced; one with somebody there is
    /// [`ErrorKind::AddrInUse`]. What is there and is no socket is left alone.
    pub fn bind(path: &Path) -> Result<Listener> {
        let address = SocketAddrUnix::new(path)?;
        let socket = packets(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                // A file that is no socket refuses connections as a stale socket does.
                if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(Error::new(ErrorKind::AlreadyExists, "something that is no socket is there"));
                }
                let probe = packets(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
                if connect(&probe, &address) != Err(Errno::CONNREFUSED) {
                    return Err(Error::new(ErrorKind::AddrInUse, "somebody listens there already"));
                }
                std::fs::remove_file(path)?;
                bind(&socket, &address)?;
            }
            result => result?,
        }
        listen(&socket, BACKLOG)?;
        Ok(Listener(socket))
    }

    /// The next connection, as non-blocking as asked; [`ErrorKind::WouldBlock`] when nobody is there.
    pub fn accept(&self, nonblocking: bool) -> Result<Connection> {
        let flags = if nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        Ok(Connection(accept_with(&self.0, flags | SocketFlags::CLOEXEC)?))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Either end of a connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Connects without ever waiting. What follows waits for at most `timeout`, or not at all when it is zero.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Connection> {
        let socket = packets(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let connection = Connection(socket);
        if !timeout.is_zero() {
            connection.set_timeout(timeout)?;
        }
        Ok(connection)
    }

    /// Two ends in one process.
    pub fn pair() -> Result<(Connection, Connection)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Connection(one), Connection(other)))
    }

    /// Lets sending and receiving wait for at most this long.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.0, timeout.is_zero())?;
        let timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        set_socket_timeout(&self.0, Timeout::Send, timeout)?;
        set_socket_timeout(&self.0, Timeout::Recv, timeout)?;
        Ok(())
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Result<Peer> {
        let peer = socket_peercred(&self.0)?;
        Ok(Peer { pid: peer.pid.as_raw_nonzero().get() as u32, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }

    /// Sends one packet. A peer that is gone is an error, never a signal.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Error::new(ErrorKind::InvalidInput, "more files than one packet carries"));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives one packet into the buffer and its files into the list; returns how long it is, 0 when the other end is
    /// closed. A packet that does not fit, or whose files do not, is [`ErrorKind::InvalidData`].
    pub fn receive(&self, buffer: &mut [u8], files: &mut FileList) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };
        files.clear();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            files.clear();
            return Err(Error::new(ErrorKind::InvalidData, "a packet was larger than any message"));
        }
        Ok(received.bytes)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn packets(flags: SocketFlags) -> Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

#[cfg(test)]
#[cfg(not(any(miri, loom)))]
mod tests {
    use super::*;
    use crate::{Message, OwnPage, SeenPage, TenantPage};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weft-shm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn pages_travel_with_messages() {
        let folder = folder("travel");
        let path = folder.join("node.sock");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(listener.accept(true).unwrap_err().kind(), ErrorKind::WouldBlock);
        let client = Connection::connect(&path, Duration::from_secs(5)).unwrap();
        let server = listener.accept(false).unwrap();
        assert_eq!(server.peer().unwrap().pid, std::process::id());
        assert_eq!(server.peer().unwrap().uid, rustix::process::getuid().as_raw());

        let (page, file) = OwnPage::<TenantPage>::create("tenant", true).unwrap();
        let attached = Message::Attached { slot: 1, slots: 0, generation: 2, tenant: 3 };
        let mut buffer = [0; 256];
        let files = vec![file.as_fd(); MAX_FILES];
        server.send(attached.encode(&mut buffer).unwrap(), &files).unwrap();
        let mut received = FileList::new();
        let length = client.receive(&mut buffer, &mut received).unwrap();
        assert_eq!(Message::decode(&buffer[..length]), Ok(attached));
        assert_eq!(received.len(), MAX_FILES);
        page.occupy(1, 1, 2, 3);
        assert!(SeenPage::<TenantPage>::open(received[65].as_fd()).unwrap().read().is_some());

        drop(server);
        assert_eq!(client.receive(&mut buffer, &mut received).unwrap(), 0);
        assert!(client.send(b"x", &[]).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = folder("stale");
        let path = folder.join("node.sock");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(Listener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        Listener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file of somebody's").unwrap();
        assert!(Listener::bind(&path).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn packets_too_large_are_refused_and_the_next_is_read() {
        let (one, other) = Connection::pair().unwrap();
        other.set_timeout(Duration::from_secs(5)).unwrap();
        let mut files = FileList::new();
        one.send(&[7; 100], &[one.as_fd()]).unwrap();
        one.send(&[8; 10], &[]).unwrap();
        let mut buffer = [0; 50];
        assert_eq!(other.receive(&mut buffer, &mut files).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(files.is_empty());
        assert_eq!(other.receive(&mut buffer, &mut files).unwrap(), 10);
    }
}
