//! The daemon's loop: wait for somebody or for the next tick, hear them, tick.

use super::answers;
use super::board::{Attaching, Board};
use super::gpus::{Gpu, Gpus};
use super::learned::Learned;
use super::ledger::{Ledger, Tenant, Token};
use super::mps::Mps;
use super::pidfd::Watched;
use super::place::Place;
use super::record::Record;
use super::reserved::Reserved;
use super::store::Store;
use anyhow::{Context, Result};
use policy::sharing::{Controller, SharingConfig};
use rpc::Share;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use shm::{Connection, FileList, Listener, MAX_MESSAGE, Message, Name, Peer, SLOTS, VERSION, now_ns};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The most connections at a time, and of one user who is not root.
const CONNECTIONS_MAX: usize = 2_048;
const CONNECTIONS_OF_USER_MAX: usize = 512;
/// How long nobody is let in after the system would not give a connection.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// What a daemon must be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub place: Place,
    /// The GPUs that it shares out.
    pub gpus: Gpus,
    /// Whether it ends by itself after so long without tenants.
    pub idle_exit: Option<Duration>,
    /// Where to keep a journal of each GPU.
    pub record: Option<PathBuf>,
    /// How GPUs are shared.
    pub sharing: SharingConfig,
}

/// A daemon that runs. Dropping it leaves it running.
#[derive(Debug)]
pub struct Daemon {
    thread: JoinHandle<()>,
    stop: Arc<OwnedFd>,
}

impl Daemon {
    /// Starts one, if none is there.
    pub fn start(config: Config) -> Result<Daemon> {
        config.place.prepare()?;
        let lock = config.place.lock()?;
        let path = &config.place.socket;
        let listener = Listener::bind(path).with_context(|| format!("listen at {}", path.display()))?;
        // Other users may come: what they may do is asked of the kernel for each connection.
        std::fs::set_permissions(path, Permissions::from_mode(0o666))
            .with_context(|| format!("open {} to other users", path.display()))?;
        // Each GPU needs some two hundred files. Where there are none left for one, it says so.
        crate::raise_file_limit();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("make an event")?);
        let running = Running::new(config, listener, lock, stop.clone());
        let thread = std::thread::Builder::new().name("weft-sharing".into()).spawn(move || running.run());
        Ok(Daemon { thread: thread.context("start a thread")?, stop })
    }

    /// Asks it to end. Programs go on without it.
    pub fn stop(&self) {
        ask_to_end(&self.stop);
    }

    /// What ends it from elsewhere.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let stop = self.stop.clone();
        move || ask_to_end(&stop)
    }

    /// Waits until it has ended.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the sharing daemon broke; programs go on without it");
        }
    }
}

fn ask_to_end(stop: &OwnedFd) {
    // It can only fail when it was asked more often than anybody can count.
    let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
}

/// Somebody at the other end of a connection.
pub(super) struct Visitor {
    connection: Connection,
    pub(super) peer: Peer,
    /// Its tenant, once it said hello.
    tenant: Option<u32>,
    /// Its process, to see it end even where another process holds the connection too.
    process: Option<Watched>,
    /// Whether it registered a tenant.
    pub(super) registered: bool,
}

/// Everything that the thread owns.
pub(super) struct Running {
    pub(super) config: Config,
    listener: Listener,
    /// Held to be the only daemon here.
    lock: File,
    stop: Arc<OwnedFd>,
    pub(super) visitors: BTreeMap<Token, Visitor>,
    last_token: Token,
    pub(super) ledger: Ledger,
    pub(super) boards: Vec<Board>,
    pub(super) controller: Controller,
    /// Room that is being made.
    pub(super) reserved: Vec<Reserved>,
    /// Where there are GPUs.
    pub(super) mps: Option<Mps>,
    store: Store,
    /// Something happened that everybody is to know at once, not at the next tick.
    pub(super) tick_now: bool,
    /// Something happened that the next daemon must know.
    pub(super) write_now: bool,
    ticked_ns: u64,
    used_ns: u64,
    accept_from_ns: u64,
    buffer: Vec<u8>,
}

/// What the loop woke up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Stop,
    Listener,
    Visitor(Token),
    Ended(Token),
    LeaderEnded(u32),
}

impl Running {
    fn new(config: Config, listener: Listener, lock: File, stop: Arc<OwnedFd>) -> Running {
        let now = now_ns();
        let store = Store::new(&config.place.tenants());
        let ledger = store.read(now);
        let learned = Learned::new(config.place.learned(), config.gpus.driver.as_deref());
        let record = |gpu: &Gpu| {
            let folder = config.record.as_deref()?;
            let begun = Record::begin(folder, gpu.index);
            begun.inspect_err(|error| tracing::warn!("no journal in {}: {error}", folder.display())).ok()
        };
        let board = |gpu: &Gpu| Board::new(gpu.clone(), learned.clone(), &config.sharing, record(gpu));
        let boards = config.gpus.gpus.iter().map(board).collect();
        let mps = (!config.gpus.gpus.is_empty()).then(|| Mps::start(&config.place.mps(), Mps::program()));
        // Programs that come first are to find it.
        mps.iter().for_each(Mps::settle);
        Running {
            config,
            listener,
            lock,
            stop,
            visitors: BTreeMap::new(),
            last_token: 0,
            ledger,
            boards,
            controller: Controller::default(),
            reserved: Vec::new(),
            mps,
            store,
            tick_now: false,
            write_now: false,
            ticked_ns: now,
            used_ns: now,
            accept_from_ns: 0,
            buffer: vec![0; MAX_MESSAGE],
        }
    }

    fn run(mut self) {
        let count = self.boards.len();
        let socket = self.config.place.socket.display().to_string();
        tracing::info!(gpus = count, tenants = self.ledger.iter().count(), socket, "sharing GPUs");
        while !self.turn() {}
        self.boards.iter().for_each(Board::keep_learned);
        let path = &self.config.place.socket;
        // Nobody who listens at this path but has the lock; whoever waits for it makes the socket anew.
        let _ = std::fs::remove_file(path);
        if self.ledger.is_empty() {
            let _ = std::fs::remove_file(self.config.place.tenants());
        }
        if let Some(mps) = self.mps.take() {
            mps.stop(self.ledger.is_empty());
        }
        drop(self.listener);
        drop(self.lock);
        tracing::info!("not sharing GPUs any more");
    }

    /// Once around; says whether that was the last time.
    fn turn(&mut self) -> bool {
        let now = now_ns();
        for ready in self.wait(now) {
            match ready {
                Ready::Stop => return true,
                Ready::Listener => self.accept(),
                Ready::Visitor(token) => self.hear(token),
                Ready::Ended(token) => self.forget(token),
                Ready::LeaderEnded(number) => {
                    if let Some(tenant) = self.ledger.get_mut(number) {
                        tenant.leader = None;
                    }
                }
            }
        }
        let now = now_ns();
        for (_, gone) in self.ledger.sweep(now) {
            tracing::info!(tenant = gone.name, "gone");
            self.write_now = true;
        }
        if self.tick_now || now >= self.ticked_ns + self.config.sharing.tick.nanos() {
            (self.tick_now, self.ticked_ns) = (false, now);
            for board in self.boards.iter_mut().filter(|board| !board.is_idle()) {
                board.tick(now, &self.ledger);
            }
        }
        if std::mem::take(&mut self.write_now)
            && let Err(error) = self.store.write(&self.ledger)
        {
            tracing::warn!("the next daemon will not know who is here: {error:#}");
        }
        if !self.ledger.is_empty() {
            self.used_ns = now;
        }
        self.idle_until_ns().is_some_and(|until| now >= until)
    }

    /// When it ends by itself unless somebody comes.
    fn idle_until_ns(&self) -> Option<u64> {
        let idle = self.config.idle_exit.filter(|_| self.ledger.is_empty())?;
        Some(self.used_ns.saturating_add(idle.as_nanos() as u64))
    }

    /// Sleeps until there is something to do; says what.
    fn wait(&self, now: u64) -> Vec<Ready> {
        let mut watched = vec![(Ready::Stop, self.stop.as_fd())];
        if now >= self.accept_from_ns {
            watched.push((Ready::Listener, self.listener.as_fd()));
        }
        for (token, visitor) in &self.visitors {
            watched.push((Ready::Visitor(*token), visitor.connection.as_fd()));
            if let Some(process) = &visitor.process {
                watched.push((Ready::Ended(*token), process.as_fd()));
            }
        }
        for (number, tenant) in self.ledger.iter() {
            if let Some(leader) = &tenant.leader {
                watched.push((Ready::LeaderEnded(number), leader.as_fd()));
            }
        }
        let working = self.boards.iter().any(|board| !board.is_idle());
        let tick = working.then(|| self.ticked_ns + self.config.sharing.tick.nanos());
        let accept = (now < self.accept_from_ns).then_some(self.accept_from_ns);
        let times = [tick, accept, self.ledger.next_sweep_ns(now), self.idle_until_ns()];
        let timeout = times.into_iter().flatten().min().map(|until| timespec(until.saturating_sub(now)));
        let mut files: Vec<PollFd<'_>> =
            watched.iter().map(|(_, file)| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
        if poll(&mut files, timeout.as_ref()).is_err() {
            return Vec::new();
        }
        let happened = files.iter().zip(&watched).filter(|(file, _)| !file.revents().is_empty());
        happened.map(|(_, (what, _))| *what).collect()
    }

    fn accept(&mut self) {
        loop {
            let connection = match self.listener.accept(true) {
                Ok(connection) => connection,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.accept_from_ns = now_ns() + ACCEPT_AGAIN_NS;
                    return;
                }
            };
            let Ok(peer) = connection.peer() else { continue };
            let of_user = self.visitors.values().filter(|visitor| visitor.peer.uid == peer.uid).count();
            let full = self.visitors.len() >= CONNECTIONS_MAX || peer.uid != 0 && of_user >= CONNECTIONS_OF_USER_MAX;
            if full {
                refuse(&connection, "too many programs are connected");
                continue;
            }
            self.last_token += 1;
            let visitor = Visitor { connection, peer, tenant: None, process: None, registered: false };
            self.visitors.insert(self.last_token, visitor);
        }
    }

    /// Hears one packet. Whoever has more is heard again in the next turn, after the others.
    fn hear(&mut self, token: Token) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(visitor) = self.visitors.get(&token) else { return self.buffer = buffer };
        let kept = match visitor.connection.receive(&mut buffer, &mut FileList::new()) {
            Ok(0) => Ok(false),
            Ok(length) => match Message::decode(&buffer[..length]) {
                Ok(message) => self.handle(token, message).map(|()| true),
                Err(error) => Err(error.to_string()),
            },
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(error.to_string()),
            Err(_) => Ok(false),
        };
        self.buffer = buffer;
        match kept {
            Ok(true) => {}
            Ok(false) => self.forget(token),
            Err(reason) => {
                if let Some(visitor) = self.visitors.get(&token) {
                    tracing::debug!(pid = visitor.peer.pid, reason, "refused");
                    refuse(&visitor.connection, &reason);
                }
                self.forget(token);
            }
        }
    }

    /// Does what a message asks; an error is what it is refused for.
    fn handle(&mut self, token: Token, message: Message<'_>) -> Result<(), String> {
        match message {
            Message::Hello { tenant, .. } => self.hello(token, tenant),
            Message::Attach { gpu, charged_ns, .. } => self.attach(token, gpu, charged_ns),
            Message::Request { text } => {
                let answer = answers::answer(self, token, text);
                let text = answers::write(&answer);
                self.reply(token, Message::Reply { text: &text }, &[])
            }
            Message::Attached { .. } | Message::Refused { .. } | Message::Reply { .. } => {
                Err("only the daemon says this".into())
            }
        }
    }

    fn hello(&mut self, token: Token, name: Option<Name>) -> Result<(), String> {
        let visitor = self.visitors.get_mut(&token).ok_or("nobody is there")?;
        if visitor.tenant.is_some() {
            return Err("hello was said already".into());
        }
        let (pid, user) = (visitor.peer.pid, visitor.peer.uid);
        let process = Watched::new(pid).ok_or("the process is gone")?;
        let name = name.map_or_else(|| format!("pid-{pid}"), |name| name.as_str().to_owned());
        let number = match self.ledger.named(&name) {
            Some(_) => self.ledger.named_for(&name, user)?,
            None => {
                tracing::info!(tenant = name, pid, "came without being registered; it has no share of its own");
                self.write_now = true;
                self.ledger.add(Tenant::new(name, user, Share::default()))?
            }
        };
        if let Some(tenant) = self.ledger.get_mut(number) {
            tenant.processes.insert(token);
        }
        visitor.process = Some(process);
        visitor.tenant = Some(number);
        Ok(())
    }

    fn attach(&mut self, token: Token, gpu: [u8; 16], charged_ns: u64) -> Result<(), String> {
        let visitor = self.visitors.get(&token).ok_or("nobody is there")?;
        let tenant = visitor.tenant.ok_or("hello comes first")?;
        let user = visitor.peer.uid;
        let command = self.ledger.get(tenant).and_then(|tenant| tenant.command);
        let process = Watched::new(visitor.peer.pid).ok_or("the process is gone")?;
        let index = self.boards.iter().position(|board| board.gpu.uuid.0 == gpu);
        let index = index.ok_or_else(|| match &self.config.gpus.problem {
            Some(problem) => format!("the daemon does not know this GPU: {problem}"),
            None => "the daemon does not know this GPU".into(),
        })?;
        let now = now_ns();
        let board = &mut self.boards[index];
        let place = board.attach(Attaching { tenant, token, process, user, command, charged_ns }, now)?;
        // Its share and its siblings are on its page, and it on theirs, before it is told that it may begin.
        board.tick(now, &self.ledger);
        let attached =
            Message::Attached { slot: place.slot, slots: SLOTS as u32, generation: place.generation, tenant };
        let files = self.boards[index].files(place.slot);
        let visitor = self.visitors.get(&token).ok_or("nobody is there")?;
        send(&visitor.connection, attached, &files)
    }

    fn reply(&self, token: Token, message: Message<'_>, files: &[BorrowedFd<'_>]) -> Result<(), String> {
        let visitor = self.visitors.get(&token).ok_or("nobody is there")?;
        send(&visitor.connection, message, files)
    }

    /// A connection is over, or its process is.
    fn forget(&mut self, token: Token) {
        if self.visitors.remove(&token).is_some() {
            for board in &mut self.boards {
                board.release(token);
            }
            self.ledger.connection_gone(token);
            self.tick_now = true;
        }
    }
}

/// Says no, as well as it can be said to somebody who may not listen.
fn refuse(connection: &Connection, text: &str) {
    let _ = send(connection, Message::Refused { version: VERSION, text }, &[]);
}

/// Never waits: whoever does not read what it asked for is let go of.
fn send(connection: &Connection, message: Message<'_>, files: &[BorrowedFd<'_>]) -> Result<(), String> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let packet = message.encode(&mut buffer).ok_or("an answer does not fit a packet")?;
    connection.send(packet, files).map_err(|error| format!("an answer could not be sent: {error}"))
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}
