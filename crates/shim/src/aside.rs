//! Taking a best-effort process's work off the GPU while somebody more important is in a burst, and putting it back.
//!
//! The driver can disable a process's channels: what runs goes on until its turn ends, and has none until they are enabled
//! again, in the middle of a kernel or between two. On an H200 that takes 0.33 ms each way
//! (`bench/hardware/keeper.c`), so it is not done in a launch but by a thread of our own, which looks every
//! [`LOOK`] what [`turn`](crate::turn) says. It is started when the daemon first asks for it, takes no signals of the
//! program's, and ends with the process, whose channels the driver then frees as it does with all others.
//!
//! A process that is stopped while its work is off is as good as one that launches nothing. A driver that refuses is not
//! asked again.

use crate::channels::{self, Kind, Object};
use crate::gpu::{self, Gpu};
use crate::ops::launch::rivals;
use crate::turn::Turn;
use shm::{Filling, PageWindow, now_ns};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks while it may have to be fast, and while not.
const LOOK: Duration = Duration::from_micros(50);
const LOOK_SLOWLY: Duration = Duration::from_millis(2);
/// As precise as that asks for, in nanoseconds.
const TIMER_SLACK: usize = 1_000;
const STACK_BYTES: usize = 128 << 10;

/// `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`.
const DISABLE_CHANNELS: u32 = 0x2080_110b;
/// As many as one call takes.
const CHANNELS: usize = 64;

/// Its parameters.
#[repr(C)]
#[derive(Clone, Copy)]
struct Disable {
    disable: u8,
    padding: [u8; 3],
    count: u32,
    /// What runs goes on until its turn ends. Otherwise it is stopped at once, and so is, for 0.25 ms, everybody else.
    scheduling_only: u8,
    rewind: u8,
    more_padding: [u8; 6],
    event: u64,
    clients: [u32; CHANNELS],
    channels: [u32; CHANNELS],
}

const _: () = assert!(size_of::<Disable>() == 536);

static RUNS: AtomicBool = AtomicBool::new(false);
/// Time that work was off, all in all.
static OFF_NS: AtomicU64 = AtomicU64::new(0);

/// Time that the process's work was off so far, as far as it is over.
pub(crate) fn off_ns() -> u64 {
    OFF_NS.load(Ordering::Relaxed)
}

/// Sees to it that there is the thread.
#[cold]
pub(crate) fn begin() {
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let program_s = block_signals();
    let thread = std::thread::Builder::new().name("weft-aside".to_owned()).stack_size(STACK_BYTES);
    // Without a thread the gate does what it can; it is tried again with the next launch.
    if thread.spawn(watch).is_err() {
        RUNS.store(false, Ordering::Release);
    }
    // SAFETY: gives this thread back the mask that it had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const program_s, std::ptr::null_mut()) };
}

/// Whether there is no need to.
#[inline]
pub(crate) fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

/// In a child after `fork`: the thread is the parent's, and so are the channels.
pub(crate) fn forget() {
    RUNS.store(false, Ordering::Release);
}

/// A thread inherits who is blocked. Signals that say what a thread did itself are its own.
fn block_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a whole set.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a whole set.
    unsafe { libc::sigfillset(&raw mut all) };
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSYS, libc::SIGTRAP] {
        // SAFETY: as above, and a signal that there is.
        unsafe { libc::sigdelset(&raw mut all, signal) };
    }
    // SAFETY: two whole sets that outlive the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn watch() {
    // SAFETY: takes numbers, for this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0) };
    let mut turn = Turn::default();
    let mut off = Off::default();
    loop {
        let pause = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&mut turn, &mut off)));
        std::thread::sleep(pause.unwrap_or(LOOK_SLOWLY));
    }
}

/// What is off at the moment.
#[derive(Default)]
struct Off {
    /// 0 while nothing is.
    since_ns: u64,
    channels: Vec<(u32, u32)>,
}

/// Puts the work where it belongs. Returns when to look again.
fn look(turn: &mut Turn, off: &mut Off) -> Duration {
    let mut gpus = gpu::in_use();
    let (Some(gpu), None) = (gpus.next(), gpus.next()) else {
        off.end();
        return LOOK_SLOWLY;
    };
    let Some(window) = gpu.window() else { return LOOK_SLOWLY };
    let control = window.control().read();
    let now = now_ns();
    let told = control.is_some_and(|control| control.filling == Filling::Nothing);
    let works = window.own().burst_since_ns.load(Ordering::Relaxed) != 0;
    let refused = window.own().aside_capability.load(Ordering::Relaxed) > 1;
    let above = control.map_or(0, |control| control.above);
    let wanted = turn.is_off(now, control.as_ref(), rivals(window, above)) && works && !refused;
    match (wanted, off.since_ns != 0) {
        (true, false) => off.begin(window, now),
        (false, true) => off.end(),
        _ => {}
    }
    if told && works { LOOK } else { LOOK_SLOWLY }
}

impl Off {
    fn begin(&mut self, window: &PageWindow, now_ns: u64) {
        let page = window.own();
        self.channels = channels::of_kernels().map(|channel| (channel.client(), channel.handle())).collect();
        let status = switch(true, &self.channels);
        page.aside_capability.store(if status == 0 { 1 } else { status.max(2) }, Ordering::Relaxed);
        if status != 0 {
            // Nobody knows how far it came.
            self.end();
            return;
        }
        self.since_ns = now_ns;
        page.aside.store(1, Ordering::Relaxed);
        page.asides.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&mut self) {
        if switch(false, &self.channels) != 0 {
            // One that is gone meanwhile must not keep the others off.
            for channel in &self.channels {
                switch(false, std::slice::from_ref(channel));
            }
        }
        self.channels.clear();
        if self.since_ns == 0 {
            return;
        }
        let was_off = now_ns().saturating_sub(self.since_ns);
        self.since_ns = 0;
        OFF_NS.fetch_add(was_off, Ordering::Relaxed);
        for window in gpu::in_use().filter_map(Gpu::window) {
            let page = window.own();
            page.aside.store(0, Ordering::Relaxed);
            // What was launched before is done as much later.
            page.busy_until_ns.fetch_add(was_off, Ordering::Relaxed);
        }
    }
}

/// Disables channels, or enables them. What the driver answered.
fn switch(disable: bool, channels: &[(u32, u32)]) -> u32 {
    for part in channels.chunks(CHANNELS) {
        let Some(subdevice) = subdevice_of(part[0].0) else { return u32::MAX };
        let mut call = Disable {
            disable: disable.into(),
            padding: [0; 3],
            count: part.len() as u32,
            scheduling_only: 1,
            rewind: 0,
            more_padding: [0; 6],
            event: 0,
            clients: [0; CHANNELS],
            channels: [0; CHANNELS],
        };
        for (index, (client, channel)) in part.iter().enumerate() {
            (call.clients[index], call.channels[index]) = (*client, *channel);
        }
        let status = subdevice.control(DISABLE_CHANNELS, &mut call);
        if status != 0 {
            return status;
        }
    }
    0
}

fn subdevice_of(client: u32) -> Option<&'static Object> {
    channels::all(Kind::Subdevice).find(|subdevice| subdevice.client() == client)
}
