//! Another process, and how to see that it ended. A process number alone is not enough: the kernel may reuse it.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) pid: u32,
    /// When it started, in the kernel's own unit since boot: with its number, a name that is never used again.
    pub(crate) started: u64,
    pub(crate) file: OwnedFd,
}

impl Watched {
    /// Watches a process; `None` when it is gone.
    pub(crate) fn new(pid: u32) -> Option<Watched> {
        let file = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        let started = started(pid)?;
        let watched = Watched { pid, started, file };
        (!watched.ended()).then_some(watched)
    }

    /// Watches a process that started then; `None` when it is gone, whoever has its number.
    pub(crate) fn again(pid: u32, started: u64) -> Option<Watched> {
        Watched::new(pid).filter(|watched| watched.started == started)
    }

    /// Whether it has ended.
    pub(crate) fn ended(&self) -> bool {
        let mut file = [PollFd::new(&self.file, PollFlags::IN)];
        !matches!(poll(&mut file, Some(&Timespec::default())), Ok(0))
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may hold anything.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_to_end_and_is_not_mistaken_for_another() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let watched = Watched::new(child.id()).unwrap();
        assert!(!watched.ended());
        assert!(Watched::again(child.id(), watched.started).is_some());
        assert!(Watched::again(child.id(), watched.started + 1).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(watched.ended());
        assert!(Watched::new(watched.pid).is_none());
        assert!(Watched::new(0).is_none());
    }
}
