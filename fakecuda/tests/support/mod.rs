//! A machine of its own for each test: a state file, the libraries' names in a folder, and the test programs compiled.

#![allow(unreachable_pub, dead_code, reason = "every test file has a copy of this and uses a part of it")]

use fakecuda::book::{Book, Slot};
use fakecuda::state::{Machine, State};
use fakecuda::truth::{Truth, read_state};
use fakecuda::virtual_clock::VirtualClock;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// GPUs in a folder that goes when the test ends.
pub struct TestMachine {
    folder: PathBuf,
    pub state: State,
    clock: Option<VirtualClock>,
}

impl TestMachine {
    pub fn new(memory_bytes: u64) -> TestMachine {
        TestMachine::make(memory_bytes, |_| None)
    }

    /// One whose clock the test moves.
    pub fn in_virtual_time(memory_bytes: u64) -> TestMachine {
        TestMachine::make(memory_bytes, |folder| Some(VirtualClock::new(folder).unwrap()))
    }

    pub fn clock(&self) -> &VirtualClock {
        self.clock.as_ref().expect("it was made with one")
    }

    fn make(memory_bytes: u64, clock: impl FnOnce(&Path) -> Option<VirtualClock>) -> TestMachine {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("fakecuda-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        fakecuda::install::install(&fakecuda::install::library().unwrap(), &folder.join("lib")).unwrap();
        let clock = clock(&folder);
        let state = State::open(&folder.join("state"), Machine { gpus: 1, memory_bytes }).unwrap();
        TestMachine { folder, state, clock }
    }

    /// A test program with its arguments, ready to be started.
    pub fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name).with_extension("c");
        let program = self.folder.join(name);
        if !program.exists() {
            let mut compiler = Command::new("gcc");
            compiler.args(["-O2", "-rdynamic", "-D_GNU_SOURCE", "-o"]).arg(&program).arg(&source);
            let status = compiler.args(["-ldl", "-lpthread", "-lm"]).status().expect("gcc can be started");
            assert!(status.success(), "{name} can be compiled");
        }
        let mut command = Command::new(program);
        command.args(arguments).env("LD_LIBRARY_PATH", self.folder.join("lib"));
        command.env("FAKECUDA_STATE", self.folder.join("state")).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Runs a program to its end, and gives what it printed.
    pub fn run(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.program(name, arguments).output().unwrap();
        assert!(output.status.success(), "{name}: {:?}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a program that ends, at the latest, with the value.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let mut program = self.program(name, arguments);
        let child = match &self.clock {
            Some(clock) => clock.spawn(&mut program, &[]),
            None => program.spawn(),
        };
        Running(child.unwrap())
    }

    /// The books as they are now.
    pub fn look<R>(&self, look: impl FnOnce(&Book) -> R) -> R {
        self.state.gpu(0).unwrap().update(|book| look(book))
    }

    /// What a process did, whether it is there or not.
    pub fn truth(&self, pid: u32) -> Option<Truth> {
        read_state(&self.state).into_iter().find(|truth| truth.counters.pid == pid)
    }

    /// What all processes did, by process.
    pub fn counters(&self) -> Vec<Slot> {
        read_state(&self.state).into_iter().map(|truth| truth.counters).collect()
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that runs, and is killed when nobody wants it any more.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that will come, however slow the machine.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
