//! Whether a process lives, also when it is killed and its parent has not looked yet.
//!
//! A process keeps one byte of the state file locked, which the kernel lets go when the process ends. Asking for the lock
//! is one cheap call. A process that closed the file (as daemons do that close everything) has no lock any more; only
//! then `/proc` is read, where a process that ended and waits for its parent shows as a zombie.

use std::os::fd::RawFd;
use std::sync::OnceLock;

/// When this process started, in the kernel's ticks.
pub(crate) fn started() -> u64 {
    static STARTED: OnceLock<(u32, u64)> = OnceLock::new();
    let pid = std::process::id();
    let (of, started) = *STARTED.get_or_init(|| (pid, started_of(pid).unwrap_or(0)));
    // A child of a fork has its parent's memory and a start of its own.
    if of == pid { started } else { started_of(pid).unwrap_or(0) }
}

/// Locks a byte of the file for as long as this process lives.
pub(crate) fn hold(file: RawFd, byte: i64) {
    let lock = byte_lock(byte);
    // SAFETY: `lock` is a whole description of a lock, which is only read.
    unsafe { libc::fcntl(file, libc::F_SETLK, &raw const lock) };
}

/// Whether the process that occupies a slot lives.
pub(crate) fn alive(file: RawFd, byte: i64, pid: u32, started: u64) -> bool {
    if pid == std::process::id() {
        return self::started() == started;
    }
    let mut lock = byte_lock(byte);
    // SAFETY: `lock` is a whole description of a lock, and the place for the answer.
    let asked = unsafe { libc::fcntl(file, libc::F_GETLK, &raw mut lock) };
    let held = asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK;
    held || started_of(pid) == Some(started)
}

fn byte_lock(byte: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

/// When a process started; `None` if there is none, or it ended.
fn started_of(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold anything; what follows the last one is numbers.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.parse().ok()?;
    (!ended).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        for _ in 0..1000 {
            if started_of(pid).is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(started_of(pid), None, "it ended, and nobody waited for it");
        child.wait().unwrap();
        assert!(started_of(std::process::id()).is_some());
    }
}
