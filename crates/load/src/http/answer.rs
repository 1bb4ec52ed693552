//! An HTTP/1.1 answer as it comes in, in pieces of any size. Pure: bytes in, an [`Answer`] out.
//!
//! Bodies are counted, not kept: what is in them costs no memory and no copying. Only what is asked for is, and the
//! beginning of a body that says why not.

/// Bytes of status line and headers, at most.
const HEAD_MAX: usize = 64 << 10;
/// Headers, at most.
const HEADERS_MAX: usize = 100;
/// Bytes of a body that says why not, at most.
const REASON_MAX: usize = 2 << 10;

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP's status.
    pub(crate) status: u16,
    /// Whether the connection may carry another request.
    pub(crate) reusable: bool,
    /// Bytes in the body.
    pub(crate) length: u64,
    /// The body, or as much of it as was to be kept.
    pub(crate) body: Vec<u8>,
}

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    /// The part of the head that has come; empty when it came in one piece.
    head: Vec<u8>,
    state: State,
    answer: Answer,
    /// Bytes to keep of a body with status 200.
    keep: usize,
}

#[derive(Debug)]
enum State {
    Head,
    /// A body of known length, and what is still to come of it.
    Body(u64),
    Chunked(Chunk),
    /// A body that ends with the connection.
    UntilClosed,
    Done,
}

/// Where in a chunked body the next byte is.
#[derive(Clone, Copy, Debug)]
enum Chunk {
    /// In the size, of which there have been so many digits.
    Size {
        size: u64,
        digits: u32,
    },
    /// After the size and before the end of its line.
    Extension {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// In the line break after the data.
    Break,
    /// In a line of the trailer, which has had so many bytes.
    Trailer {
        bytes: usize,
    },
}

impl AnswerReader {
    /// Nothing has come yet. Of a body with status 200, `keep` bytes are kept.
    pub(crate) fn new(keep: usize) -> AnswerReader {
        AnswerReader { head: Vec::new(), state: State::Head, answer: Answer::default(), keep }
    }

    /// Whether not a byte has come.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.state, State::Head) && self.head.is_empty() && self.answer.status == 0
    }

    /// Takes what came. The answer, once it is whole; the reader is spent then.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, &'static str> {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                State::Head => self.take_head(bytes)?,
                State::Body(left) => {
                    let (own, rest) = bytes.split_at((*left).min(bytes.len() as u64) as usize);
                    *left -= own.len() as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    self.keep_body(own);
                    rest
                }
                State::Chunked(chunk) => {
                    let chunk = *chunk;
                    self.take_chunked(chunk, bytes)?
                }
                State::UntilClosed => {
                    self.keep_body(bytes);
                    &[]
                }
                // Whoever answers what was not asked cannot be trusted with another request.
                State::Done => {
                    self.answer.reusable = false;
                    &[]
                }
            };
        }
        Ok(matches!(self.state, State::Done).then(|| std::mem::take(&mut self.answer)))
    }

    /// The connection was closed.
    pub(crate) fn close(&mut self) -> Result<Answer, &'static str> {
        match self.state {
            State::UntilClosed => Ok(std::mem::take(&mut self.answer)),
            _ if self.is_untouched() => Err("closed before an answer"),
            _ => Err("closed in the middle of an answer"),
        }
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        if self.head.is_empty() {
            if let Some(length) = self.parse_head(bytes)? {
                return Ok(&bytes[length..]);
            }
            self.head.extend_from_slice(bytes);
            return Ok(&[]);
        }
        let before = self.head.len();
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        match self.parse_head(&head)? {
            Some(length) => Ok(&bytes[length - before..]),
            None => {
                self.head = head;
                Ok(&[])
            }
        }
    }

    /// The length of the head, if it is whole.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err("endless headers"),
            Err(_) => return Err("not an HTTP/1.1 answer"),
        };
        let status = head.code.unwrap_or_default();
        // Word that the answer is still to come.
        if (100..200).contains(&status) {
            return Ok(Some(length));
        }
        self.answer.status = status;
        self.answer.reusable = head.version == Some(1);
        self.state = self.body_of(status, head.headers)?;
        Ok(Some(length))
    }

    fn body_of(&mut self, status: u16, headers: &[httparse::Header<'_>]) -> Result<State, &'static str> {
        let (mut content_length, mut chunked) = (None, false);
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = header.value.trim_ascii();
            if is("content-length") {
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
                let number: u64 = number.ok_or("a content length that is no number")?;
                if content_length.replace(number).is_some_and(|other| other != number) {
                    return Err("two content lengths");
                }
            } else if is("transfer-encoding") {
                chunked = value.len() >= 7 && value[value.len() - 7..].eq_ignore_ascii_case(b"chunked");
                if !chunked {
                    return Err("a transfer encoding other than chunked");
                }
            } else if is("connection") && value.eq_ignore_ascii_case(b"close") {
                self.answer.reusable = false;
            }
        }
        Ok(match content_length {
            _ if status == 204 || status == 304 => State::Done,
            _ if chunked => State::Chunked(Chunk::Size { size: 0, digits: 0 }),
            Some(0) => State::Done,
            Some(length) => State::Body(length),
            None => {
                self.answer.reusable = false;
                State::UntilClosed
            }
        })
    }

    fn take_chunked<'a>(&mut self, chunk: Chunk, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (first, mut rest) = (bytes[0], &bytes[1..]);
        let next = match chunk {
            Chunk::Size { size, digits } => match (first as char).to_digit(16) {
                Some(_) if digits == 15 => return Err("an absurd chunk"),
                Some(digit) => Chunk::Size { size: size << 4 | u64::from(digit), digits: digits + 1 },
                None if digits > 0 && matches!(first, b'\r' | b'\n' | b';' | b' ' | b'\t') => {
                    rest = bytes;
                    Chunk::Extension { size }
                }
                None => return Err("a chunk without a size"),
            },
            Chunk::Extension { size } => match (first, size) {
                (b'\n', 0) => Chunk::Trailer { bytes: 0 },
                (b'\n', left) => Chunk::Data { left },
                _ => chunk,
            },
            Chunk::Data { left } => {
                let (own, after) = bytes.split_at(left.min(bytes.len() as u64) as usize);
                self.keep_body(own);
                rest = after;
                match left - own.len() as u64 {
                    0 => Chunk::Break,
                    left => Chunk::Data { left },
                }
            }
            Chunk::Break => match first {
                b'\r' => chunk,
                b'\n' => Chunk::Size { size: 0, digits: 0 },
                _ => return Err("a chunk longer than its size"),
            },
            Chunk::Trailer { bytes } => match first {
                b'\n' if bytes == 0 => {
                    self.state = State::Done;
                    return Ok(rest);
                }
                b'\n' => Chunk::Trailer { bytes: 0 },
                b'\r' => chunk,
                _ if bytes == HEAD_MAX => return Err("endless headers"),
                _ => Chunk::Trailer { bytes: bytes + 1 },
            },
        };
        self.state = State::Chunked(next);
        Ok(rest)
    }

    fn keep_body(&mut self, bytes: &[u8]) {
        self.answer.length += bytes.len() as u64;
        let most = if self.answer.status == 200 { self.keep } else { self.keep.max(REASON_MAX) };
        let room = most.saturating_sub(self.answer.body.len());
        if room > 0 {
            self.answer.body.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an answer whole and in pieces of every size, and then sees the connection closed.
    fn read(text: &str) -> Result<(u16, bool, String), &'static str> {
        let in_pieces = |size: usize| {
            let mut reader = AnswerReader::new(1000);
            for piece in text.as_bytes().chunks(size) {
                if let Some(answer) = reader.take(piece)? {
                    return Ok(answer);
                }
            }
            reader.close()
        };
        let whole = in_pieces(text.len().max(1));
        for size in 1..text.len() {
            match (&whole, in_pieces(size)) {
                // What comes after the answer is not seen before it is read.
                (Ok(whole), Ok(pieces)) => assert_eq!((whole.status, &whole.body), (pieces.status, &pieces.body)),
                (Err(one), Err(other)) => assert_eq!(*one, other),
                (one, other) => panic!("{one:?} whole, {other:?} in pieces of {size}"),
            }
        }
        whole.map(|answer| (answer.status, answer.reusable, String::from_utf8(answer.body).unwrap()))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let check = |text: &str, status: u16, reusable: bool, body: &str| {
            assert_eq!(read(text), Ok((status, reusable, body.to_owned())), "{text}");
        };
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, "hello");
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, true, "");
        check("HTTP/1.1 204 No Content\r\n\r\n", 204, true, "");
        check("HTTP/1.1 429 Slow\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno", 429, false, "no");
        check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false, "ok");
        check("HTTP/1.1 200 OK\r\n\r\nto the end", 200, false, "to the end");
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, true, "ok");
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP", 200, false, "ok");
    }

    #[test]
    fn chunks_are_put_together() {
        let check = |chunks: &str, body: &str| {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(read(&text), Ok((200, true, body.to_owned())), "{chunks}");
        };
        check("0\r\n\r\n", "");
        check("5\r\nhello\r\n0\r\n\r\n", "hello");
        check("00a;name=value\r\n0123456789\r\n1 \r\n!\r\n0\r\nExpires: never\r\n\r\n", "0123456789!");
        check("2\r\n\r\n\r\n1\r\n0\r\n0\r\n\r\n", "\r\n0");
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let check = |text: &str, expected: &str| assert_eq!(read(text), Err(expected), "{text}");
        check("", "closed before an answer");
        check("HTTP/1.1 200 OK\r\nContent-Le", "closed in the middle of an answer");
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "closed in the middle of an answer");
        check("SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP/1.1 answer");
        check("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "a content length that is no number");
        check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "two content lengths");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{chunked}x\r\n"), "a chunk without a size");
        check(&format!("{chunked}ffffffffffffffff\r\n"), "an absurd chunk");
        check(&format!("{chunked}1\r\nab\r\n"), "a chunk longer than its size");
        check(&format!("{chunked}5\r\nhe"), "closed in the middle of an answer");
        let mut reader = AnswerReader::new(0);
        reader.take(b"HTTP/1.1 200 OK\r\n").unwrap();
        let endless = std::iter::repeat_n(b"a: b\r\n", 20_000).find_map(|line| reader.take(line).err());
        assert_eq!(endless, Some("endless headers"));
    }

    #[test]
    fn bodies_are_counted_and_only_what_is_asked_for_is_kept() {
        let mut reader = AnswerReader::new(0);
        reader.take(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").unwrap();
        let answer = reader.take(&[7; 100_000]).unwrap().unwrap();
        assert_eq!((answer.length, answer.body.len()), (100_000, 0));
    }
}
