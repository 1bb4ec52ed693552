//! What node and worker say to each other. `python/weft/_protocol.py` is the same in Python.
//!
//! They talk over a Unix socket that keeps messages apart (`SOCK_SEQPACKET`), which is the worker's standard input at
//! its start. Either side ends when the other closes it. Numbers are little-endian, texts are UTF-8. The first byte
//! of a message says what it is:
//!
//! ```text
//! node -> worker                                     worker -> node
//!   1 Setup   JSON of `Setup`, and two files           3 Hello   JSON of `ModelInfo`: loaded, ready to run
//!   2 Run     tensors, in the first file               4 Failed  text: the model could not be loaded
//!                                                      5 Answer  tensors, in the second file
//!                                                      6 Refuse  text: the model could not run this batch
//! ```
//!
//! `Setup` comes once, first, with two memory files as ancillary data (`SCM_RIGHTS`): inputs, which the node writes,
//! and outputs, which the worker writes. Each is made larger by its writer; the other maps it again when a message
//! speaks of more than it has mapped. Then each `Run` is answered by one `Answer` or `Refuse` before the next is sent,
//! so that whoever has to speak next has the memory to itself.
//!
//! ```text
//! Run, Answer:   kind u8, 0 u8, tensors u16, 0 u32, size of the memory file u64, then each tensor:
//! tensor:        datatype u8, dimensions u8, bytes of name u16, 0 u32, offset u64, bytes u64,
//!                each dimension i64, name
//! ```
//!
//! Equal batches give equal messages, byte for byte, so that a worker may keep what it made of one. Elements lie
//! row-major; those of `BYTES` carry their length in four bytes each. The node begins each tensor at a multiple of 64.
//! No message is longer than [`MESSAGE_BYTES_MAX`].

use anyhow::{Context, Result, bail, ensure};
use config::{DataType, Device, TensorSpec};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Longer messages cannot be received.
pub(crate) const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Longer texts are cut.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Every tensor begins at a multiple of this, which suits every element type and vector unit.
pub(crate) const ALIGNMENT: usize = 64;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Setup = 1,
    Run = 2,
    Hello = 3,
    Failed = 4,
    Answer = 5,
    Refuse = 6,
}

impl Kind {
    /// What a message is and what it says.
    pub(crate) fn split(message: &[u8]) -> Result<(Kind, &[u8])> {
        let (first, rest) = message.split_first().context("read a message: it is empty")?;
        let kinds = [Kind::Setup, Kind::Run, Kind::Hello, Kind::Failed, Kind::Answer, Kind::Refuse];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == *first);
        Ok((kind.with_context(|| format!("read a message: there is no kind {first}"))?, rest))
    }
}

/// What a worker must know beside its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The most requests that may share a batch, 0 without a batch dimension.
    pub(crate) max_batch: usize,
    /// How many threads it may compute with.
    pub(crate) threads: usize,
    /// Inputs, where the model itself does not say.
    pub(crate) inputs: Vec<TensorSpec>,
    /// Outputs, where the model itself does not say.
    pub(crate) outputs: Vec<TensorSpec>,
    /// Where a model in Python shares its weights with others like it.
    #[serde(default)]
    pub(crate) weights: Option<Weights>,
    /// What an ONNX model is to run on.
    #[serde(default)]
    pub(crate) device: Device,
    /// The GPU that the worker sees, where it sees one.
    #[serde(default)]
    pub(crate) gpu: Option<Grant>,
}

/// What a worker has of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// The most memory that its share lets it take; without a share, all there is.
    pub(crate) memory_bytes: Option<u64>,
    /// Whether TensorRT's libraries are there.
    #[serde(default)]
    pub(crate) tensorrt: bool,
}

/// What workers that share weights have in common, and where they find each other: `Place` in
/// `python/weft/_weights.py`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Weights {
    /// The folder that their files are in.
    pub(crate) folder: PathBuf,
    /// The model's name.
    pub(crate) model: String,
    /// Its version.
    pub(crate) version: u32,
    /// The names of environment variables that the deployment sets; a worker knows their values.
    pub(crate) env: Vec<String>,
    /// How long one may wait for another to load them.
    pub(crate) patience_ms: u64,
}

/// A tensor in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// A message with a text or JSON.
pub(crate) fn write_text(kind: Kind, text: &str, message: &mut Vec<u8>) {
    message.clear();
    message.push(kind as u8);
    let json = matches!(kind, Kind::Setup | Kind::Hello);
    // What is cut is for people; a cut in JSON would only move the problem to the reader.
    let end = if json { text.len() } else { text.floor_char_boundary(TEXT_BYTES_MAX) };
    message.extend_from_slice(&text.as_bytes()[..end]);
}

/// A message with tensors.
pub(crate) fn write_tensors(kind: Kind, size: usize, places: &[Place<'_>], message: &mut Vec<u8>) -> Result<()> {
    message.clear();
    message.extend_from_slice(&[kind as u8, 0]);
    message.extend_from_slice(&u16::try_from(places.len()).context("write a message: too many tensors")?.to_le_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&(size as u64).to_le_bytes());
    for place in places {
        let dimensions = u8::try_from(place.shape.len()).context("write a message: too many dimensions")?;
        let name = u16::try_from(place.name.len()).context("write a message: a name is too long")?;
        message.extend_from_slice(&[place.datatype as u8, dimensions]);
        message.extend_from_slice(&name.to_le_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(&(place.offset as u64).to_le_bytes());
        message.extend_from_slice(&(place.bytes as u64).to_le_bytes());
        for dimension in &place.shape {
            message.extend_from_slice(&(*dimension as i64).to_le_bytes());
        }
        message.extend_from_slice(place.name.as_bytes());
    }
    ensure!(message.len() <= MESSAGE_BYTES_MAX, "write a message: {} tensors are too many", places.len());
    Ok(())
}

/// The size of the memory file and the tensors in it, from a message with its kind taken off. Every tensor lies within
/// that size, and holds as many bytes as its shape says, where that can be said.
pub(crate) fn read_tensors(body: &[u8]) -> Result<(usize, Vec<Place<'_>>)> {
    let mut reader = Reader { rest: body };
    reader.take(1)?;
    let count = reader.u16()?;
    reader.take(4)?;
    let size = reader.size()?;
    let mut places = Vec::with_capacity(count.into());
    for _ in 0..count {
        let [datatype, dimensions] = reader.array()?;
        let name_bytes = reader.u16()?;
        reader.take(4)?;
        let offset = reader.size()?;
        let bytes = reader.size()?;
        let shape = (0..dimensions).map(|_| reader.size()).collect::<Result<Vec<usize>>>()?;
        let name = std::str::from_utf8(reader.take(name_bytes.into())?).context("read a tensor's name")?;
        let datatype = *DataType::ALL.get(datatype as usize).with_context(|| format!("there is no type {datatype}"))?;
        ensure!(
            offset.checked_add(bytes).is_some_and(|end| end <= size),
            "tensor `{name}` does not lie in the memory it is said to be in"
        );
        let elements = rpc::tensor::elements(&shape);
        let expected = datatype.size().map(|each| elements.and_then(|elements| elements.checked_mul(each)));
        if let Some(expected) = expected {
            ensure!(expected == Some(bytes), "tensor `{name}` of shape {shape:?} cannot have {bytes} bytes");
        }
        places.push(Place { name, datatype, shape, offset, bytes });
    }
    if !reader.rest.is_empty() {
        bail!("read a message: {} bytes are left over", reader.rest.len());
    }
    Ok((size, places))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes).context("read a message: it is cut off")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Sizes are written with a sign or without; none that fits memory differs.
    fn size(&mut self) -> Result<usize> {
        let number = i64::from_le_bytes(self.array()?);
        usize::try_from(number).with_context(|| format!("read a message: {number} is no size"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bytes: usize, offset: usize) -> Place<'static> {
        Place { name: "x", datatype: DataType::Fp32, shape: vec![2, 3], offset, bytes }
    }

    fn read_back(size: usize, place: Place<'_>) -> Result<()> {
        let mut message = Vec::new();
        write_tensors(Kind::Run, size, std::slice::from_ref(&place), &mut message)?;
        let (kind, body) = Kind::split(&message)?;
        assert_eq!(kind, Kind::Run);
        assert_eq!(read_tensors(body)?, (size, vec![place]));
        for cut in 0..body.len() {
            assert!(read_tensors(&body[..cut]).is_err(), "cut after {cut} bytes");
        }
        Ok(())
    }

    #[test]
    fn tensors_are_read_as_they_were_written() {
        read_back(4096, place(24, 64)).unwrap();
        read_back(100, Place { name: "größe", datatype: DataType::Bytes, shape: vec![], offset: 0, bytes: 7 }).unwrap();
    }

    #[test]
    fn tensors_that_cannot_be_are_refused() {
        let refused = |size, place| format!("{:#}", read_back(size, place).unwrap_err());
        assert!(refused(87, place(24, 64)).contains("does not lie in"));
        assert!(refused(4096, place(25, 64)).contains("cannot have 25 bytes"));
        let overflow = Place { shape: vec![usize::MAX >> 1, 4], ..place(0, 0) };
        assert!(refused(4096, overflow).contains("cannot have 0 bytes"));
        assert!(Kind::split(&[]).is_err());
        assert!(Kind::split(&[9]).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut message = Vec::new();
        write_text(Kind::Refuse, &"ä".repeat(TEXT_BYTES_MAX), &mut message);
        let (kind, text) = Kind::split(&message).unwrap();
        assert_eq!(kind, Kind::Refuse);
        assert_eq!(std::str::from_utf8(text).unwrap().chars().count(), TEXT_BYTES_MAX / 2);
    }
}
