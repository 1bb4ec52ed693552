//! What workers print: the last lines of each, and a copy to `tracing`.
//!
//! One thread per process reads its output and notices its end. It never makes a worker wait for anything but itself,
//! and does not care what the lines say.

use rpc::WorkerId;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// How many lines of a worker are kept.
const LINES_MAX: usize = 1_000;
/// A longer line is kept as several.
const LINE_BYTES_MAX: usize = 4_096;

/// The last lines that a worker printed, over all of its lives.
#[derive(Debug)]
pub(crate) struct Logs {
    worker: WorkerId,
    lines: Mutex<VecDeque<String>>,
}

impl Logs {
    /// No lines yet.
    pub(crate) fn new(worker: WorkerId) -> Arc<Logs> {
        Arc::new(Logs { worker, lines: Mutex::default() })
    }

    /// Adds a line of the node's own.
    pub(crate) fn note(&self, line: &str) {
        self.push(format!("weft: {line}"));
    }

    fn push(&self, line: String) {
        tracing::debug!(worker = self.worker.number(), line, "worker printed");
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// The last line that says something, for people who wonder why a worker ended.
    pub(crate) fn last_words(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Something a worker prints to.
pub(crate) struct Source<R> {
    reader: R,
    rest: Vec<u8>,
    open: bool,
}

impl<R: Read + AsFd> Source<R> {
    /// Nothing read yet.
    pub(crate) fn new(reader: R) -> Source<R> {
        Source { reader, rest: Vec::new(), open: true }
    }

    /// Reads what is there; called when there is something, so that it does not wait.
    fn read(&mut self, buffer: &mut [u8], logs: &Logs) {
        match self.reader.read(buffer) {
            Ok(0) => self.open = false,
            Ok(length) => self.take(&buffer[..length], logs),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.open = false,
        }
    }

    fn take(&mut self, bytes: &[u8], logs: &Logs) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if self.rest.ends_with(b"\n") || self.rest.len() >= LINE_BYTES_MAX {
                self.end_line(logs);
            }
        }
    }

    fn end_line(&mut self, logs: &Logs) {
        for piece in self.rest.chunks(LINE_BYTES_MAX) {
            logs.push(String::from_utf8_lossy(piece).trim_end_matches(['\n', '\r']).to_owned());
        }
        self.rest.clear();
    }
}

/// Reads what a process prints until it ends.
pub(crate) fn watch<R: Read + AsFd>(process: BorrowedFd<'_>, mut sources: [Source<R>; 2], logs: &Logs) {
    let mut buffer = vec![0; 64 * 1024];
    let mut ended = false;
    loop {
        let ready = {
            // A closed pipe would be ready for ever.
            let file = |source: usize| if sources[source].open { sources[source].reader.as_fd() } else { process };
            let mut files = [file(0), file(1), process].map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
            // Children of a process may keep its output open: once it has ended, what is there now is all we want.
            let no_wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            match poll(&mut files, ended.then_some(&no_wait)) {
                Ok(_) => files.map(|file| !file.revents().is_empty()),
                Err(_) => continue,
            }
        };
        let mut read = false;
        for (source, ready) in sources.iter_mut().zip(ready) {
            if ready && source.open {
                source.read(&mut buffer, logs);
                read = true;
            }
        }
        if ended && !read {
            break;
        }
        ended |= ready[2];
    }
    for source in &mut sources {
        source.end_line(logs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_lines_are_kept_and_long_ones_are_cut() {
        let logs = Logs::new(WorkerId(1));
        let mut source = Source::new(std::fs::File::open("/dev/null").unwrap());
        for number in 0..1_500 {
            source.take(format!("line {number}\n").as_bytes(), &logs);
        }
        assert_eq!(logs.last(usize::MAX).len(), LINES_MAX);
        assert_eq!(logs.last(2), ["line 1498", "line 1499"]);
        source.take(&[b'x'; 3 * LINE_BYTES_MAX], &logs);
        source.take(b"\xff\r\n", &logs);
        let last = logs.last(4);
        assert_eq!(last.iter().map(String::len).max(), Some(LINE_BYTES_MAX));
        assert_eq!(last.last().unwrap(), "\u{fffd}");
        assert_eq!(logs.last_words().unwrap(), "\u{fffd}");
    }
}
