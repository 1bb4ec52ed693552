//! gzip and deflate, in both directions.
//!
//! What unpacks to more than it may is refused while it unpacks, so that a small body never becomes a large one.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap};
use std::io::{Read, Write};

/// Smaller answers cost more to pack than to send.
const WORTH_PACKING: usize = 1024;
/// Unpacked in steps of so many bytes.
const STEP: usize = 64 * 1024;

/// A way to pack a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, and on the way in RFC 1951 as well, which some clients send under this name.
    Deflate,
}

/// Why a body could not be unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// It is broken: what the matter is.
    Broken(String),
    /// There is more in it than may be.
    TooLarge,
    /// There is no memory left for it.
    NoMemory,
}

impl Encoding {
    /// The word for it in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Gzip => "gzip",
            Encoding::Deflate => "deflate",
        }
    }

    /// How the body of a request is packed. Fails with the name of a way that is not known.
    pub(super) fn of_request(headers: &HeaderMap) -> Result<Option<Encoding>, String> {
        let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
        match value.as_bytes().trim_ascii() {
            b"" | b"identity" => Ok(None),
            b"gzip" | b"x-gzip" => Ok(Some(Encoding::Gzip)),
            b"deflate" => Ok(Some(Encoding::Deflate)),
            other => Err(String::from_utf8_lossy(other).into_owned()),
        }
    }

    /// How an answer of some length may be packed, when it should be.
    pub(super) fn of_answer(headers: &HeaderMap, length: usize) -> Option<Encoding> {
        if length < WORTH_PACKING {
            return None;
        }
        let accepted = headers.get(ACCEPT_ENCODING)?.to_str().ok()?;
        let accepts = |wanted: &str| {
            accepted.split(',').any(|part| {
                let (name, weight) = part.split_once(';').unwrap_or((part, ""));
                let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
                name.trim().eq_ignore_ascii_case(wanted) && weight.is_ok_and(|weight| weight > 0.0)
            })
        };
        [Encoding::Gzip, Encoding::Deflate].into_iter().find(|encoding| accepts(encoding.name()))
    }
}

/// Unpacks a body of at most `limit` bytes. `grow` is asked before more memory is taken.
pub fn unpack(
    encoding: Encoding,
    body: &[u8],
    limit: usize,
    mut grow: impl FnMut(usize) -> bool,
) -> Result<Bytes, UnpackError> {
    let is_zlib = matches!(body, [first, second, ..]
        if first & 15 == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31));
    let mut source: Box<dyn Read> = match encoding {
        Encoding::Gzip => Box::new(MultiGzDecoder::new(body)),
        Encoding::Deflate if is_zlib => Box::new(ZlibDecoder::new(body)),
        Encoding::Deflate => Box::new(DeflateDecoder::new(body)),
    };
    let mut unpacked = Vec::new();
    loop {
        let step = STEP.max(unpacked.len()).min(limit - unpacked.len() + 1);
        if !grow(step) {
            return Err(UnpackError::NoMemory);
        }
        let read = source.by_ref().take(step as u64).read_to_end(&mut unpacked);
        let read = read.map_err(|error| UnpackError::Broken(error.to_string()))?;
        if unpacked.len() > limit {
            return Err(UnpackError::TooLarge);
        }
        if read < step {
            return Ok(unpacked.into());
        }
    }
}

/// Packs a body.
pub fn pack(encoding: Encoding, parts: &[Bytes]) -> Bytes {
    let room = Vec::with_capacity(parts.iter().map(Bytes::len).sum::<usize>() / 2 + 64);
    let all = |writer: &mut dyn Write| parts.iter().try_for_each(|part| writer.write_all(part));
    let packed = match encoding {
        Encoding::Gzip => {
            let mut writer = GzEncoder::new(room, Compression::fast());
            all(&mut writer).and_then(|()| writer.finish())
        }
        Encoding::Deflate => {
            let mut writer = ZlibEncoder::new(room, Compression::fast());
            all(&mut writer).and_then(|()| writer.finish())
        }
    };
    packed.expect("a vector takes everything").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::DeflateEncoder;

    #[test]
    fn what_was_packed_unpacks() {
        let body: Vec<u8> = (0..300_000u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
        let parts = [Bytes::copy_from_slice(&body[..1000]), Bytes::copy_from_slice(&body[1000..])];
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let packed = pack(encoding, &parts);
            assert!(packed.len() < body.len());
            assert_eq!(unpack(encoding, &packed, body.len(), |_| true).unwrap(), body);
            assert_eq!(unpack(encoding, &packed, body.len() - 1, |_| true), Err(UnpackError::TooLarge));
            let cut = unpack(encoding, &packed[..packed.len() / 2], body.len(), |_| true);
            assert!(matches!(cut, Err(UnpackError::Broken(_))), "{cut:?}");
        }
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&body).unwrap();
        assert_eq!(unpack(Encoding::Deflate, &raw.finish().unwrap(), body.len(), |_| true).unwrap(), body);
        assert!(matches!(unpack(Encoding::Gzip, b"hello", 100, |_| true), Err(UnpackError::Broken(_))));
    }

    #[test]
    fn a_bomb_is_refused_while_it_unpacks() {
        let packed = pack(Encoding::Gzip, &vec![Bytes::from(vec![0; 1 << 20]); 256]);
        let mut taken = 0;
        let unpacked = unpack(Encoding::Gzip, &packed, 1 << 20, |more| {
            taken += more;
            true
        });
        assert_eq!(unpacked, Err(UnpackError::TooLarge));
        assert!(taken <= (1 << 20) + 1, "{taken}");
        assert_eq!(unpack(Encoding::Gzip, &packed, 1 << 30, |more| more < 1 << 20), Err(UnpackError::NoMemory));
    }

    #[test]
    fn answers_are_packed_when_asked_and_when_it_pays() {
        let check = |accept: &str, length: usize| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, accept.parse().unwrap())]);
            Encoding::of_answer(&headers, length)
        };
        assert_eq!(check("gzip", 5000), Some(Encoding::Gzip));
        assert_eq!(check("deflate", 5000), Some(Encoding::Deflate));
        assert_eq!(check("br, deflate, gzip;q=0.5", 5000), Some(Encoding::Gzip));
        assert_eq!(check("gzip;q=0, deflate", 5000), Some(Encoding::Deflate));
        assert_eq!((check("identity", 5000), check("gzip", 100)), (None, None));
        assert_eq!(Encoding::of_answer(&HeaderMap::new(), 5000), None);
    }
}
