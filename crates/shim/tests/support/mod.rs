//! A machine for tests: a stand-in driver, a clock that the test moves, a folder, a socket, and a daemon that does what a
//! test says.

#![allow(dead_code, reason = "each test file uses a part")]

use fakecuda::virtual_clock::VirtualClock;
use shm::{
    Connection, ControlPage, FileList, Listener, Message, NotesPage, OwnPage, SLOTS, Tenant, TenantPage, read_only,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// For how long a daemon waits for what a program says next. Real time, in which nothing is judged.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Machine {
    folder: tempfile::TempDir,
    pub(crate) clock: VirtualClock,
}

/// What a program printed, and what the stand-in driver says it really did.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        fakecuda::install::install(&fakecuda::install::library().unwrap(), &folder.path().join("lib")).unwrap();
        let clock = VirtualClock::new(folder.path()).unwrap();
        Machine { folder, clock }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("node.sock")
    }

    /// Compiles a program: one of the repository's, or one of this crate's.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        self.compile_with(name, &[])
    }

    pub(crate) fn compile_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = [here.join("tests/programs"), here.join("../../tests/programs")];
        let source = sources.iter().map(|folder| folder.join(name).with_extension("c")).find(|path| path.exists());
        let program = self.path(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-D_GNU_SOURCE", "-I"]).arg(&sources[1]).arg(source.unwrap()).arg("-o").arg(&program);
        let status = gcc.args(options).args(["-ldl", "-lpthread", "-lm"]).status().unwrap();
        assert!(status.success(), "{name} does not compile");
        program
    }

    /// A program with the stand-in driver, to be started without the library, or with it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib")).env("FAKECUDA_STATE", self.path("state"));
        command.env("WEFT_SOCKET", self.socket()).env("WEFT_TENANT", "test").current_dir(self.folder.path());
        for name in ["LD_PRELOAD", "WEFT_QUIET", "WEFT_DISABLE"] {
            command.env_remove(name);
        }
        command
    }

    /// Starts a program under the library.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        self.start_with(command, &[library()])
    }

    /// Starts a program with these libraries.
    pub(crate) fn start_with(&self, command: &mut Command, libraries: &[PathBuf]) -> Child {
        self.clock.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()), libraries).unwrap()
    }

    /// Runs a program without the library.
    pub(crate) fn native(&self, command: &mut Command) -> Ran {
        self.finish_alone(self.start_with(command, &[]))
    }

    /// Runs a program under the library, which finds no daemon.
    pub(crate) fn alone(&self, command: &mut Command) -> Ran {
        self.finish_alone(self.start(command))
    }

    /// Runs a program under the library and a daemon.
    pub(crate) fn run(&self, daemon: &Daemon, command: &mut Command) -> Ran {
        let child = self.start(command);
        self.finish(daemon, child)
    }

    /// Lets a program run to its end.
    pub(crate) fn finish(&self, daemon: &Daemon, child: Child) -> Ran {
        self.ended(child, || daemon.serve(self))
    }

    /// Lets a program whose daemon is gone run to its end.
    pub(crate) fn finish_alone(&self, child: Child) -> Ran {
        self.ended(child, || false)
    }

    fn ended(&self, mut child: Child, serve: impl FnMut() -> bool) -> Ran {
        self.clock.run_to_the_end(&mut child, serve);
        ran(&child.wait_with_output().unwrap())
    }

    /// Lets everybody run for so many milliseconds.
    pub(crate) fn run_for(&self, daemon: &Daemon, milliseconds: u64) {
        self.clock.run_for(Duration::from_millis(milliseconds), || daemon.serve(self));
    }

    /// Lets everybody run until something holds.
    pub(crate) fn run_until(&self, daemon: &Daemon, what: &str, done: impl FnMut() -> bool) {
        self.clock.run_until(what, || daemon.serve(self), done);
    }

    /// One of the truth's words for the process that ended last.
    pub(crate) fn truth(&self) -> Vec<fakecuda::truth::Truth> {
        fakecuda::truth::read(&self.path("state"), fakecuda::state::machine_from_environment()).unwrap()
    }

    /// What a GPU is known by.
    pub(crate) fn uuid(&self, gpu: usize) -> [u8; 16] {
        let machine = fakecuda::state::machine_from_environment();
        fakecuda::state::State::open(&self.path("state"), machine).unwrap().gpu(gpu).unwrap().uuid()
    }
}

/// Runs a program that lives by the machine's own clock.
pub(crate) fn run(command: &mut Command) -> Ran {
    ran(&command.output().unwrap())
}

fn ran(Output { status, stdout, stderr }: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { stdout: text(stdout), stderr: text(stderr), code: status.code() }
}

/// The library, beside this test.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folders = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_path_buf(), folder.join("deps")]);
    let found = folders.map(|folder| folder.join("libweft.so")).filter(|path| path.exists());
    let newest = found.max_by_key(|path| path.metadata().and_then(|file| file.modified()).unwrap());
    newest.expect("libweft.so is built with this test")
}

/// What the daemon says to a process that attaches.
pub(crate) type Rule = Box<dyn Fn(&ControlPage) + Send>;

/// A daemon that gives every process a slot, and its control page what the rule says.
pub(crate) struct Daemon {
    slots: Mutex<Slots>,
    listener: Listener,
}

struct Slots {
    pages: Vec<(OwnPage<TenantPage>, OwnedFd)>,
    controls: Vec<(OwnPage<ControlPage>, OwnedFd)>,
    /// The same for all: they are runs of one program.
    notes: (OwnPage<NotesPage>, OwnedFd),
    taken: usize,
    generation: u64,
    hellos: Vec<String>,
    attaches: Vec<(u64, u64)>,
    /// The GPU of each slot that was taken.
    gpus: Vec<[u8; 16]>,
    live: Vec<(Connection, usize)>,
    rule: Rule,
}

impl Daemon {
    pub(crate) fn start(machine: &Machine, rule: impl Fn(&ControlPage) + Send + 'static) -> Daemon {
        Daemon::bind(&machine.socket(), machine.clock.now_ns(), rule)
    }

    /// One that somebody else lets [serve](Daemon::serve_at).
    pub(crate) fn bind(socket: &Path, now_ns: u64, rule: impl Fn(&ControlPage) + Send + 'static) -> Daemon {
        let listener = Listener::bind(socket).unwrap();
        let pages = (0..SLOTS).map(|_| OwnPage::create("slot", true).unwrap()).collect();
        let controls = (0..SLOTS).map(|_| OwnPage::create("control", false).unwrap()).collect();
        let slots = Slots {
            pages,
            controls,
            notes: OwnPage::create("notes", true).unwrap(),
            taken: 0,
            generation: now_ns,
            hellos: vec![],
            attaches: vec![],
            gpus: vec![],
            live: vec![],
            rule: Box::new(rule),
        };
        Daemon { slots: Mutex::new(slots), listener }
    }

    /// Does what programs ask for, and says whether any did.
    pub(crate) fn serve(&self, machine: &Machine) -> bool {
        self.serve_at(machine.clock.now_ns())
    }

    pub(crate) fn serve_at(&self, now_ns: u64) -> bool {
        let mut served = false;
        while let Ok(connection) = self.listener.accept(false) {
            connection.set_timeout(PATIENCE).unwrap();
            self.slots().serve(connection, now_ns);
            served = true;
        }
        self.slots().beat(now_ns);
        served
    }

    /// Dies as a killed one does: connections close, pages stay as they are.
    pub(crate) fn kill(self, machine: &Machine) {
        self.slots().beat(machine.clock.now_ns());
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap()
    }

    /// What the pages of all processes that ever attached say.
    pub(crate) fn pages(&self) -> Vec<Tenant> {
        let slots = self.slots();
        slots.pages[..slots.taken].iter().filter_map(|(page, _)| page.read()).collect()
    }

    /// The GPU that each of these pages is of.
    pub(crate) fn gpus(&self) -> Vec<[u8; 16]> {
        self.slots().gpus.clone()
    }

    pub(crate) fn control(&self, slot: usize, change: impl Fn(&ControlPage)) {
        change(&self.slots().controls[slot].0);
    }

    pub(crate) fn page<T>(&self, slot: usize, look: impl Fn(&TenantPage) -> T) -> T {
        look(&self.slots().pages[slot].0)
    }

    pub(crate) fn hellos(&self) -> Vec<String> {
        self.slots().hellos.clone()
    }

    pub(crate) fn attaches(&self) -> Vec<(u64, u64)> {
        self.slots().attaches.clone()
    }
}

impl Slots {
    fn beat(&self, heartbeat_ns: u64) {
        for (control, _) in &self.controls {
            control.heartbeat_ns.store(heartbeat_ns, Ordering::Relaxed);
        }
    }

    fn serve(&mut self, connection: Connection, now_ns: u64) {
        let mut buffer = [0; 1024];
        let mut files = FileList::new();
        for _ in 0..2 {
            let length = connection.receive(&mut buffer, &mut files).unwrap_or(0);
            match Message::decode(&buffer[..length]) {
                Ok(Message::Hello { tenant, .. }) => {
                    self.hellos.push(tenant.map_or("nobody".to_owned(), |name| name.as_str().to_owned()));
                }
                Ok(Message::Attach { gpu, used_bytes, charged_ns }) => {
                    self.attaches.push((used_bytes, charged_ns));
                    self.gpus.push(gpu);
                    self.attach(&connection, now_ns);
                    let slot = self.taken - 1;
                    self.live.push((connection, slot));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn attach(&mut self, connection: &Connection, now_ns: u64) {
        let slot = self.taken;
        self.taken += 1;
        self.generation += 1;
        let control = &self.controls[slot];
        control.0.open_for(self.generation, now_ns);
        control.0.others.store(!(1 << slot), Ordering::Relaxed);
        (self.rule)(&control.0);
        let readers: Vec<OwnedFd> = self.pages.iter().map(|(_, file)| read_only(file.as_fd()).unwrap()).collect();
        let mut files = vec![self.pages[slot].1.as_fd(), control.1.as_fd(), self.notes.1.as_fd()];
        files.extend(readers.iter().map(AsFd::as_fd));
        let attached =
            Message::Attached { slot: slot as u32, slots: SLOTS as u32, generation: self.generation, tenant: 1 };
        let mut buffer = [0; 256];
        connection.send(attached.encode(&mut buffer).unwrap(), &files).unwrap();
    }
}
