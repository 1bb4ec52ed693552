//! A connection to the daemon, to ask it questions.

use crate::paths::DaemonPaths;
use crate::wire::{Answer, Question, Status, StatusAsked};
use anyhow::{Context, Result, bail};
use shm::{Connection, FileList, MAX_MESSAGE, Message};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The least number of the file that stays open across `exec`: programs use small numbers themselves.
const FILE_MIN: i32 = 200;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    /// The daemon at the other end.
    pub paths: DaemonPaths,
}

impl Client {
    /// Connects; `None` when no daemon listens there.
    pub fn connect(paths: &DaemonPaths) -> Result<Option<Client>> {
        match Connection::connect(&paths.socket, TIMEOUT) {
            Ok(connection) => {
                let daemon = connection.peer().context("ask who the daemon is")?.uid;
                let me = rustix::process::getuid().as_raw();
                if daemon != 0 && daemon != me {
                    bail!("trust the daemon at {}: it is another user's", paths.socket.display());
                }
                Ok(Some(Client { connection, paths: paths.clone() }))
            }
            // There is no socket, or its daemon is gone.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("connect to the daemon at {}", paths.socket.display())),
        }
    }

    /// Connects to the machine's daemon or this user's, whichever is there.
    pub fn find() -> Result<Option<Client>> {
        for paths in DaemonPaths::all() {
            match Client::connect(&paths) {
                Ok(None) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    /// Sends a question and waits for the answer. A rejected question is an [`Answer::Error`].
    pub fn ask(&self, question: &Question) -> Result<Answer> {
        let text = serde_json::to_string(question).context("write a question to the daemon")?;
        let mut buffer = vec![0; MAX_MESSAGE];
        let packet = Message::Request { text: &text }.encode(&mut buffer).context("fit a question into a packet")?;
        self.connection.send(packet, &[]).context("ask the daemon")?;
        let length =
            self.connection.receive(&mut buffer, &mut FileList::new()).context("receive the daemon's answer")?;
        if length == 0 {
            bail!("receive the daemon's answer: it closed the connection");
        }
        match Message::decode(&buffer[..length]) {
            Ok(Message::Reply { text }) => serde_json::from_str(text).context("understand the daemon's answer"),
            Ok(Message::Refused { version, .. }) if version != shm::VERSION => {
                bail!("speak to the daemon: it speaks version {version}, this program {}", shm::VERSION)
            }
            Ok(Message::Refused { text, .. }) => Ok(Answer::Error(text.to_owned())),
            Ok(_) => bail!("understand the daemon's answer: it is not one"),
            Err(error) => Err(error).context("understand the daemon's answer"),
        }
    }

    /// The status of every GPU and tenant.
    pub fn status(&self) -> Result<Status> {
        let mut all = Status::default();
        let mut from = Some(0);
        while let Some(first) = from {
            match self.ask(&Question::Status(StatusAsked { from: first }))? {
                Answer::Status(part) => {
                    // Stop at an answer that does not lead further.
                    from = part.next.filter(|next| *next > first);
                    all.gpus.extend(part.gpus);
                    all = Status { gpus: all.gpus, next: None, ..part };
                }
                Answer::Error(error) => bail!("ask how tenants are: {error}"),
                _ => bail!("ask how tenants are: the daemon answered something else"),
            }
        }
        Ok(all)
    }

    /// Keeps the connection open across `exec`, under a file number that the next program does not use.
    pub fn survive_exec(self) -> Result<OwnedFd> {
        let high = rustix::io::fcntl_dupfd_cloexec(&self.connection, FILE_MIN);
        let file = high.or_else(|_| self.connection.as_fd().try_clone_to_owned().map_err(|_| rustix::io::Errno::MFILE));
        let file = file.context("keep the connection to the daemon")?;
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).context("keep the connection to the daemon")?;
        Ok(file)
    }
}
