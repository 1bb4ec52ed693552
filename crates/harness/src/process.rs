//! Processes of ours: each leads a group of its own, so that Ctrl-C reaches them through us, and whatever one started
//! ends with it. What they say last is kept for when they fail.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that are kept of what a process says.
const KEPT: usize = 12;

/// How often something is looked at that cannot be waited for.
const GLANCE: Duration = Duration::from_millis(10);

/// How long the last words of a process that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The last lines that a process wrote to its standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    pub(crate) fn add(&self, line: &str) {
        let mut lines = self.0.lock().expect("nothing panics while it is locked");
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(line.trim_end().to_owned());
    }

    fn text(&self) -> String {
        let lines = self.0.lock().expect("nothing panics while it is locked");
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => "it said nothing".into(),
            false => format!("it said last: {}", lines.join(" / ")),
        }
    }
}

/// A process that does not outlive this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub(crate) said: Said,
    listener: JoinHandle<()>,
}

impl Process {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts it, with its output and input in our hands.
    pub fn start(mut command: Command) -> std::io::Result<(Process, ChildStdin, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let said = Said::default();
        let (errors, keep) = (child.stderr.take().expect("it was asked for"), said.clone());
        let listener = std::thread::spawn(move || lines(errors, |line| keep.add(&line)));
        Ok((Process { child, said, listener }, input, output))
    }

    /// Keeps the last lines of its output as well, for [`Process::last_words`].
    pub fn keep(&self, output: ChildStdout) {
        let said = self.said.clone();
        std::thread::spawn(move || lines(output, |line| said.add(&line)));
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// How it ended, when it does before the time is over.
    pub fn wait(&mut self, until: Instant) -> Option<ExitStatus> {
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// What it said last, as the end of a message. All of it when it has ended, unless what it started still talks.
    pub fn last_words(&mut self) -> String {
        let until = Instant::now() + LAST_WORDS;
        while self.ended().is_some() && !self.listener.is_finished() && Instant::now() < until {
            std::thread::sleep(GLANCE);
        }
        self.said.text()
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::TERM);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What it started may live on when it does not.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Reads lines until there are no more. Whatever is no text is shown as such.
pub(crate) fn lines(from: impl Read, mut each: impl FnMut(String)) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = reader.read_until(b'\n', &mut line) {
        each(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_kept() {
        let said = Said::default();
        assert_eq!(said.text(), "it said nothing");
        for number in 0..20 {
            said.add(&format!("line {number}\n"));
        }
        assert!(said.text().starts_with("it said last: line 8 / line 9 / "), "{}", said.text());
        assert!(said.text().ends_with("line 19"), "{}", said.text());
    }

    #[test]
    fn a_process_and_what_it_started_end_with_their_owner() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let (process, input, output) = Process::start(command).unwrap();
        let mut started = String::new();
        BufReader::new(output).read_line(&mut started).unwrap();
        let alive = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", started.trim())).unwrap_or_default();
            // One that has ended stays until whoever inherited it has looked.
            !state.is_empty() && !state.contains(") Z ")
        };
        assert!(alive());
        drop((process, input));
        let deadline = Instant::now() + Duration::from_secs(10);
        while alive() {
            assert!(Instant::now() < deadline, "it lives on");
            std::thread::sleep(GLANCE);
        }
    }
}
