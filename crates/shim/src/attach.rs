//! How the daemon is found, lost and found again: one connection for each GPU that the process uses.
//!
//! The first time, when a context is made, the daemon is waited for, at most [`FIRST_ANSWER`]. After that nothing waits: a
//! launch that sees the daemon gone connects and sends, a later launch receives. A process without a daemon runs without
//! limits and says so once.

#![deny(unsafe_code)]

use crate::gpu::Gpu;
use crate::link::{ABSENT, ATTACHED, Link, REFUSED, Wire};
use crate::settings::{settings, warn_once};
use crate::types::Device;
use crate::{channels, notes, real, resolve};
use share_core::Patience;
use shm::{Connection, FileList, Message, OwnPage, SLOTS, TenantPage, VERSION, now_ns};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the first answer may take.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// Between attempts to find a daemon.
const RETRY_NS: u64 = Patience::USUAL.heartbeat_ns;
/// The same where there was one: the next is probably being started.
const AGAIN_NS: u64 = Patience::USUAL.late_ns;
/// Between two checks for an answer.
const ANSWER_NS: u64 = Patience::USUAL.recheck_busy_ns;
/// An answer that has not come by then does not come.
const ANSWER_MAX_NS: u64 = Patience::USUAL.ahead_ns;
/// Between attempts after a refusal.
const REFUSED_NS: u64 = 5_000_000_000;
/// The longest answer; longer ones are not for us.
const ANSWER_BYTES: usize = 1024;

/// Why there are no pages.
enum Trouble {
    /// No daemon, or it is gone: tried again soon.
    Absent,
    /// The answer has not come yet.
    Waiting,
    /// It said no: not tried again.
    Refused,
    /// It speaks nonsense: tried again later.
    Nonsense,
}

/// Asks the daemon for pages, and waits for them.
pub(crate) fn first(gpu: &Gpu, device: Device) {
    let link = &gpu.link;
    let uuid = link.uuid.get_or_init(|| real::uuid(device));
    if uuid.is_none() {
        link.state.store(REFUSED, Ordering::Release);
        return;
    }
    let mut wire = link.wire.lock();
    // Whoever had to wait for the lock has the answer, if there is one.
    if wire.connection.is_some() || !link.due(now_ns(), false) {
        return;
    }
    let result = ask(gpu, &mut wire, FIRST_ANSWER).and_then(|()| answer(gpu, &mut wire));
    settle(gpu, &mut wire, result, true);
}

/// Looks for a daemon without waiting. Called from launches, when [`Link::due`].
#[cold]
pub(crate) fn again(gpu: &Gpu, now_ns: u64) {
    let link = &gpu.link;
    if link.uuid().is_none() {
        return;
    }
    let Some(mut wire) = link.wire.try_lock() else { return };
    link.next_try_ns.store(now_ns + retry_ns(link), Ordering::Relaxed);
    if wire.asked_ns.is_none() && wire.connection.is_some() && !moved(gpu) {
        // Its heartbeat is late. If the connection stands, it is only slow, and there is no other to go to.
        if !hung_up(&wire) {
            return;
        }
    }
    let result = match wire.asked_ns {
        Some(asked) if now_ns.saturating_sub(asked) < ANSWER_MAX_NS => answer(gpu, &mut wire),
        _ => ask(gpu, &mut wire, Duration::ZERO).and_then(|()| answer(gpu, &mut wire)),
    };
    settle(gpu, &mut wire, result, false);
}

/// Whether the control page is not ours any more.
pub(crate) fn moved(gpu: &Gpu) -> bool {
    gpu.link.attached()
        && gpu
            .window()
            .is_some_and(|window| window.control().word(|control| &control.generation) != gpu.link.generation())
}

fn hung_up(wire: &Wire) -> bool {
    let Some(connection) = &wire.connection else { return true };
    let mut buffer = [0; ANSWER_BYTES];
    match connection.receive(&mut buffer, &mut FileList::new()) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn ask(gpu: &Gpu, wire: &mut Wire, patience: Duration) -> Result<(), Trouble> {
    wire.connection = None;
    wire.asked_ns = None;
    let settings = settings();
    let connection = Connection::connect(&settings.socket, patience).map_err(|_| Trouble::Absent)?;
    let charged_ns = gpu.window().map_or(0, |window| window.own().charged_ns.load(Ordering::Relaxed));
    let hello = Message::Hello { pid: std::process::id(), tenant: settings.tenant, flags: 0 };
    let attach = Message::Attach { gpu: gpu.link.uuid().unwrap_or_default(), used_bytes: gpu.used(), charged_ns };
    for message in [hello, attach] {
        let mut buffer = [0; ANSWER_BYTES];
        let bytes = message.encode(&mut buffer).ok_or(Trouble::Nonsense)?;
        connection.send(bytes, &[]).map_err(|_| Trouble::Absent)?;
    }
    wire.connection = Some(connection);
    wire.asked_ns = Some(now_ns());
    Ok(())
}

fn answer(gpu: &Gpu, wire: &mut Wire) -> Result<(), Trouble> {
    let connection = wire.connection.as_ref().ok_or(Trouble::Absent)?;
    let mut buffer = [0; ANSWER_BYTES];
    let mut files = FileList::new();
    let length = match connection.receive(&mut buffer, &mut files) {
        Ok(0) => return Err(Trouble::Absent),
        Ok(length) => length,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Trouble::Waiting),
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(Trouble::Nonsense),
        Err(_) => return Err(Trouble::Absent),
    };
    match Message::decode(&buffer[..length]) {
        Ok(Message::Attached { slot, slots, generation, tenant }) => {
            let fits = (slot as usize) < SLOTS && slots as usize <= SLOTS && files.len() == 3 + slots as usize;
            if !fits {
                return Err(Trouble::Nonsense);
            }
            accept(gpu, slot, generation, tenant, &files).map_err(|_| Trouble::Nonsense)
        }
        Ok(Message::Refused { version, text }) => {
            if version == VERSION {
                warn_once(&format!("the daemon refused this process: {text}; nothing is limited"));
            } else {
                warn_once(&format!(
                    "the daemon speaks version {version} and this library version {VERSION}; nothing is limited"
                ));
            }
            Err(Trouble::Refused)
        }
        Ok(_) | Err(_) => Err(Trouble::Nonsense),
    }
}

/// Moves into new pages: what the old one counted goes on in the new one.
fn accept(gpu: &Gpu, slot: u32, generation: u64, tenant: u32, files: &FileList) -> std::io::Result<()> {
    let window = gpu.window().ok_or(ErrorKind::OutOfMemory)?;
    let (old, new) = (window.own(), OwnPage::<TenantPage>::open(files[0].as_fd())?);
    let carried = [
        (&old.launches, &new.launches),
        (&old.graph_launches, &new.graph_launches),
        (&old.graph_kernels, &new.graph_kernels),
        (&old.syncs, &new.syncs),
        (&old.charged_ns, &new.charged_ns),
        (&old.waited_ns, &new.waited_ns),
        (&old.waits, &new.waits),
        (&old.bursts, &new.bursts),
        (&old.burst_ns_total, &new.burst_ns_total),
        (&old.burst_wait_ns_total, &new.burst_wait_ns_total),
        (&old.burst_work_ns_total, &new.burst_work_ns_total),
        (&old.last_burst_ns, &new.last_burst_ns),
        (&old.preemptions, &new.preemptions),
        (&old.peak_bytes, &new.peak_bytes),
        (&old.refused, &new.refused),
        (&old.busy_until_ns, &new.busy_until_ns),
        (&old.burst_since_ns, &new.burst_since_ns),
    ];
    new.occupy(std::process::id(), slot, generation, tenant);
    for (from, to) in carried {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for (word, bits) in new.hooks.iter().zip(resolve::handed_out()) {
        word.store(bits, Ordering::Relaxed);
    }
    new.used_bytes.store(gpu.used(), Ordering::SeqCst);
    channels::show_in(&new);
    new.preempted.store(old.preempted.load(Ordering::Relaxed), Ordering::Relaxed);
    let slots: Vec<_> = files[3..].iter().map(AsFd::as_fd).collect();
    window.fill(files[0].as_fd(), files[1].as_fd(), files[2].as_fd(), &slots)?;
    notes::publish_all(window);
    if let Some(control) = window.control().read() {
        window.own().class.store(control.class as u32, Ordering::Relaxed);
        window.own().priority.store(control.priority, Ordering::Relaxed);
    }
    gpu.link.generation.store(generation, Ordering::Relaxed);
    gpu.link.state.store(ATTACHED, Ordering::Release);
    gpu.show();
    Ok(())
}

fn retry_ns(link: &Link) -> u64 {
    if link.attached() { AGAIN_NS } else { RETRY_NS }
}

fn settle(gpu: &Gpu, wire: &mut Wire, result: Result<(), Trouble>, first: bool) {
    let link = &gpu.link;
    let next = |nanoseconds| link.next_try_ns.store(now_ns() + nanoseconds, Ordering::Relaxed);
    match result {
        Ok(()) => {
            wire.asked_ns = None;
            // From here on nothing waits for the daemon.
            if let Some(connection) = &wire.connection {
                let _ = connection.set_timeout(Duration::ZERO);
            }
            return;
        }
        Err(Trouble::Waiting) if !first => return next(ANSWER_NS),
        Err(Trouble::Waiting | Trouble::Absent) => next(retry_ns(link)),
        Err(Trouble::Nonsense) => next(ANSWER_MAX_NS),
        // Under pages of an earlier daemon, memory stays limited, and a later daemon may say yes.
        Err(Trouble::Refused) if link.attached() => next(REFUSED_NS),
        Err(Trouble::Refused) => link.state.store(REFUSED, Ordering::Release),
    }
    wire.connection = None;
    wire.asked_ns = None;
    if first && link.state.load(Ordering::Relaxed) == ABSENT {
        let socket = settings().socket.display();
        warn_once(&format!("no daemon answers at {socket}; nothing is limited until one does"));
    }
}
