//! What processes say to the daemon, and what it answers: one packet each.
//!
//! A packet is {magic, version, kind, length of what follows} and what follows, in little-endian words. Any bytes can be
//! decoded: what is not a message of this version is an error that says which.

use crate::page::{MAGIC, VERSION};
use std::fmt;

/// Bytes before what a kind of message holds.
const HEADER: usize = 16;
/// Bytes of a tenant's name.
const NAME: usize = 64;

/// A tenant's name: at most 64 bytes of printable text, kept without allocating.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME],
    length: u8,
}

impl Name {
    /// The name, if it is one: not empty, not longer than 64 bytes, without control characters.
    pub fn new(text: &str) -> Option<Name> {
        if text.is_empty() || text.len() > NAME || text.chars().any(char::is_control) {
            return None;
        }
        let mut bytes = [0; NAME];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Name { bytes, length: text.len() as u8 })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Name> {
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (name, padding) = bytes.split_at_checked(length)?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        Name::new(std::str::from_utf8(name).ok()?)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// From a process, first: who it is.
    Hello {
        /// The process, in its own words; the socket knows better.
        pid: u32,
        /// Which tenant it belongs to; without, the daemon makes one up.
        tenant: Option<Name>,
        /// None are defined.
        flags: u32,
    },
    /// From a process: it begins to use a GPU.
    Attach {
        /// The GPU.
        gpu: [u8; 16],
        /// Bytes it uses already, where it was attached before.
        used_bytes: u64,
        /// GPU time it was charged already.
        charged_ns: u64,
    },
    /// To a process, with the files of its own page (to write), its control page (to read), its notes (to write) and
    /// every slot's page (to read), in this order; slot pages from slot 0 on, `slots` of them.
    Attached {
        /// Its slot.
        slot: u32,
        /// How many slot pages follow these three.
        slots: u32,
        /// What to write into its page, and what its control page says.
        generation: u64,
        /// The tenant's number, the same for all its processes.
        tenant: u32,
    },
    /// To anybody: no, and why. The connection is closed after it.
    Refused {
        /// The version that the daemon speaks.
        version: u32,
        /// One line for people.
        text: &'a str,
    },
    /// From a command: a question as JSON.
    Request {
        /// The question.
        text: &'a str,
    },
    /// To a command: the answer as JSON.
    Reply {
        /// The answer.
        text: &'a str,
    },
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They do not begin as a message does.
    NotAMessage,
    /// The other side speaks another version, this one.
    Version(u32),
    /// No message has this number.
    Kind(u32),
    /// There are more or fewer bytes than the message needs.
    Length,
    /// What should be text is not, or is not a name.
    Text,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::NotAMessage => formatter.write_str("these bytes are not a message of Weft"),
            DecodeError::Version(version) => {
                write!(formatter, "the other side speaks version {version}, this one speaks version {VERSION}")
            }
            DecodeError::Kind(kind) => write!(formatter, "there is no message of kind {kind}"),
            DecodeError::Length => formatter.write_str("the message is longer or shorter than its kind"),
            DecodeError::Text => formatter.write_str("the message holds text that is not readable"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The version that the bytes claim to be of, whatever else they are: what a [`Message::Refused`] for them answers to.
pub fn message_version(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader(bytes);
    if reader.u32()? == MAGIC { reader.u32() } else { None }
}

impl<'a> Message<'a> {
    /// Writes the message to the start of the buffer; `None` when it does not fit.
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let mut writer = Writer { bytes: buffer, at: HEADER };
        let kind: u32 = match *self {
            Message::Hello { pid, tenant, flags } => {
                writer.put(&pid.to_le_bytes())?;
                writer.put(&flags.to_le_bytes())?;
                writer.put(&tenant.map_or([0; NAME], |name| name.bytes))?;
                1
            }
            Message::Attach { gpu, used_bytes, charged_ns } => {
                writer.put(&gpu)?;
                writer.put(&used_bytes.to_le_bytes())?;
                writer.put(&charged_ns.to_le_bytes())?;
                2
            }
            Message::Attached { slot, slots, generation, tenant } => {
                writer.put(&slot.to_le_bytes())?;
                writer.put(&slots.to_le_bytes())?;
                writer.put(&generation.to_le_bytes())?;
                writer.put(&tenant.to_le_bytes())?;
                3
            }
            Message::Refused { version, text } => {
                writer.put(&version.to_le_bytes())?;
                writer.put(text.as_bytes())?;
                4
            }
            Message::Request { text } => {
                writer.put(text.as_bytes())?;
                5
            }
            Message::Reply { text } => {
                writer.put(text.as_bytes())?;
                6
            }
        };
        let end = writer.at;
        let length = u32::try_from(end - HEADER).ok()?;
        writer.at = 0;
        for word in [MAGIC, VERSION, kind, length] {
            writer.put(&word.to_le_bytes())?;
        }
        buffer.get(..end)
    }

    /// Reads a packet.
    ///
    /// A refusal is read whatever its version is: it is how versions find out that they differ.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let mut reader = Reader(bytes);
        let mut header = || reader.u32();
        let (Some(MAGIC), Some(version), Some(kind), Some(length)) = (header(), header(), header(), header()) else {
            return Err(DecodeError::NotAMessage);
        };
        if version != VERSION && kind != 4 {
            return Err(DecodeError::Version(version));
        }
        if usize::try_from(length) != Ok(reader.0.len()) {
            return Err(DecodeError::Length);
        }
        let message = match kind {
            1 => reader.hello()?,
            2 => reader.attach().ok_or(DecodeError::Length)?,
            3 => reader.attached().ok_or(DecodeError::Length)?,
            4 => Message::Refused { version: reader.u32().ok_or(DecodeError::Length)?, text: reader.text()? },
            5 => Message::Request { text: reader.text()? },
            6 => Message::Reply { text: reader.text()? },
            _ => return Err(DecodeError::Kind(kind)),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(DecodeError::Length) }
    }
}

struct Writer<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = std::mem::take(&mut self.0);
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Text)
    }

    fn hello(&mut self) -> Result<Message<'a>, DecodeError> {
        let pid = self.u32().ok_or(DecodeError::Length)?;
        let flags = self.u32().ok_or(DecodeError::Length)?;
        let name = self.take::<NAME>().ok_or(DecodeError::Length)?;
        let tenant = match name {
            [0, ..] if name.iter().all(|byte| *byte == 0) => None,
            _ => Some(Name::decode(&name).ok_or(DecodeError::Text)?),
        };
        Ok(Message::Hello { pid, tenant, flags })
    }

    fn attach(&mut self) -> Option<Message<'a>> {
        Some(Message::Attach { gpu: self.take()?, used_bytes: self.u64()?, charged_ns: self.u64()? })
    }

    fn attached(&mut self) -> Option<Message<'a>> {
        let (slot, slots) = (self.u32()?, self.u32()?);
        Some(Message::Attached { slot, slots, generation: self.u64()?, tenant: self.u32()? })
    }
}
