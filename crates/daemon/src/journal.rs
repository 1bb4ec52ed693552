//! The journal of one GPU's sharing, for `weft sim replay`. A thread of its own writes it, so a slow disk delays nothing.
//!
//! It ends by itself with a line in the log when the disk is full or too slow, and at [`BYTES_MAX`].

use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The longest journal: about an hour of two programs.
const BYTES_MAX: u64 = 1 << 30;
/// The most ticks that wait to be written: about two seconds.
const WAITING_MAX: usize = 1024;

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    /// `None` once it is over.
    lines: Option<SyncSender<String>>,
    writer: Option<JoinHandle<()>>,
    bytes: u64,
}

impl JournalWriter {
    /// Begins the journal of a GPU in a folder.
    pub(crate) fn begin(folder: &Path, gpu: u32) -> Result<JournalWriter> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("gpu-{gpu}.journal"));
        let mut file = File::create(&path)?;
        let (lines, received) = sync_channel::<String>(WAITING_MAX);
        let writer = std::thread::Builder::new().name("weft-record".to_owned()).spawn(move || {
            for text in received {
                if let Err(error) = file.write_all(text.as_bytes()) {
                    tracing::warn!("{} ends here: {error}", path.display());
                    return;
                }
            }
        })?;
        Ok(JournalWriter { lines: Some(lines), writer: Some(writer), bytes: 0 })
    }

    /// Writes the entries of a tick. Returns whether the journal goes on.
    pub(crate) fn write(&mut self, text: String) -> bool {
        self.bytes += text.len() as u64;
        if self.bytes > BYTES_MAX {
            tracing::warn!("a journal of sharing ends here: it has {BYTES_MAX} bytes");
            self.lines = None;
        }
        if self.lines.as_ref().is_some_and(|lines| lines.try_send(text).is_err()) {
            tracing::warn!("a journal of sharing ends here: the disk does not keep up");
            self.lines = None;
        }
        self.lines.is_some()
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // A few ticks are left to write.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_in_the_file_once_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = JournalWriter::begin(&folder.path().join("new"), 3).unwrap();
        assert!(record.write("controller weft\n".into()) && record.write("look 0 0\n".into()));
        drop(record);
        let text = std::fs::read_to_string(folder.path().join("new/gpu-3.journal")).unwrap();
        assert_eq!(text, "controller weft\nlook 0 0\n");
        assert!(policy::sharing::journal::replay(&text).is_ok());
    }

    #[test]
    fn a_disk_that_is_full_ends_it() {
        let mut record = JournalWriter { lines: None, writer: None, bytes: 0 };
        assert!(!record.write("look 0 0\n".into()));
        let (lines, received) = sync_channel(1);
        let mut record = JournalWriter { lines: Some(lines), writer: None, bytes: 0 };
        assert!(record.write("look 0 0\n".into()));
        assert!(!record.write("look 1 0\n".into()), "nobody reads");
        drop(received);
    }
}
