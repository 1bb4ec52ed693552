//! Launches that are counted and not looked at: most of those of a latency tenant that has a GPU to itself.
//!
//! To look at a launch takes some hundred nanoseconds in a program that does much between two of them, and says nothing new
//! where kernels are known and nobody else is there. So once enough bursts were looked at in which nothing was new, one
//! of 32 is; of the others only the first launch and the end are.
//!
//! Invariants:
//! 1. It begins with the first launch of a burst, which was looked at: whether the daemon lives and what it says is seen
//!    in every burst. It ends with the burst; when somebody else comes; when there is a limit; when something else than a
//!    kernel, or one to another stream, is launched; after 100 ms by the daemon's clock; and after [`MOST`] launches,
//!    also where that clock stands still.
//! 2. Nothing is learned from a burst of which a part was not looked at, but how long it took.
//! 3. Each launch is counted, also one that the driver refuses, and charged what one took on average in bursts that were
//!    looked at. What a process launched last, and did not wait for before it was killed, is not told of.
//! 4. It begins only where the process uses one GPU and nothing is captured. Whoever changes that, or ends a burst,
//!    ends it, and keeps others from beginning it by what they saw before.

#![deny(unsafe_code)]

use crate::capture;
use crate::gpu::{self, Gpu};
use crate::table::HOOKS;
use crate::types::{LaunchConfig, Out, Stream};
use shm::{NO_LIMIT, TenantPage};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Bursts that are looked at before any is not.
const LEARNED: u32 = 32;
/// Launches of one burst that are not looked at.
const MOST: u64 = 4096;
/// The daemon writes the time every two milliseconds; by that they are looked at again after so long.
const LONGEST_NS: u64 = 100_000_000;
/// One in so many bursts is looked at.
const EVERY: u32 = 32;
/// Multiples of this, of which the upper bits say which bursts are looked at: never in step with what a program repeats.
const GOLDEN: u32 = 0x9E37_79B1;

/// In [`Hooks::quiet`](crate::table::Hooks): the number of the GPU, + 1, below how often it was ended.
const GPU_BITS: u32 = 8;
const GPU_MASK: u64 = (1 << GPU_BITS) - 1;

/// How many there were.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Unseen {
    launches: AtomicU64,
    /// Those that are in the process's page.
    told: AtomicU64,
}

/// What is known from bursts that were looked at, and which those are.
#[derive(Debug)]
pub(crate) struct Looks {
    looked: AtomicU32,
    /// Bursts that began since enough were looked at.
    begun: AtomicU32,
    /// What a launch is charged on average; 0 until it is known.
    launch_ns: AtomicU64,
    /// Launches before the burst that is going on.
    before: AtomicU64,
    /// A part of it was not looked at.
    partly: AtomicBool,
    /// There was a graph in it, which is not what a kernel takes.
    graph: AtomicBool,
}

impl Unseen {
    pub(crate) const fn new() -> Unseen {
        Unseen { launches: AtomicU64::new(0), told: AtomicU64::new(0) }
    }

    /// One more, unless there were too many since they were last told of.
    #[inline(always)]
    fn pass(&self) -> bool {
        let few = self.launches.load(Relaxed).wrapping_sub(self.told.load(Relaxed)) < MOST;
        if few {
            self.launches.fetch_add(1, Relaxed);
        }
        few
    }

    /// Whether there were any that the process's page does not know of.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.launches() != self.told.load(Relaxed)
    }

    /// All there ever were.
    #[inline(always)]
    pub(crate) fn launches(&self) -> u64 {
        self.launches.load(Relaxed)
    }

    /// They are another's.
    pub(crate) fn forget(&self) {
        self.told.fetch_max(self.launches(), Relaxed);
    }

    /// Writes into the process's page what is not there yet.
    pub(crate) fn tell(&self, page: &TenantPage, looks: &Looks) {
        let launches = self.launches();
        let more = launches.saturating_sub(self.told.fetch_max(launches, Relaxed));
        if more > 0 {
            page.launches.fetch_add(more, Relaxed);
            page.charged_ns.fetch_add(more.saturating_mul(looks.launch_ns.load(Relaxed)), Relaxed);
        }
    }
}

impl Looks {
    pub(crate) const fn new() -> Looks {
        Looks {
            looked: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            launch_ns: AtomicU64::new(0),
            before: AtomicU64::new(0),
            partly: AtomicBool::new(false),
            graph: AtomicBool::new(false),
        }
    }

    /// Something was launched that is not known.
    pub(crate) fn saw_new(&self) {
        self.looked.store(0, Relaxed);
    }

    /// A graph was launched.
    pub(crate) fn saw_graph(&self) {
        self.graph.store(true, Relaxed);
    }

    /// All of the burst is looked at after all.
    pub(crate) fn look_at_all(&self) {
        self.partly.store(false, Relaxed);
    }

    /// A burst begins after so many launches.
    pub(crate) fn begin(&self, launches: u64) {
        self.before.store(launches, Relaxed);
    }

    /// A burst ends, after so many launches, of which its own were charged so much. Whether all of it was looked at.
    pub(crate) fn end(&self, launches: u64, charged_ns: u64) -> bool {
        let graph = self.graph.swap(false, Relaxed);
        if self.partly.swap(false, Relaxed) {
            return false;
        }
        if !graph {
            let one = charged_ns / launches.saturating_sub(self.before.load(Relaxed)).max(1);
            let known = self.launch_ns.load(Relaxed);
            self.launch_ns.store(if known == 0 { one } else { known - known / 8 + one / 8 }, Relaxed);
        }
        self.looked.store(self.looked.load(Relaxed).saturating_add(1), Relaxed);
        true
    }

    pub(crate) fn is_partly(&self) -> bool {
        self.partly.load(Relaxed)
    }

    /// Whether the rest of the burst that begins need not be looked at. Then it is not.
    fn rest(&self) -> bool {
        if self.looked.load(Relaxed) < LEARNED || self.launch_ns.load(Relaxed) == 0 {
            return false;
        }
        let begun = self.begun.fetch_add(1, Relaxed).wrapping_add(1);
        let rest = begun.wrapping_mul(GOLDEN) >= u32::MAX / EVERY;
        self.partly.store(rest, Relaxed);
        rest
    }
}

/// Whether a kernel may go to the driver as it is, on this stream. It is counted then.
#[inline(always)]
pub(crate) fn on<const PER_THREAD: bool>(stream: Stream) -> bool {
    let number = HOOKS.quiet.load(Relaxed) & GPU_MASK;
    number != 0 && gpu::at(number as usize - 1).is_some_and(|gpu| passes(gpu, stream.real::<PER_THREAD>()))
}

/// The same, on the stream that is in its configuration.
#[inline(always)]
pub(crate) fn as_said<const PER_THREAD: bool>(config: Out<LaunchConfig>) -> bool {
    is_on(state()) && config.get().is_some_and(|config| on::<PER_THREAD>(config.stream))
}

#[inline(always)]
fn passes(gpu: &Gpu, stream: Stream) -> bool {
    gpu.window().is_some_and(|window| {
        let control = window.control();
        control.word(|page| &page.others) == 0
            && control.word(|page| &page.allowed_ns) == NO_LIMIT
            && control.word(|page| &page.heartbeat_ns) < HOOKS.until_ns.load(Relaxed)
    }) && gpu.clock.goes_on_with(stream.0 as u64)
        && gpu.clock.unseen.pass()
}

/// Whether launches are looked at, to be given to [`begin`].
#[inline(always)]
pub(crate) fn state() -> u64 {
    HOOKS.quiet.load(SeqCst)
}

/// Whether they are not.
#[inline(always)]
pub(crate) fn is_on(state: u64) -> bool {
    state & GPU_MASK != 0
}

/// A burst began, and nobody else is on the GPU. The rest of it is not looked at, unless it is its turn, or that was ended
/// since `before`.
#[inline(never)]
pub(crate) fn begin(gpu: &Gpu, before: u64, heartbeat_ns: u64) {
    if capture::active() || !gpu::is_only(gpu) || !gpu.clock.looks.rest() {
        return;
    }
    HOOKS.until_ns.store(heartbeat_ns.saturating_add(LONGEST_NS), Relaxed);
    if HOOKS.quiet.compare_exchange(before, before | (gpu.index as u64 + 1), SeqCst, SeqCst).is_err() {
        gpu.clock.looks.look_at_all();
    }
}

/// From the next launch on they are looked at. The state then.
pub(crate) fn end() -> u64 {
    let ended = |state: u64| (state & !GPU_MASK).wrapping_add(GPU_MASK + 1);
    let before = HOOKS.quiet.fetch_update(SeqCst, SeqCst, |state| Some(ended(state)));
    ended(before.unwrap_or_else(|state| state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(looks: &Looks, launches: &mut u64, size: u64, launch_ns: u64) -> bool {
        looks.begin(*launches);
        looks.rest();
        *launches += size;
        looks.end(*launches, size * launch_ns)
    }

    #[test]
    fn first_all_bursts_are_looked_at_and_then_few() {
        let (looks, mut launches) = (Looks::new(), 0);
        let looked: Vec<bool> = (0..3232).map(|_| burst(&looks, &mut launches, 10, 7)).collect();
        assert!(looked[..32].iter().all(|looked| *looked));
        let later: Vec<usize> = (32..3232).filter(|burst| looked[*burst]).collect();
        assert!((95..=105).contains(&later.len()), "{}", later.len());
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] <= 55), "{later:?}");
        for period in 2..9 {
            let phases: std::collections::BTreeSet<usize> = later.iter().map(|burst| burst % period).collect();
            assert_eq!(phases.len(), period, "in step with a program that repeats every {period} bursts");
        }
    }

    #[test]
    fn what_was_not_looked_at_is_charged_as_the_rest_was() {
        let (looks, mut launches) = (Looks::new(), 0);
        for _ in 0..400 {
            burst(&looks, &mut launches, 20, 5_000);
        }
        looks.begin(launches);
        looks.saw_graph();
        assert!(looks.end(launches + 2, 900_000), "a graph is no kernel");
        let window = shm::PageWindow::reserve().unwrap();
        let (unseen, page) = (Unseen::new(), window.own());
        assert_eq!((0..100).filter(|_| unseen.pass()).count(), 100);
        unseen.tell(page, &looks);
        unseen.tell(page, &looks);
        assert_eq!(page.launches.load(Relaxed), 100);
        let charged = page.charged_ns.load(Relaxed);
        assert!((499_000..=500_000).contains(&charged), "{charged}");
    }

    #[test]
    fn what_is_new_is_looked_at_for_as_long_as_what_was_first() {
        let (looks, mut launches) = (Looks::new(), 0);
        let mut looked_at = |bursts| (0..bursts).filter(|_| burst(&looks, &mut launches, 10, 7)).count();
        assert!(looked_at(300) < 50);
        looks.saw_new();
        assert_eq!(looked_at(32), 32);
        assert!(looked_at(64) < 8);
    }

    #[test]
    fn a_burst_without_end_is_looked_at_again() {
        let (unseen, window) = (Unseen::new(), shm::PageWindow::reserve().unwrap());
        assert_eq!((0..2 * MOST).filter(|_| unseen.pass()).count() as u64, MOST);
        unseen.tell(window.own(), &Looks::new());
        assert!(unseen.pass());
    }
}
