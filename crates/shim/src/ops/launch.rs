//! Launches: each passes the gate, moves the virtual clock and is counted.
//!
//! This is the hot path. A latency tenant's launch looks at a handful of words, of which the process itself or nobody
//! writes most, and makes no system call. Programs do much between two launches, so neither these words nor the code are
//! in a cache when it comes: fewer lines of either count for more than fewer instructions, and what few launches need is
//! kept out of the way.
//!
//! Whether a launch goes or waits is [`share_core::admit_launch`]'s to say:
//!
//! | what fails | what a launch does |
//! |---|---|
//! | no daemon was ever found | goes; nothing is limited, which is said once |
//! | the daemon speaks another version | goes; said once |
//! | the daemon is dead (its heartbeat is older than 100 ms) | latency and standard: goes. Best-effort: goes, with half the in-flight budget; busy periods of others still hold it. No quota. Memory limits hold on, from the page |
//! | a new daemon is there | its predecessor's heartbeat stops: from 10 ms on, launches look every 10 ms whether it hung up, connect without waiting, and obey the new one from then on; those of who is alone, from the next busy period on |
//! | the control page is rubbish | as without a daemon |
//! | a more important tenant's page is rubbish, or the tenant is killed or stopped in a busy period | it counts until 2 ms after its predicted end, or 200 ms after it began to wait for the GPU, and never holds one launch for longer than 20 ms; a daemon clears its page before that |
//! | the daemon closes the gate and dies | the gate is open 100 ms later |
//! | nobody wakes a sleeper | it asks again after 1 ms |
//! | the estimate of a kernel is wrong | too much or too little is let through until a sync or a sample corrects it |
//! | our own code panics | goes |
//!
//! Isolation wins over availability nowhere but in memory: an allocation over the limit is refused, also without daemon.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::capture;
use crate::gpu::Gpu;
use crate::hot::HOT;
use crate::identity::{KERNELS, graph_key, kernel_key};
use crate::rivals::rivals;
use crate::types::{CuResult, Function, GraphExec, LaunchConfig, Opaque, Out, SUCCESS, Stream};
use crate::{attach, current, fast_path, notes, preempt, rarely, real, sample, slice};
use share_core::{Decision, Launch, Patience, admit_launch, daemon_is_late, may_cap, sm_cap};
use shm::{Admission, Class, NO_LIMIT, PageWindow, now_ns};
use std::ffi::c_uint;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// For how long the claims of others are believed.
const PATIENCE: &Patience = &Patience::USUAL;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;
/// Linux wakes sleepers up to this much late: its timer slack of 50 us, and the wake-up.
const SLACK_NS: u64 = 60_000;

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
#[inline(always)]
pub(crate) fn kernel<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    f: Function,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    parameters: Opaque,
    extra: Opaque,
) -> CuResult {
    let key = kernel_key(f.0, [gx, gy, gz], [bx, by, bz], shared);
    let identity = move || notes::of_kernel(f.0, [gx, gy, gz], [bx, by, bz], shared);
    let on = move |stream| real::cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    pass::<false, true>(driver, key, identity, stream.real::<PER_THREAD>(), on)
}

#[inline(always)]
pub(crate) fn kernel_ex<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    config: Out<LaunchConfig>,
    f: Function,
    parameters: Opaque,
    extra: Opaque,
) -> CuResult {
    let Some(config) = config.get() else { return driver.call() };
    let key = kernel_key(f.0, config.grid, config.block, config.shared);
    let identity = move || notes::of_kernel(f.0, config.grid, config.block, config.shared);
    let on = move |stream| real::cuLaunchKernelEx(&LaunchConfig { stream, ..config }, f, parameters, extra);
    pass::<false, true>(driver, key, identity, config.stream.real::<PER_THREAD>(), on)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub(crate) fn cooperative<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    f: Function,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    _: Opaque,
) -> CuResult {
    let key = kernel_key(f.0, [gx, gy, gz], [bx, by, bz], shared);
    let identity = move || notes::of_kernel(f.0, [gx, gy, gz], [bx, by, bz], shared);
    pass::<false, false>(driver, key, identity, stream.real::<PER_THREAD>(), NOWHERE_ELSE)
}

pub(crate) fn graph<const PER_THREAD: bool>(driver: &Driver<'_>, graph: GraphExec, stream: Stream) -> CuResult {
    // It was introduced when it was made, or nobody saw that.
    pass::<true, false>(driver, graph_key(graph.0), || None, stream.real::<PER_THREAD>(), NOWHERE_ELSE)
}

/// For what needs all blocks at once, or was captured: it runs where the program put it.
const NOWHERE_ELSE: fn(Stream) -> CuResult = |_| NOT_SUPPORTED;

/// `identity` is what it is known by in every run; `on` launches the same on another stream, where it may be on another.
#[inline(always)]
fn pass<const GRAPH: bool, const MOVABLE: bool>(
    driver: &Driver<'_>,
    key: u64,
    identity: impl FnOnce() -> Option<u64>,
    stream: Stream,
    on: impl Fn(Stream) -> CuResult,
) -> CuResult {
    if capture::active() {
        rarely();
        if capture::covers(stream) {
            return driver.call();
        }
    }
    let Some(gpu) = current::of_stream(stream) else { return driver.call() };
    let Some(window) = gpu.window() else { return driver.call() };
    let now = HOT.ticks.now_ns();
    let mut state = fast_path::state();
    if fast_path::is_on(state) || gpu.clock.untracked.any() {
        rarely();
        state = fast_path::end();
        gpu.clock.resume_tracking(window.own(), now);
    }
    let number = KERNELS.find_after(gpu.clock.last(), key);
    let record = KERNELS.record(number);
    if record.is_new() {
        rarely();
        gpu.clock.tracking.new_kernel();
        notes::introduce(window, record, identity());
    }
    let launch = Passing { gpu, window, number, stream, now_ns: now };
    if gpu.link.attached() {
        let control = window.control();
        let late = daemon_is_late(control.word(|page| &page.heartbeat_ns), now, PATIENCE);
        let moved = control.word(|page| &page.generation) != gpu.link.generation();
        let revised = control.half(|page| &page.revision) != gpu.revision.load(Relaxed);
        if late || moved || revised {
            attend(gpu, now, late || moved);
        }
        let class = Class::from_word(control.half(|page| &page.class));
        if class != Class::Latency || control.word(|page| &page.allowed_ns) != NO_LIMIT {
            rarely();
            return launch.limited::<GRAPH, MOVABLE>(driver, class, on);
        }
        let result = launch.count::<GRAPH>(|| driver.call());
        if MOVABLE && launch.began_burst() && !(late || moved) && control.word(|page| &page.others) == 0 {
            fast_path::begin(gpu, state, control.word(|page| &page.heartbeat_ns));
        }
        return result;
    }
    rarely();
    if gpu.link.due(now, false) {
        attach::again(gpu, now);
    }
    launch.count::<GRAPH>(|| driver.call())
}

/// The daemon is to be looked for, or has something to say.
#[cold]
fn attend(gpu: &Gpu, now: u64, in_doubt: bool) {
    if in_doubt && gpu.link.due(now, true) {
        attach::again(gpu, now);
    }
    slice::attend(gpu);
}

/// A launch on its way.
struct Passing<'a> {
    gpu: &'a Gpu,
    window: &'a PageWindow,
    number: u32,
    stream: Stream,
    now_ns: u64,
}

impl Passing<'_> {
    /// Whether it was the first of a burst.
    #[inline(always)]
    fn began_burst(&self) -> bool {
        self.window.own().burst_since_ns.load(Relaxed) == self.now_ns
    }

    /// Moves the clock, launches, and counts it.
    #[inline(always)]
    fn count<const GRAPH: bool>(&self, launch: impl FnOnce() -> CuResult) -> CuResult {
        let page = self.window.own();
        let charged = self.gpu.clock.launch(page, &KERNELS, self.number, self.stream.0 as u64, self.now_ns);
        let result = launch();
        if result != SUCCESS {
            rarely();
            page.charged_ns.fetch_sub(charged, Relaxed);
        } else if GRAPH {
            self.gpu.clock.tracking.new_graph();
            page.graph_launches.fetch_add(1, Relaxed);
            page.graph_kernels.fetch_add(KERNELS.record(self.number).kernels(), Relaxed);
        } else {
            page.launches.fetch_add(1, Relaxed);
        }
        result
    }

    /// The same for whoever has a limit, or is of another class than latency: kept apart from the few instructions that
    /// latency tenants need.
    #[inline(never)]
    fn limited<const GRAPH: bool, const MOVABLE: bool>(
        mut self,
        driver: &Driver<'_>,
        class: Class,
        on: impl Fn(Stream) -> CuResult,
    ) -> CuResult {
        let Passing { gpu, window, number, stream, .. } = self;
        let (control, record) = (window.control(), KERNELS.record(number));
        self.now_ns = hold(gpu, window, now_ns(), record.duration_ns());
        let latency = class == Class::Latency;
        let mut measured = !latency && record.due();
        let mut cap = None;
        if MOVABLE && !latency && may_cap(record.duration_ns()) {
            let (permille, always) =
                (control.half(|page| &page.space_permille), control.half(|page| &page.space_always) != 0);
            let busy = || rivals(window, control.word(|page| &page.above)).any(|rival| rival.since_ns != 0);
            cap = sm_cap(record.duration_ns(), permille, always, busy);
        }
        if class == Class::BestEffort && !measured {
            let budget = control.word(|page| &page.budget_ns);
            measured = gpu.samples.due(window.own().charged_ns.load(Relaxed), budget);
        }
        let idle = measured && window.own().busy_until_ns.load(Relaxed) <= self.now_ns;
        let call = || match cap {
            Some(cap) => driver
                .instead(|| gpu.sm_cap.launch((gpu.index, gpu.primary.load(Relaxed)), window.own(), cap, stream, &on)),
            None => driver.call(),
        };
        self.count::<GRAPH>(|| if measured { sample::launch(gpu, number, stream, idle, call) } else { call() })
    }
}

/// Waits until the gate lets the launch through. Returns the time it is then.
#[inline(never)]
fn hold(gpu: &Gpu, window: &PageWindow, began_ns: u64, duration_ns: u64) -> u64 {
    let page = window.own();
    let mut now = began_ns;
    let mut waiting = false;
    let mut behind_ns = None;
    // A control page that is none limits nothing.
    while let Some(control) = window.control().read() {
        let launch = Launch {
            now_ns: now,
            duration_ns,
            busy_until_ns: page.busy_until_ns.load(Relaxed),
            charged_ns: page.charged_ns.load(Relaxed),
            waited_ns: now - began_ns,
        };
        if control.admission == Admission::Exclusive && control.class == Class::BestEffort && !preempt::runs() {
            preempt::begin();
        }
        let mut decision = admit_launch(&launch, &control.limits(), rivals(window, control.above), PATIENCE);
        let behind_late = || gpu.samples.behind_late(now, launch.charged_ns, control.budget_ns);
        if decision == Decision::Admit && control.class == Class::BestEffort && behind_late().is_some() {
            sample::collect(gpu);
            let behind = behind_late();
            if behind.is_some() && launch.waited_ns < PATIENCE.yield_ns && !capture::active() {
                behind_ns = behind;
                decision = Decision::Wait { at_most_ns: PATIENCE.recheck_busy_ns };
            }
        }
        let Decision::Wait { at_most_ns } = decision else { break };
        if !waiting {
            waiting = true;
            page.waits.fetch_add(1, Relaxed);
            page.waiting_since_ns.store(began_ns, Relaxed);
        }
        if control.revision != gpu.revision.load(Relaxed) {
            slice::apply(gpu);
        }
        if at_most_ns > SLACK_NS {
            window.control().wait(control.gate, Duration::from_nanos(at_most_ns - SLACK_NS));
        } else {
            // Too short to sleep.
            std::thread::yield_now();
        }
        now = now_ns();
        let stale = daemon_is_late(control.heartbeat_ns, now, PATIENCE) || attach::moved(gpu);
        if stale && gpu.link.due(now, true) {
            attach::again(gpu, now);
        }
    }
    if let Some(behind) = behind_ns {
        // The work behind what was late is as late.
        page.busy_until_ns.fetch_max(now.saturating_add(behind), Relaxed);
    }
    if waiting {
        page.waiting_since_ns.store(0, Relaxed);
        page.waited_ns.fetch_add(now - began_ns, Relaxed);
    }
    now
}
