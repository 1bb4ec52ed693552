//! A worker's end of the socket and of the shared memory. `protocol.rs` says what goes over it.

use crate::protocol::{ALIGNMENT, Kind, MESSAGE_BYTES_MAX, Place, Setup, read_tensors, write_tensors, write_text};
use anyhow::{Context, Result, anyhow, bail, ensure};
use config::DataType;
use rpc::ModelInfo;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use shm::{Access, Segment};
use std::borrow::Cow;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// The way to the node.
pub(crate) struct Control {
    socket: OwnedFd,
    inputs: Segment,
    outputs: Segment,
    received: Vec<u8>,
    message: Vec<u8>,
}

/// An output on its way into shared memory.
pub(crate) struct Output<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Cow<'a, [u8]>,
}

impl Control {
    /// Takes the socket from standard input and waits for the first message. `None` when the node is gone.
    pub(crate) fn take() -> Result<Option<(Control, Setup)>> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().context("take the control socket")?;
        let mut received = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = recvmsg(&socket, &mut [IoSliceMut::new(&mut received)], &mut ancillary, flags)
            .context("take the control socket: workers are started by Weft")?
            .bytes;
        if length == 0 {
            return Ok(None);
        }
        let files: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        let [inputs, outputs] = <[OwnedFd; 2]>::try_from(files).map_err(|_| anyhow!("receive shared memory"))?;
        let (kind, body) = Kind::split(&received[..length])?;
        ensure!(kind == Kind::Setup, "receive the first message: it is {kind:?}");
        let setup = serde_json::from_slice(body).context("receive the first message")?;
        let control = Control {
            socket,
            inputs: Segment::open(inputs, Access::Read)?,
            outputs: Segment::open(outputs, Access::Write)?,
            received,
            message: Vec::new(),
        };
        Ok(Some((control, setup)))
    }

    /// Says that the model is loaded and what it is.
    pub(crate) fn hello(&mut self, info: &ModelInfo) -> Result<()> {
        write_text(Kind::Hello, &serde_json::to_string(info)?, &mut self.message);
        self.send()
    }

    /// Says something in words.
    pub(crate) fn say(&mut self, kind: Kind, text: &str) -> Result<()> {
        write_text(kind, text, &mut self.message);
        self.send()
    }

    /// Waits for a batch and gives the shared memory and where its tensors lie. `None` when there will be no more.
    pub(crate) fn receive(&mut self) -> Result<Option<(&Segment, Vec<Place<'_>>)>> {
        let length = loop {
            match recv(&self.socket, &mut self.received[..], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((length, _)) => break length,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for a batch"),
            }
        };
        let (kind, body) = Kind::split(&self.received[..length])?;
        if kind != Kind::Run {
            bail!("wait for a batch: {kind:?} came");
        }
        let (size, places) = read_tensors(body)?;
        self.inputs.follow(size).context("see a batch's tensors")?;
        Ok(Some((&self.inputs, places)))
    }

    /// Sends outputs.
    pub(crate) fn answer(&mut self, outputs: &[Output<'_>]) -> Result<()> {
        let mut places = Vec::with_capacity(outputs.len());
        let mut end = 0usize;
        for Output { name, datatype, shape, data } in outputs {
            places.push(Place { name, datatype: *datatype, shape: shape.clone(), offset: end, bytes: data.len() });
            end = (end + data.len()).next_multiple_of(ALIGNMENT);
        }
        if end > self.outputs.len() {
            self.outputs.grow(end.next_power_of_two()).with_context(|| format!("share {end} bytes of outputs"))?;
        }
        for (place, output) in places.iter().zip(outputs) {
            self.outputs.write(place.offset, &output.data)?;
        }
        write_tensors(Kind::Answer, self.outputs.len(), &places, &mut self.message)?;
        self.send()
    }

    fn send(&mut self) -> Result<()> {
        send(&self.socket, &self.message, SendFlags::NOSIGNAL).context("answer the node")?;
        Ok(())
    }
}
