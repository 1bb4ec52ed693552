//! Asking the daemon.

use super::place::Place;
use super::wire::{Answer, Question, Status, StatusAsked};
use anyhow::{Context, Result, bail};
use shm::{Connection, FileList, MAX_MESSAGE, Message};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Files that programs use themselves have small numbers.
const FILE_LEAST: i32 = 200;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    /// Where it is.
    pub place: Place,
}

impl Client {
    /// Connects; `None` when nobody listens there.
    pub fn connect(place: &Place) -> Result<Option<Client>> {
        match Connection::connect(&place.socket, PATIENCE) {
            Ok(connection) => {
                let daemon = connection.peer().context("ask who the daemon is")?.uid;
                let me = rustix::process::getuid().as_raw();
                if daemon != 0 && daemon != me {
                    bail!("trust the daemon at {}: it is another user's", place.socket.display());
                }
                Ok(Some(Client { connection, place: place.clone() }))
            }
            // Nothing is there, or a socket whose daemon is gone.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("connect to the daemon at {}", place.socket.display())),
        }
    }

    /// Connects to the machine's daemon or this user's, whichever is there.
    pub fn find() -> Result<Option<Client>> {
        for place in Place::all() {
            match Client::connect(&place) {
                Ok(None) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    /// Asks, and returns what the daemon answered. What it refuses is an [`Answer::Error`].
    pub fn ask(&self, question: &Question) -> Result<Answer> {
        let text = serde_json::to_string(question).context("write a question to the daemon")?;
        let mut buffer = vec![0; MAX_MESSAGE];
        let packet = Message::Request { text: &text }.encode(&mut buffer).context("fit a question into a packet")?;
        self.connection.send(packet, &[]).context("ask the daemon")?;
        let length = self.connection.receive(&mut buffer, &mut FileList::new()).context("hear the daemon's answer")?;
        if length == 0 {
            bail!("hear the daemon's answer: it closed the connection");
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

    /// How everybody is.
    pub fn status(&self) -> Result<Status> {
        let mut all = Status::default();
        let mut from = Some(0);
        while let Some(first) = from {
            match self.ask(&Question::Status(StatusAsked { from: first }))? {
                Answer::Status(part) => {
                    // An answer that leads nowhere must not be followed for ever.
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

    /// Lets the connection outlive this program when it becomes another one by `exec`, out of the way of the files
    /// that the other one opens.
    pub fn survive_exec(self) -> Result<OwnedFd> {
        let high = rustix::io::fcntl_dupfd_cloexec(&self.connection, FILE_LEAST);
        let file = high.or_else(|_| self.connection.as_fd().try_clone_to_owned().map_err(|_| rustix::io::Errno::MFILE));
        let file = file.context("keep the connection to the daemon")?;
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).context("keep the connection to the daemon")?;
        Ok(file)
    }
}
