//! Messages as bytes: those that go out are written already, and those that come in are only counted off.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Sends bytes and drops what comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared;

impl Codec for Prepared {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Prepared;
    type Decoder = Prepared;

    fn encoder(&mut self) -> Prepared {
        Prepared
    }

    fn decoder(&mut self) -> Prepared {
        Prepared
    }
}

impl Encoder for Prepared {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Prepared {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        message.advance(message.remaining());
        Ok(Some(()))
    }
}
