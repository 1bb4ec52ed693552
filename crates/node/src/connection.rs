//! The node's end of the way to one worker process: a socket for messages and two segments for tensors.
//!
//! One exchange at a time. Inputs are copied once, into shared memory, and outputs once, out of it. Whether the
//! process is alive is the caller's business; that it answers no more is found out here.

use crate::batch::Column;
use crate::protocol::{ALIGNMENT, Kind, MESSAGE_BYTES_MAX, Place, Setup, read_tensors, write_tensors, write_text};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use config::DataType;
use rpc::{ModelInfo, Tensor};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    send, sendmsg, socketpair,
};
use rustix::time::Timespec;
use shm::{Access, Segment};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a segment holds at first; most models never need more.
const SEGMENT_BYTES: usize = 64 * 1024;

/// A worker that can be talked to.
pub(crate) struct Connection {
    socket: OwnedFd,
    inputs: Segment,
    outputs: Segment,
    message: Vec<u8>,
    received: Vec<u8>,
    names: Vec<Arc<str>>,
}

/// Why a worker cannot be talked to any more.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It is gone, or closed its socket.
    Gone,
    /// It did not answer in time.
    Silent,
    /// What it said makes no sense.
    Nonsense(String),
}

/// What a worker makes of tensors: outputs, or what its model objects to.
pub(crate) type Said = Result<Vec<Tensor>, String>;

/// What a worker says about its model once it has tried to load it.
pub(crate) type Loaded = Result<ModelInfo, String>;

impl Connection {
    /// A connection, and the socket that the worker shall find as its standard input.
    pub(crate) fn new(name: &str) -> Result<(Connection, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("make a socket to talk to a worker")?;
        let segment = |side: &str| {
            Segment::create(&format!("weft-{name}-{side}"), SEGMENT_BYTES).context("make memory to share with a worker")
        };
        let connection = Connection {
            socket,
            inputs: segment("inputs")?,
            outputs: segment("outputs")?,
            message: Vec::new(),
            received: vec![0; MESSAGE_BYTES_MAX],
            names: Vec::new(),
        };
        Ok((connection, theirs))
    }

    /// Tells the worker what it needs and hands it the shared memory.
    pub(crate) fn set_up(&mut self, setup: &Setup) -> Result<()> {
        write_text(Kind::Setup, &serde_json::to_string(setup)?, &mut self.message);
        if self.message.len() > MESSAGE_BYTES_MAX {
            bail!("tell a worker about its model: its inputs and outputs are too many");
        }
        let files = [self.inputs.file(), self.outputs.file()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&self.socket, &[IoSlice::new(&self.message)], &mut ancillary, SendFlags::NOSIGNAL)
            .context("send shared memory to a worker")?;
        // The worker alone writes its outputs from here on.
        self.outputs = Segment::open(self.outputs.file().try_clone_to_owned()?, Access::Read)?;
        Ok(())
    }

    /// Waits for the word that the model is loaded; `None` when `patience` ended before.
    pub(crate) fn hear_hello(&mut self, process: BorrowedFd<'_>, patience: Duration) -> Result<Option<Loaded>, Broken> {
        let length = match receive(&self.socket, process, &mut self.received, Instant::now() + patience) {
            Err(Broken::Silent) => return Ok(None),
            other => other?,
        };
        let nonsense = |error: anyhow::Error| Broken::Nonsense(format!("{error:#}"));
        let (kind, body) = Kind::split(&self.received[..length]).map_err(nonsense)?;
        match kind {
            Kind::Hello => {
                let info: ModelInfo = serde_json::from_slice(body).map_err(|error| nonsense(error.into()))?;
                self.names = info.outputs.iter().map(|output| output.name.as_str().into()).collect();
                Ok(Some(Ok(info)))
            }
            Kind::Failed => Ok(Some(Err(String::from_utf8_lossy(body).into_owned()))),
            kind => Err(Broken::Nonsense(format!("it began with {kind:?}"))),
        }
    }

    /// Waits for what comes of tensors that were posted; `None` when `patience` ended before.
    pub(crate) fn wait(&mut self, process: BorrowedFd<'_>, patience: Duration) -> Result<Option<Said>, Broken> {
        let length = match receive(&self.socket, process, &mut self.received, Instant::now() + patience) {
            Err(Broken::Silent) => return Ok(None),
            other => other?,
        };
        self.read(length).map(Some).map_err(|error| Broken::Nonsense(format!("{error:#}")))
    }

    /// Has the worker run tensors; [`Connection::hear`] gives what comes of it. Says why where they cannot be sent.
    pub(crate) fn post(&mut self, columns: &[Column<'_>]) -> Result<Result<(), String>, Broken> {
        if let Err(error) = self.write(columns) {
            return Ok(Err(format!("{error:#}")));
        }
        match send(&self.socket, &self.message, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(Ok(())),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Broken::Gone),
            Err(error) => Err(Broken::Nonsense(format!("a message could not be sent: {error}"))),
        }
    }

    /// What came of tensors that were posted: outputs, or what the model objects to. `None` when it has not said.
    pub(crate) fn hear(&mut self) -> Result<Option<Said>, Broken> {
        match recv(&self.socket, &mut self.received[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(Broken::Gone),
            Ok((length, _)) => self.read(length).map(Some).map_err(|error| Broken::Nonsense(format!("{error:#}"))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(Broken::Nonsense(format!("a message could not be received: {error}"))),
        }
    }

    /// The socket, for whoever waits for answers.
    pub(crate) fn socket(&self) -> std::io::Result<OwnedFd> {
        // Nobody is held up by it: only what must not wait is received without `poll`, and what is sent always fits.
        rustix::io::ioctl_fionbio(&self.socket, true)?;
        self.socket.try_clone()
    }

    /// Writes inputs into shared memory and the message that says where they are.
    fn write(&mut self, columns: &[Column<'_>]) -> Result<()> {
        let mut places = Vec::with_capacity(columns.len());
        let mut end = 0usize;
        for column in columns {
            let bytes = column.pieces.iter().map(|piece| piece.len()).sum();
            let Column { name, datatype, shape, .. } = column;
            places.push(Place { name, datatype: *datatype, shape: shape.clone(), offset: end, bytes });
            end = (end + bytes).next_multiple_of(ALIGNMENT);
        }
        if end > self.inputs.len() {
            self.inputs.grow(end.next_power_of_two()).with_context(|| format!("share {end} bytes with a worker"))?;
        }
        for (column, place) in columns.iter().zip(&places) {
            let mut at = place.offset;
            for piece in &column.pieces {
                self.inputs.write(at, piece)?;
                at += piece.len();
            }
        }
        write_tensors(Kind::Run, self.inputs.len(), &places, &mut self.message)
    }

    fn read(&mut self, length: usize) -> Result<Result<Vec<Tensor>, String>> {
        let (kind, body) = Kind::split(&self.received[..length])?;
        match kind {
            Kind::Refuse => Ok(Err(String::from_utf8_lossy(body).into_owned())),
            Kind::Answer => {
                let (size, places) = read_tensors(body)?;
                self.outputs.follow(size)?;
                let tensor = |place: Place<'_>| {
                    let data = self.outputs.read(place.offset..place.offset + place.bytes)?;
                    // The same few names come again and again.
                    let name = self.names.iter().find(|name| ***name == *place.name).cloned();
                    let name = name.unwrap_or_else(|| place.name.into());
                    Ok(Tensor { name, datatype: place.datatype, shape: place.shape, data: Bytes::from(data) })
                };
                Ok(Ok(places.into_iter().map(tensor).collect::<Result<_>>()?))
            }
            kind => bail!("it answered with {kind:?}"),
        }
    }
}

/// Waits for a message; gives its length.
fn receive(socket: &OwnedFd, process: BorrowedFd<'_>, buffer: &mut [u8], deadline: Instant) -> Result<usize, Broken> {
    loop {
        let (heard, ended) = wait(&[socket.as_fd(), process], deadline);
        // What a process said before it ended counts.
        if heard {
            return match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => Err(Broken::Gone),
                Ok((length, _)) => Ok(length),
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => Err(Broken::Nonsense(format!("a message could not be received: {error}"))),
            };
        }
        if ended {
            return Err(Broken::Gone);
        }
        if Instant::now() >= deadline {
            return Err(Broken::Silent);
        }
    }
}

/// Waits until one of two files has something, or the deadline; says which has.
fn wait(files: &[BorrowedFd<'_>; 2], deadline: Instant) -> (bool, bool) {
    let mut waiting = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut waiting, Some(&left)) {
        Ok(0) | Err(_) => (false, false),
        Ok(_) => (!waiting[0].revents().is_empty(), !waiting[1].revents().is_empty()),
    }
}

/// Says what is wrong with a model's outputs, given what it declares and, where there is a batch, how many rows went
/// in.
pub(crate) fn check_outputs(outputs: &[Tensor], info: &ModelInfo, rows: Option<usize>) -> Result<(), String> {
    let declared = |name: &str| info.outputs.iter().any(|output| output.name == name);
    if let Some(unknown) = outputs.iter().find(|output| !info.outputs.is_empty() && !declared(&output.name)) {
        let names: Vec<&str> = info.outputs.iter().map(|output| output.name.as_str()).collect();
        return Err(format!("output `{}` came; the model declares {}", unknown.name, names.join(", ")));
    }
    for Tensor { name, datatype, shape, .. } in outputs {
        if let Some(declared) = info.outputs.iter().find(|output| *output.name == **name) {
            if declared.datatype != *datatype {
                let (is, should) = (datatype.name(), declared.datatype.name());
                return Err(format!("output `{name}` has type {is}; the model declares {should}"));
            }
            let fits = declared.shape.iter().zip(shape).all(|(should, is)| *should < 0 || *should == *is as i64);
            // An empty shape is what a file says that does not know; see `worker/onnx.rs`.
            if !declared.shape.is_empty() && (declared.shape.len() != shape.len() || !fits) {
                return Err(format!("output `{name}` has shape {shape:?}; the model declares {:?}", declared.shape));
            }
        }
        if let Some(rows) = rows.filter(|rows| shape.first() != Some(rows)) {
            return Err(format!(
                "output `{name}` has shape {shape:?} for a batch of {rows}; its first dimension must be the batch's"
            ));
        }
    }
    if outputs.len() != info.outputs.len() && !info.outputs.is_empty() {
        return Err(format!("{} outputs came; the model declares {}", outputs.len(), info.outputs.len()));
    }
    Ok(())
}

/// Cuts a batch's outputs into those of each request, without copying. The first dimension is the sum of the rows.
pub(crate) fn split(outputs: &[Tensor], rows: &[usize]) -> Result<Vec<Vec<Tensor>>, String> {
    let mut requests: Vec<Vec<Tensor>> = rows.iter().map(|_| Vec::with_capacity(outputs.len())).collect();
    for output in outputs {
        let elements_per_row: usize = output.shape[1..].iter().product();
        let mut start = 0;
        for (request, rows) in requests.iter_mut().zip(rows) {
            let end = match output.datatype {
                DataType::Bytes => skip(&output.data, start, rows * elements_per_row)
                    .ok_or_else(|| format!("output `{}` holds fewer elements than its shape says", output.name))?,
                datatype => start + rows * elements_per_row * datatype.size().unwrap_or(1),
            };
            let mut shape = output.shape.clone();
            shape[0] = *rows;
            let data = output.data.slice(start..end);
            request.push(Tensor { name: output.name.clone(), datatype: output.datatype, shape, data });
            start = end;
        }
    }
    Ok(requests)
}

/// Where the elements of a `BYTES` tensor end that begin at `start`.
fn skip(data: &[u8], start: usize, elements: usize) -> Option<usize> {
    let mut at = start;
    for _ in 0..elements {
        let length = data.get(at..at.checked_add(4)?)?.try_into().ok()?;
        at = at.checked_add(4)?.checked_add(u32::from_le_bytes(length) as usize)?;
    }
    (at <= data.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_where_the_rows_end() {
        let data = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\x01\0\0\0d";
        let output =
            Tensor { name: "y".into(), datatype: DataType::Bytes, shape: vec![4, 1], data: Bytes::from_static(data) };
        let requests = split(std::slice::from_ref(&output), &[1, 2, 1]).unwrap();
        assert_eq!(&requests[0][0].data[..], b"\x01\0\0\0a");
        assert_eq!(&requests[1][0].data[..], b"\0\0\0\0\x02\0\0\0bc");
        assert_eq!((&requests[2][0].data[..], &requests[2][0].shape[..]), (&b"\x01\0\0\0d"[..], &[1, 1][..]));
        assert!(split(&[Tensor { shape: vec![5, 1], ..output }], &[4, 1]).is_err());
    }
}
