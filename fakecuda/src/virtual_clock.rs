//! A clock that a test moves, for all processes of its machine: what programs do in time is then the same on a machine
//! that does something else meanwhile.
//!
//! Programs are started with [`VirtualClock::spawn`]; for them, for the library under test in them and for the stand-in,
//! time stands still while any of their threads can run, and moves to the next time that somebody sleeps until once none
//! can. Running takes no time, but for what a look at the clock costs.
//!
//! Invariants:
//! 1. The clock moves only at a moment at which every thread of every process slept: all were seen asleep twice, and none
//!    of them had run in between (the kernel counts how often each did).
//! 2. It moves to the earliest time that a living process sleeps until, never past it, and not again before whoever slept
//!    until then got up.
//! 3. No wait for a program lasts: it ends after [`PATIENCE`] in which the clock could not move, and after [`LONGEST`] by
//!    both the clock and the machine's.
//! 4. The thread of the test has the clock for its own looks at the stand-in's books.
//!
//! What they do not cover: real time-outs of sockets and of `poll`, which pass in real time.

use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROCESSES: usize = 256;
const SLEEPERS: usize = 1024;
/// When it begins. Not at zero, which means "never" in many places.
const BEGIN_NS: u64 = 1_000_000_000_000;
/// The longest step, so that what the test itself does for programs is never later than that for them.
const STEP_NS: u64 = 5_000_000;
/// For how long a test waits for something that never comes.
const LONGEST: Duration = Duration::from_secs(20);
/// For how long, in real time, a test waits for its programs to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);

#[repr(C)]
struct Sleeper {
    until_ns: AtomicU64,
    pid: AtomicU32,
    unused: u32,
}

/// What the file holds; `virtual_clock.c` has the same.
#[repr(C)]
struct Shared {
    now_ns: AtomicU64,
    moved: AtomicU32,
    unused: u32,
    processes: [AtomicU32; PROCESSES],
    sleepers: [Sleeper; SLEEPERS],
}

/// The clock, for the test that moves it.
pub struct VirtualClock {
    folder: PathBuf,
    shared: &'static Shared,
}

/// A thread of a program, and how often it ran.
type Thread = (u32, u32, u64);

impl VirtualClock {
    /// A clock in a folder of the test's. The thread that makes it sees the stand-in's books by it.
    pub fn new(folder: &Path) -> Result<VirtualClock> {
        let folder = folder.to_path_buf();
        let (source, library) = (folder.join("virtual_clock.c"), folder.join("libvirtual_clock.so"));
        std::fs::write(&source, include_str!("virtual_clock.c"))?;
        let built = Command::new("gcc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status()?;
        assert!(built.success(), "the clock compiles");
        let file = folder.join("clock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(file)?;
        file.set_len(size_of::<Shared>() as u64)?;
        let shared = map(&file)?;
        shared.now_ns.store(BEGIN_NS, Ordering::SeqCst);
        run_briefly();
        clock::stand_in(Some(&shared.now_ns));
        Ok(VirtualClock { folder, shared })
    }

    /// Starts a program that lives by this clock, with what else it is to preload.
    pub fn spawn(&self, command: &mut Command, preloaded: &[PathBuf]) -> Result<Child> {
        let libraries = [&[self.folder.join("libvirtual_clock.so")], preloaded].concat();
        let libraries: Vec<String> = libraries.iter().map(|path| path.display().to_string()).collect();
        command.env("LD_PRELOAD", libraries.join(":")).env("FAKECUDA_CLOCK", self.folder.join("clock"));
        let child = command.spawn()?;
        // Until it has the clock, nobody knows that it can run.
        let began = Instant::now();
        let has_it = || self.shared.processes.iter().any(|process| process.load(Ordering::SeqCst) == child.id());
        while !has_it() && state(child.id()).is_some_and(|state| state != 'Z') {
            assert!(began.elapsed() < PATIENCE, "a program does not start");
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(child)
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns.load(Ordering::SeqCst)
    }

    /// Lets programs run for so long. `serve` does what the test has to do for them, and says whether it did anything.
    pub fn run_for(&self, time: Duration, serve: impl FnMut() -> bool) {
        let until_ns = self.now_ns() + time.as_nanos() as u64;
        self.run(until_ns, serve, || false);
    }

    /// Lets programs run until something holds, which is looked at whenever all of them sleep.
    pub fn run_until(&self, what: &str, mut serve: impl FnMut() -> bool, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        // What waits for a socket waits in real time, while the clock has nobody to stop for.
        while !self.run(self.now_ns() + LONGEST.as_nanos() as u64, &mut serve, &mut done) {
            assert!(
                began.elapsed() < LONGEST,
                "waited in vain for {what}, for {LONGEST:?} by the clock and by the machine's"
            );
        }
    }

    /// Lets programs run until one of them ends.
    pub fn run_to_the_end(&self, child: &mut Child, serve: impl FnMut() -> bool) -> ExitStatus {
        let mut status = None;
        self.run_until("its end", serve, || {
            status = child.try_wait().expect("it is a child");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// Lets programs run until a time or until something holds; says whether it did.
    fn run(&self, until_ns: u64, mut serve: impl FnMut() -> bool, mut done: impl FnMut() -> bool) -> bool {
        let mut moved = Instant::now();
        loop {
            assert!(
                moved.elapsed() < PATIENCE,
                "programs do not come to rest, at {}: {:?}",
                self.now_ns(),
                self.threads()
            );
            if serve() || !self.at_rest() {
                std::thread::sleep(Duration::from_micros(20));
                continue;
            }
            if done() {
                return true;
            }
            let now = self.now_ns();
            if now >= until_ns {
                return false;
            }
            moved = Instant::now();
            self.move_to(self.next_ns().unwrap_or(u64::MAX).min(until_ns).min(now + STEP_NS));
        }
    }

    fn move_to(&self, time_ns: u64) {
        self.shared.now_ns.fetch_max(time_ns, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.shared.moved.fetch_add(1, Ordering::SeqCst);
        // SAFETY: wakes whoever waits for a word of the mapping, which stays; it reads and writes nothing else.
        unsafe { libc::syscall(libc::SYS_futex, &raw const self.shared.moved, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// The earliest time that somebody sleeps until.
    fn next_ns(&self) -> Option<u64> {
        self.sleepers().map(|(until_ns, _)| until_ns).min()
    }

    /// Who sleeps: until when, and in which process. Those of the dead are taken out.
    fn sleepers(&self) -> impl Iterator<Item = (u64, u32)> {
        self.shared.sleepers.iter().filter_map(|sleeper| {
            let (until_ns, pid) = (sleeper.until_ns.load(Ordering::SeqCst), sleeper.pid.load(Ordering::SeqCst));
            if until_ns == 0 || pid == 0 {
                return None;
            }
            if state(pid).is_none_or(|state| state == 'Z') {
                sleeper.pid.store(0, Ordering::SeqCst);
                sleeper.until_ns.store(0, Ordering::SeqCst);
                return None;
            }
            Some((until_ns, pid))
        })
    }

    /// Whether no thread can run before the clock moves (invariant 1 and 2).
    fn at_rest(&self) -> bool {
        let now = self.now_ns();
        let due = |pid| state(pid).is_some_and(|state| state != 'T');
        if self.sleepers().any(|(until_ns, pid)| until_ns <= now && due(pid)) {
            // Looks at the clock moved it there.
            self.wake();
            return false;
        }
        let before = self.threads();
        before.is_some() && before == self.threads()
    }

    /// All threads, if all sleep.
    fn threads(&self) -> Option<Vec<Thread>> {
        let mut threads = Vec::new();
        for process in &self.shared.processes {
            let pid = process.load(Ordering::SeqCst);
            if pid == 0 {
                continue;
            }
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
                process.store(0, Ordering::SeqCst);
                continue;
            };
            for task in tasks.flatten() {
                let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                match state_and_switches(pid, thread) {
                    Some(('R' | 'D', _)) => return None,
                    Some((_, switches)) => threads.push((pid, thread, switches)),
                    // It ended meanwhile.
                    None => {}
                }
            }
        }
        Some(threads)
    }
}

impl Drop for VirtualClock {
    fn drop(&mut self) {
        clock::stand_in(None);
    }
}

/// The state of a process's first thread, as the kernel names it.
fn state(pid: u32) -> Option<char> {
    Some(state_and_switches(pid, pid)?.0)
}

/// The state of a thread, and how often a processor was taken from it or given up by it.
fn state_and_switches(pid: u32, thread: u32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let state = text.lines().find_map(|line| line.strip_prefix("State:")?.trim_start().chars().next())?;
    let switches = text.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
    let switches = switches.filter_map(|line| line.rsplit_once('\t')?.1.parse::<u64>().ok());
    Some((state, switches.sum()))
}

/// Asks the kernel for short turns, for this thread and the programs that it starts: who runs for a moment and sleeps again
/// is then not kept waiting for the turns of whoever only computes. Without it everything is slower, and the same.
fn run_briefly() {
    const SLICE_NS: u64 = 100_000;
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let (size, policy) = (size_of::<Attributes>() as u32, libc::SCHED_OTHER as u32);
    let (flags, nice, priority) = (0, 0, 0);
    let attributes =
        Attributes { size, policy, flags, nice, priority, runtime_ns: SLICE_NS, deadline_ns: 0, period_ns: 0 };
    // SAFETY: the attributes are as large as they say and outlive the call, which only reads them.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

fn map(file: &File) -> Result<&'static Shared> {
    let (length, access) = (size_of::<Shared>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping of a file that is as long, which touches nothing that is there.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the mapping is as long as the value, stays for ever, and every word of the value is an atomic or unused.
    Ok(unsafe { &*start.cast::<Shared>() })
}
