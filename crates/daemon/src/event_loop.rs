//! The loop: wait for a message or for the next tick, answer, tick.

use crate::answers;
use crate::gpu_state::{Attaching, GpuState};
use crate::pidfd::Watched;
use crate::registry::{TenantState, Token};
use crate::state::{Client, DaemonState};
use config::Share;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use shm::{Connection, FileList, MAX_MESSAGE, Message, Name, SLOTS, VERSION, now_ns};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

/// The most connections at a time, and of one user who is not root.
const CONNECTIONS_MAX: usize = 2_048;
const CONNECTIONS_OF_USER_MAX: usize = 512;
/// How long the daemon accepts no connection after the system refused it one.
const ACCEPT_RETRY_NS: u64 = 100_000_000;

/// Why the loop woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Stop,
    Listener,
    Client(Token),
    Ended(Token),
    LeaderEnded(u32),
}

/// Runs until somebody stops the daemon, or until nobody needed it for long enough.
pub(crate) fn run(mut state: DaemonState) {
    let gpus = state.gpu_states.len();
    let socket = state.config.paths.socket.display().to_string();
    tracing::info!(gpus, tenants = state.registry.iter().count(), socket, "sharing GPUs");
    while !state.poll_once() {}
    state.shut_down();
}

impl DaemonState {
    /// Keeps what the next daemon needs and lets go of the socket.
    fn shut_down(mut self) {
        self.gpu_states.iter().for_each(GpuState::keep_learned);
        let path = &self.config.paths.socket;
        // Only the holder of the lock listens at this path. The next holder makes the socket again.
        let _ = std::fs::remove_file(path);
        if self.registry.is_empty() {
            let _ = std::fs::remove_file(self.config.paths.tenants());
        }
        if let Some(mps) = self.mps.take() {
            mps.stop(self.registry.is_empty());
        }
        drop(self.listener);
        drop(self.lock);
        tracing::info!("sharing ended");
    }

    /// Handles what is ready, ticks if a tick is due. Returns whether the daemon is to end.
    fn poll_once(&mut self) -> bool {
        let now = now_ns();
        for ready in self.wait(now) {
            match ready {
                Ready::Stop => return true,
                Ready::Listener => self.accept(),
                Ready::Client(token) => self.receive(token),
                Ready::Ended(token) => self.forget(token),
                Ready::LeaderEnded(number) => {
                    if let Some(tenant) = self.registry.get_mut(number) {
                        tenant.leader = None;
                    }
                }
            }
        }
        let now = now_ns();
        for (_, gone) in self.registry.sweep(now) {
            tracing::info!(tenant = gone.name, "gone");
            self.write_now = true;
        }
        if self.tick_now || now >= self.ticked_ns + self.config.sharing.tick.nanos() {
            (self.tick_now, self.ticked_ns) = (false, now);
            for gpu_state in self.gpu_states.iter_mut().filter(|gpu_state| !gpu_state.is_idle()) {
                gpu_state.tick(now, &self.registry);
            }
        }
        if std::mem::take(&mut self.write_now)
            && let Err(error) = self.store.write(&self.registry)
        {
            tracing::warn!("tenants could not be written for the next daemon: {error:#}");
        }
        if !self.registry.is_empty() {
            self.used_ns = now;
        }
        self.idle_until_ns().is_some_and(|until| now >= until)
    }

    /// When the daemon ends by itself unless a tenant comes.
    fn idle_until_ns(&self) -> Option<u64> {
        let idle = self.config.idle_exit.filter(|_| self.registry.is_empty())?;
        Some(self.used_ns.saturating_add(idle.as_nanos() as u64))
    }

    /// Sleeps until there is something to do, and returns what.
    fn wait(&self, now: u64) -> Vec<Ready> {
        let mut watched = vec![(Ready::Stop, self.stop.as_fd())];
        if now >= self.accept_from_ns {
            watched.push((Ready::Listener, self.listener.as_fd()));
        }
        for (token, client) in &self.clients {
            watched.push((Ready::Client(*token), client.connection.as_fd()));
            if let Some(process) = &client.process {
                watched.push((Ready::Ended(*token), process.as_fd()));
            }
        }
        for (number, tenant) in self.registry.iter() {
            if let Some(leader) = &tenant.leader {
                watched.push((Ready::LeaderEnded(number), leader.as_fd()));
            }
        }
        let working = self.gpu_states.iter().any(|gpu_state| !gpu_state.is_idle());
        let tick = working.then(|| self.ticked_ns + self.config.sharing.tick.nanos());
        let accept = (now < self.accept_from_ns).then_some(self.accept_from_ns);
        let times = [tick, accept, self.registry.next_sweep_ns(now), self.idle_until_ns()];
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
                    self.accept_from_ns = now_ns() + ACCEPT_RETRY_NS;
                    return;
                }
            };
            let Ok(peer) = connection.peer() else { continue };
            let of_user = self.clients.values().filter(|client| client.peer.uid == peer.uid).count();
            let full = self.clients.len() >= CONNECTIONS_MAX || peer.uid != 0 && of_user >= CONNECTIONS_OF_USER_MAX;
            if full {
                refuse(&connection, "too many programs are connected");
                continue;
            }
            self.last_token += 1;
            let client = Client { connection, peer, tenant: None, process: None, registered: false };
            self.clients.insert(self.last_token, client);
        }
    }

    /// Receives one packet. A client that sent more is served again in the next round, after the others.
    fn receive(&mut self, token: Token) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(client) = self.clients.get(&token) else { return self.buffer = buffer };
        let kept = match client.connection.receive(&mut buffer, &mut FileList::new()) {
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
                if let Some(client) = self.clients.get(&token) {
                    tracing::debug!(pid = client.peer.pid, reason, "refused");
                    refuse(&client.connection, &reason);
                }
                self.forget(token);
            }
        }
    }

    /// Does what a message asks. An error is the reason that the client is refused.
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
                Err("only the daemon sends this message".into())
            }
        }
    }

    fn hello(&mut self, token: Token, name: Option<Name>) -> Result<(), String> {
        let client = self.clients.get_mut(&token).ok_or("the client is gone")?;
        if client.tenant.is_some() {
            return Err("the client sent hello twice".into());
        }
        let (pid, user) = (client.peer.pid, client.peer.uid);
        let process = Watched::new(pid).ok_or("the process is gone")?;
        let name = name.map_or_else(|| format!("pid-{pid}"), |name| name.as_str().to_owned());
        let number = match self.registry.named(&name) {
            Some(_) => self.registry.named_for(&name, user)?,
            None => {
                tracing::info!(tenant = name, pid, "came without being registered, and has the default share");
                self.write_now = true;
                self.registry.add(TenantState::new(name, user, Share::default()))?
            }
        };
        if let Some(tenant) = self.registry.get_mut(number) {
            tenant.processes.insert(token);
        }
        client.process = Some(process);
        client.tenant = Some(number);
        Ok(())
    }

    fn attach(&mut self, token: Token, gpu: [u8; 16], charged_ns: u64) -> Result<(), String> {
        let client = self.clients.get(&token).ok_or("the client is gone")?;
        let tenant = client.tenant.ok_or("the client did not send hello")?;
        let user = client.peer.uid;
        let command = self.registry.get(tenant).and_then(|tenant| tenant.command);
        let process = Watched::new(client.peer.pid).ok_or("the process is gone")?;
        let index = self.gpu_states.iter().position(|gpu_state| gpu_state.gpu.uuid.0 == gpu);
        let index = index.ok_or_else(|| match &self.config.gpus.problem {
            Some(problem) => format!("the daemon does not know this GPU: {problem}"),
            None => "the daemon does not know this GPU".into(),
        })?;
        let now = now_ns();
        let gpu_state = &mut self.gpu_states[index];
        let attached = gpu_state.attach(Attaching { tenant, token, process, user, command, charged_ns }, now)?;
        // Its share and its siblings are on its page, and it is on theirs, before the program starts.
        gpu_state.tick(now, &self.registry);
        let message =
            Message::Attached { slot: attached.slot, slots: SLOTS as u32, generation: attached.generation, tenant };
        let files = self.gpu_states[index].files(attached.slot);
        let client = self.clients.get(&token).ok_or("the client is gone")?;
        send(&client.connection, message, &files)
    }

    fn reply(&self, token: Token, message: Message<'_>, files: &[BorrowedFd<'_>]) -> Result<(), String> {
        let client = self.clients.get(&token).ok_or("the client is gone")?;
        send(&client.connection, message, files)
    }

    /// A connection or its process has ended.
    fn forget(&mut self, token: Token) {
        if self.clients.remove(&token).is_some() {
            for gpu_state in &mut self.gpu_states {
                gpu_state.release(token);
            }
            self.registry.connection_gone(token);
            self.tick_now = true;
        }
    }
}

/// Sends a refusal. The client may not read it.
fn refuse(connection: &Connection, text: &str) {
    let _ = send(connection, Message::Refused { version: VERSION, text }, &[]);
}

/// Never waits. A client that does not read its answers is dropped.
fn send(connection: &Connection, message: Message<'_>, files: &[BorrowedFd<'_>]) -> Result<(), String> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let packet = message.encode(&mut buffer).ok_or("an answer does not fit a packet")?;
    connection.send(packet, files).map_err(|error| format!("an answer could not be sent: {error}"))
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}
