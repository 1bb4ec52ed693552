//! The fast path: most launches of a latency tenant that has a GPU to itself are counted and not tracked.
//!
//! To track a launch takes some hundred nanoseconds in a program that does much between two of them, and shows nothing new
//! while its kernels are known and no other tenant is there. So after enough bursts without a new kernel, one burst in 32
//! is tracked; of the others only the first launch and the end are.
//!
//! Invariants:
//! 1. The fast path begins with the first launch of a burst, which was tracked: so every burst shows whether the daemon
//!    lives and what it says. It ends with the burst; when another tenant comes; when there is a limit; when the program
//!    launches something else than a kernel, or to another stream; after [`UNTRACKED_MAX_NS`] by the daemon's clock; and
//!    after a fixed number of launches, even if that clock stands still.
//! 2. From a burst that was not tracked as a whole, only its length is learned.
//! 3. Each launch is counted, also one that the driver rejects, and charged what a launch took on average in tracked
//!    bursts. The last launches of a process that is killed before it waits for them are lost.
//! 4. The fast path begins only while the process uses one GPU and captures nothing. A call that changes that, or ends a
//!    burst, ends it, and keeps others from beginning it by what they saw before.

#![deny(unsafe_code)]

use crate::capture;
use crate::gpu::{self, Gpu};
use crate::table::HOOKS;
use crate::types::{LaunchConfig, Out, Stream};
use share_core::Patience;
use shm::NO_LIMIT;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

/// How long a burst stays untracked, by the time that the daemon writes at each tick: as long as its word holds.
const UNTRACKED_MAX_NS: u64 = Patience::USUAL.heartbeat_ns;
/// In [`Hooks::fast_path`](crate::table::Hooks::fast_path): the number of the GPU, + 1, below how often it was ended.
const GPU_BITS: u32 = 8;
const GPU_MASK: u64 = (1 << GPU_BITS) - 1;

/// Whether a kernel on this stream may go straight to the driver. It is counted then.
#[inline(always)]
pub(crate) fn passes<const PER_THREAD: bool>(stream: Stream) -> bool {
    let number = HOOKS.fast_path.load(Relaxed) & GPU_MASK;
    number != 0 && gpu::at(number as usize - 1).is_some_and(|gpu| counts(gpu, stream.real::<PER_THREAD>()))
}

/// The same, for the stream in the kernel's configuration.
#[inline(always)]
pub(crate) fn passes_config<const PER_THREAD: bool>(config: Out<LaunchConfig>) -> bool {
    is_on(state()) && config.get().is_some_and(|config| passes::<PER_THREAD>(config.stream))
}

#[inline(always)]
fn counts(gpu: &Gpu, stream: Stream) -> bool {
    gpu.window().is_some_and(|window| {
        let control = window.control();
        control.word(|page| &page.others) == 0
            && control.word(|page| &page.allowed_ns) == NO_LIMIT
            && control.word(|page| &page.heartbeat_ns) < HOOKS.until_ns.load(Relaxed)
    }) && gpu.clock.continues_on(stream.0 as u64)
        && gpu.clock.untracked.pass()
}

/// Whether launches are tracked, for [`begin`].
#[inline(always)]
pub(crate) fn state() -> u64 {
    HOOKS.fast_path.load(SeqCst)
}

/// Whether the fast path is on.
#[inline(always)]
pub(crate) fn is_on(state: u64) -> bool {
    state & GPU_MASK != 0
}

/// A burst began, and no other tenant is on the GPU. The rest of it stays untracked, unless this burst is one of those to
/// track, or somebody ended the fast path since `before`.
#[inline(never)]
pub(crate) fn begin(gpu: &Gpu, before: u64, heartbeat_ns: u64) {
    if capture::active() || !gpu::is_only(gpu) || !gpu.clock.tracking.rest() {
        return;
    }
    HOOKS.until_ns.store(heartbeat_ns.saturating_add(UNTRACKED_MAX_NS), Relaxed);
    if HOOKS.fast_path.compare_exchange(before, before | (gpu.index as u64 + 1), SeqCst, SeqCst).is_err() {
        gpu.clock.tracking.track_all();
    }
}

/// Launches are tracked again from the next one on. Returns the new state.
pub(crate) fn end() -> u64 {
    let ended = |state: u64| (state & !GPU_MASK).wrapping_add(GPU_MASK + 1);
    let before = HOOKS.fast_path.fetch_update(SeqCst, SeqCst, |state| Some(ended(state)));
    ended(before.unwrap_or_else(|state| state))
}
