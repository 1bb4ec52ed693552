//! A connection to a gateway that is kept: HTTP/1.1, one request after the other.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long it may take to connect to something on this machine.
const CONNECT: Duration = Duration::from_secs(1);
/// The longest answer that makes sense here; a page of metrics is far below it.
const LONGEST: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// It says when to try again.
    pub(crate) retry_after: bool,
    /// The connection ends with it.
    pub(crate) closes: bool,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection ended before the end of the answer.
    Closed,
    /// Nothing came for as long as the client waits.
    TimedOut,
    /// What came is no answer.
    Garbled,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::TimedOut,
            ErrorKind::InvalidData => Failure::Garbled,
            _ => Failure::Closed,
        }
    }
}

/// How a connection is that waited for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Open,
    Closed,
    /// There are bytes that nobody asked for: a second answer.
    Talks,
}

impl Connection {
    /// Connects; an answer may take as long as `patience`.
    pub(crate) fn open(port: u16, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Looks whether it can be used again.
    pub(crate) fn idle(&self) -> Idle {
        if !self.stream.buffer().is_empty() {
            return Idle::Talks;
        }
        let stream = self.stream.get_ref();
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        match (peeked, stream.set_nonblocking(false)) {
            (Ok(1..), Ok(())) => Idle::Talks,
            (Err(error), Ok(())) if error.kind() == ErrorKind::WouldBlock => Idle::Open,
            _ => Idle::Closed,
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Answer, Failure> {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<Answer, Failure> {
        self.ask("POST", path, body)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        // A server that hung up may have answered before.
        let written = self.stream.get_mut().write_all(request.as_bytes());
        if let Err(error) = written
            && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        {
            return Err(Failure::TimedOut);
        }
        read(&mut self.stream)
    }
}

fn read(stream: &mut impl BufRead) -> Result<Answer, Failure> {
    let mut line = String::new();
    let mut next = |stream: &mut dyn BufRead| -> Result<String, Failure> {
        line.clear();
        stream.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(Failure::Closed)
    };
    let status = next(stream)?;
    let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    let mut answer =
        Answer { status: status.ok_or(Failure::Garbled)?, retry_after: false, closes: false, body: Vec::new() };
    let mut length = None;
    loop {
        let line = next(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or(Failure::Garbled)?;
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => length = value.parse().ok(),
            ("connection", value) => answer.closes = value.eq_ignore_ascii_case("close"),
            ("retry-after", _) => answer.retry_after = true,
            _ => {}
        }
    }
    answer.body = vec![0; length.filter(|length| *length <= LONGEST).ok_or(Failure::Garbled)?];
    stream.read_exact(&mut answer.body)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_read_to_its_end_and_no_further() {
        let mut text: &[u8] = b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200";
        let answer = read(&mut text).unwrap();
        assert_eq!((answer.status, answer.retry_after, answer.closes), (503, true, false));
        assert_eq!((answer.body.as_slice(), text), (&b"no"[..], &b"HTTP/1.1 200"[..]));
    }

    #[test]
    fn what_is_cut_off_was_closed_and_nonsense_is_garbled() {
        let fails = |mut text: &[u8]| read(&mut text).unwrap_err();
        assert!(matches!(fails(b""), Failure::Closed));
        assert!(matches!(fails(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123"), Failure::Closed));
        assert!(matches!(fails(b"hello\r\n"), Failure::Garbled));
        assert!(matches!(fails(b"HTTP/1.1 200 OK\r\n\r\n"), Failure::Garbled));
    }

    #[test]
    fn a_second_answer_is_noticed_and_so_is_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut connection = Connection::open(port, Duration::from_secs(5)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(connection.idle(), Idle::Open);
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n").unwrap();
        assert_eq!(connection.get("/").unwrap().status, 200);
        assert_eq!(connection.idle(), Idle::Talks);

        let connection = Connection::open(port, Duration::from_secs(5)).unwrap();
        drop(listener.accept().unwrap());
        // The end of it travels to the other side of the kernel.
        let mut byte = [0];
        assert_eq!(connection.stream.get_ref().peek(&mut byte).unwrap(), 0);
        assert_eq!(connection.idle(), Idle::Closed);
    }
}
