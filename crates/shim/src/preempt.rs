//! Preemption: a best-effort process's work is off the GPU while somebody more important is busy, and comes back.
//!
//! The driver can disable a process's channels and preempt their group: what runs stops in the middle of a kernel, and goes
//! on when they are enabled. On an H200 the calls take 0.35 ms and 0.45 ms, and enabling 0.33 ms
//! (`bench/hardware/doorbell.c`), so it is not done in a launch but by a thread of our own, which polls
//! [`share_core::Preemption`] every [`POLL`]: a lease, whose invariants are there. It is started when the daemon first asks
//! for it, takes no signals of the program's, and ends with the process, whose channels the driver then frees as it does with
//! all others.
//!
//! A group is always preempted after its channels were disabled. Without that it goes on until its time slice ends, and now
//! and then never runs again, whatever is enabled or launched: 34 of 582 times in the same program
//! (`docs/benchmarks/doorbell.json`).
//!
//! | what fails | what becomes of the work |
//! |---|---|
//! | the daemon dies, or stops | enabled when its heartbeat is too old ([`Patience`]) |
//! | the control page is rubbish | enabled |
//! | a more important process dies or stops while it is busy | enabled when its claim is too old ([`Patience`]) |
//! | somebody's busy period never ends | enabled for a moment now and then ([`share_core::Lease`]) |
//! | the driver refuses to disable | enabled, and not asked again |
//! | the driver refuses to preempt the group | disabled in the way that stops everybody for 0.25 ms, and is sure |
//! | the driver refuses to enable | asked again, for as long as the channels are there |
//! | our own code panics | enabled |

use crate::channels::{self, Kind, Object};
use crate::gpu::{self, Gpu};
use crate::rivals::rivals;
use crate::slice;
use share_core::{LEASE, Patience, Preemption, Step, wants_preemption};
use shm::{Admission, SharingMode, now_ns};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two polls while it may have to be fast: four in a lease, so that it is renewed in time.
const POLL: Duration = Duration::from_nanos(LEASE.length_ns / 4);
/// Between two polls otherwise: a busy period of others counts for no less after its predicted end.
const POLL_SLOWLY: Duration = Duration::from_nanos(Patience::USUAL.idle_ns);
/// As precise as that asks for, in nanoseconds.
const TIMER_SLACK: usize = 1_000;
const STACK_BYTES: usize = 128 << 10;

/// `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`.
const DISABLE_CHANNELS: u32 = 0x2080_110b;
/// `NVA06C_CTRL_CMD_PREEMPT`.
const PREEMPT: u32 = 0xa06c_0105;
/// As many as one call takes.
const CHANNELS: usize = 64;
/// A preemption that took long is remembered over about so many.
const LEAVES_OVER: u64 = 64;
/// Where nothing could be asked.
const NOT_ASKED: u32 = u32::MAX;

/// Parameters of [`DISABLE_CHANNELS`].
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

/// Parameters of [`PREEMPT`].
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PreemptGroup {
    wait: u8,
    manual_timeout: u8,
    padding: [u8; 2],
    timeout_us: u32,
}

const _: () = assert!(size_of::<PreemptGroup>() == 8);

static RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread if it does not run.
#[cold]
pub(crate) fn begin() {
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let program_s = block_signals();
    let thread = std::thread::Builder::new().name("weft-preempt".to_owned()).stack_size(STACK_BYTES);
    // Without a thread the gate does what it can; it is tried again with the next launch.
    if thread.spawn(watch).is_err() {
        RUNS.store(false, Ordering::Release);
    }
    // SAFETY: gives this thread back the mask that it had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const program_s, std::ptr::null_mut()) };
}

/// Whether the thread runs.
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
    let mut all: [Own; gpu::GPUS] = Default::default();
    loop {
        let mut pause = POLL_SLOWLY;
        for gpu in gpu::in_use() {
            let own = &mut all[gpu.index];
            let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.poll(gpu)));
            pause = pause.min(next.unwrap_or_else(|_| {
                own.preemption.end();
                POLL_SLOWLY
            }));
        }
        std::thread::sleep(pause);
    }
}

/// This process's channels on one GPU.
#[derive(Default)]
struct Own {
    preemption: Preemption,
    /// Those that are disabled, or may be.
    channels: Vec<(u32, u32)>,
    /// What disabled them, and is to enable them: it may not be found again when the process uses another GPU by then.
    subdevice: Option<&'static Object>,
    /// Until when it is counted that they are; 0 while they are not.
    counted_ns: u64,
}

impl Own {
    /// Reads the pages, and disables or enables channels. Returns when to poll again.
    fn poll(&mut self, gpu: &Gpu) -> Duration {
        let now = now_ns();
        let (mut wanted, mut soon) = (false, false);
        if let Some(window) = gpu.window()
            && let Some(control) = window.control().read()
        {
            let page = window.own();
            let works = page.burst_since_ns.load(Ordering::Relaxed) != 0;
            let refused = page.preempt_capability.load(Ordering::Relaxed) > 1;
            let rivals = rivals(window, control.above);
            let reason = wants_preemption(now, &control.limits(), rivals, &Patience::USUAL);
            wanted = works && !refused && control.mode == SharingMode::Temporal && reason;
            soon = works && control.admission == Admission::Exclusive;
        }
        self.count(gpu, now);
        match self.preemption.poll(now, wanted, &LEASE) {
            // A program that waits for its work launches nothing, and with too short a slice its work never ends.
            Step::Stay if self.preemption.is_enabled() => slice::attend(gpu),
            Step::Stay => {}
            Step::Disable => self.disable(gpu, now),
            Step::Enable => self.enable(gpu),
        }
        if soon || !self.preemption.is_enabled() { POLL } else { POLL_SLOWLY }
    }

    /// What is off the GPU does not go on: what is in flight is done as much later. Counted poll by poll, so that it is so
    /// for what is launched meanwhile as well.
    fn count(&mut self, gpu: &Gpu, now_ns: u64) {
        if self.counted_ns == 0 {
            return;
        }
        let was_off = now_ns.saturating_sub(std::mem::replace(&mut self.counted_ns, now_ns));
        gpu.preempted_ns.fetch_add(was_off, Ordering::Relaxed);
        if let Some(window) = gpu.window() {
            window.own().busy_until_ns.fetch_add(was_off, Ordering::Relaxed);
        }
    }

    fn disable(&mut self, gpu: &Gpu, began_ns: u64) {
        self.channels = channels::of_kernels(gpu).map(|channel| (channel.client(), channel.handle())).collect();
        let client = self.channels.first().map(|(client, _)| *client);
        self.subdevice = client.and_then(|client| channels::subdevice(gpu, client));
        if self.subdevice.is_none() {
            // Nothing is disabled, and nothing to be enabled.
            self.channels.clear();
        }
        let status = preempt_channels(self.subdevice, &self.channels);
        let all = status == 0;
        self.preemption.disabled(all);
        self.counted_ns = if all { began_ns } else { 0 };
        if let Some(window) = gpu.window() {
            let page = window.own();
            page.preempt_capability.store(if all { 1 } else { status.max(2) }, Ordering::Relaxed);
            page.preempted.store(all.into(), Ordering::Relaxed);
            page.preemptions.fetch_add(all.into(), Ordering::Relaxed);
            let longest = page.leaves_ns.load(Ordering::Relaxed);
            let took = now_ns().saturating_sub(began_ns).max(longest - longest / LEAVES_OVER);
            page.leaves_ns.store(if all { took } else { longest }, Ordering::Relaxed);
        }
    }

    fn enable(&mut self, gpu: &Gpu) {
        if switch(self.subdevice, false, &self.channels, true) == 0 {
            self.channels.clear();
        }
        // One that is gone meanwhile must not keep the others off.
        self.channels.retain(|channel| {
            switch(self.subdevice, false, std::slice::from_ref(channel), true) != 0
                && channels::is_there(Kind::Channel, *channel)
        });
        self.preemption.enabled(self.channels.is_empty());
        if self.counted_ns == 0 || !self.preemption.is_enabled() {
            return;
        }
        self.count(gpu, now_ns());
        self.counted_ns = 0;
        if let Some(window) = gpu.window() {
            window.own().preempted.store(0, Ordering::Relaxed);
        }
    }
}

/// Disables channels and preempts what they run. Returns what the driver answered.
fn preempt_channels(subdevice: Option<&Object>, channels: &[(u32, u32)]) -> u32 {
    let status = switch(subdevice, true, channels, true);
    if status != 0 || preempt_groups(channels) == 0 {
        return status;
    }
    switch(subdevice, true, channels, false)
}

/// Preempts the groups of channels. Returns what the driver answered.
fn preempt_groups(channels: &[(u32, u32)]) -> u32 {
    let mut groups: Vec<(u32, u32)> = channels.iter().filter_map(|channel| channels::group_of(*channel)).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.is_empty() {
        return NOT_ASKED;
    }
    let preempt = |group: &(u32, u32)| {
        let object = channels::all(Kind::Group).find(|object| (object.client(), object.handle()) == *group);
        object.map_or(NOT_ASKED, |object| object.control(PREEMPT, &mut PreemptGroup::default()))
    };
    groups.iter().map(preempt).find(|status| *status != 0).unwrap_or(0)
}

/// Disables or enables channels. Returns what the driver answered.
fn switch(subdevice: Option<&Object>, disable: bool, channels: &[(u32, u32)], scheduling_only: bool) -> u32 {
    // Without a channel of this GPU there is none.
    let Some(subdevice) = subdevice else { return NOT_ASKED };
    for part in channels.chunks(CHANNELS) {
        let mut call = Disable {
            disable: disable.into(),
            padding: [0; 3],
            count: part.len() as u32,
            scheduling_only: scheduling_only.into(),
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
