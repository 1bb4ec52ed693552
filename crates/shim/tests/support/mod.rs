//! A machine for tests: a stand-in driver, a folder, a socket, and a daemon that does what a test says.

#![allow(dead_code, reason = "each test file uses a part")]

use shm::{
    Connection, ControlPage, FileList, Listener, Message, NotesPage, OwnPage, SLOTS, Tenant, TenantPage, now_ns,
    read_only,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) struct Machine {
    folder: tempfile::TempDir,
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
        Machine { folder }
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

    /// A program with the stand-in driver, without the library.
    pub(crate) fn native(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib")).env("FAKECUDA_STATE", self.path("state"));
        command.env("WEFT_SOCKET", self.socket()).current_dir(self.folder.path());
        for name in ["LD_PRELOAD", "WEFT_TENANT", "WEFT_QUIET", "WEFT_DISABLE"] {
            command.env_remove(name);
        }
        command
    }

    /// A program under the library.
    pub(crate) fn shared(&self, program: &Path) -> Command {
        let mut command = self.native(program);
        command.env("LD_PRELOAD", library()).env("WEFT_TENANT", "test");
        command
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

pub(crate) fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ran { stdout: text(&stdout), stderr: text(&stderr), code: status.code() }
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
    slots: Arc<Mutex<Slots>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
    pub(crate) fn start(socket: &Path, rule: impl Fn(&ControlPage) + Send + 'static) -> Daemon {
        let listener = Listener::bind(socket).unwrap();
        let pages = (0..SLOTS).map(|_| OwnPage::create("slot", true).unwrap()).collect();
        let controls = (0..SLOTS).map(|_| OwnPage::create("control", false).unwrap()).collect();
        let slots = Slots {
            pages,
            controls,
            notes: OwnPage::create("notes", true).unwrap(),
            taken: 0,
            generation: now_ns(),
            hellos: vec![],
            attaches: vec![],
            gpus: vec![],
            live: vec![],
            rule: Box::new(rule),
        };
        let slots = Arc::new(Mutex::new(slots));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (slots, stop) = (slots.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    while let Ok(connection) = listener.accept(false) {
                        connection.set_timeout(Duration::from_millis(500)).unwrap();
                        slots.lock().unwrap().serve(connection);
                    }
                    slots.lock().unwrap().tick();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Daemon { slots, stop, thread: Some(thread) }
    }

    /// Dies as a killed one does: connections close, pages stay as they are.
    pub(crate) fn kill(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.slots.lock().unwrap().live.clear();
    }

    /// What the pages of all processes that ever attached say.
    pub(crate) fn pages(&self) -> Vec<Tenant> {
        let slots = self.slots.lock().unwrap();
        slots.pages[..slots.taken].iter().filter_map(|(page, _)| page.read()).collect()
    }

    /// The GPU that each of these pages is of.
    pub(crate) fn gpus(&self) -> Vec<[u8; 16]> {
        self.slots.lock().unwrap().gpus.clone()
    }

    pub(crate) fn control(&self, slot: usize, change: impl Fn(&ControlPage)) {
        change(&self.slots.lock().unwrap().controls[slot].0);
    }

    pub(crate) fn page<T>(&self, slot: usize, look: impl Fn(&TenantPage) -> T) -> T {
        look(&self.slots.lock().unwrap().pages[slot].0)
    }

    pub(crate) fn hellos(&self) -> Vec<String> {
        self.slots.lock().unwrap().hellos.clone()
    }

    pub(crate) fn attaches(&self) -> Vec<(u64, u64)> {
        self.slots.lock().unwrap().attaches.clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Slots {
    fn tick(&mut self) {
        for (control, _) in &self.controls {
            control.heartbeat_ns.store(now_ns(), Ordering::Relaxed);
        }
    }

    fn serve(&mut self, connection: Connection) {
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
                    self.attach(&connection);
                    let slot = self.taken - 1;
                    self.live.push((connection, slot));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn attach(&mut self, connection: &Connection) {
        let slot = self.taken;
        self.taken += 1;
        self.generation += 1;
        let control = &self.controls[slot];
        control.0.open_for(self.generation, now_ns());
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
