//! Syncs: the program waits for the GPU, or asks whether it is done, and so we learn when it was.
//!
//! A sync is the end of a burst when it covers everything that was launched: a whole context, the only stream in use, or
//! an event behind the last launch. A copy to memory that is not pinned is a sync as well, whatever it is called: it
//! returns when it is done.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::capture;
use crate::clock::{WAITED_NS, WHOLE};
use crate::gpu::{self, Gpu};
use crate::identity::KERNELS;
use crate::types::{Context, CuResult, DevicePointer, Event, Opaque, SUCCESS, Stream};
use crate::{current, fast_path, notes, real, sample};
use shm::{Class, now_ns};
use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Events of which is known what was launched before them. Another event in the same place takes it.
const EVENTS: usize = 256;

struct Recorded {
    event: AtomicUsize,
    /// Launches before it, and the GPU they were on.
    sequence: AtomicU64,
    gpu: AtomicUsize,
    stream: AtomicU64,
}

static RECORDED: [Recorded; EVENTS] = [const {
    Recorded {
        event: AtomicUsize::new(0),
        sequence: AtomicU64::new(0),
        gpu: AtomicUsize::new(0),
        stream: AtomicU64::new(0),
    }
}; EVENTS];

fn recorded(event: Event) -> &'static Recorded {
    // Events are addresses of some alignment.
    &RECORDED[(event.0 >> 4 ^ event.0 >> 12) % EVENTS]
}

pub(crate) fn record<const PER_THREAD: bool>(driver: &Driver<'_>, event: Event, stream: Stream) -> CuResult {
    let result = driver.call();
    let stream = stream.real::<PER_THREAD>();
    let captured = capture::active() && capture::covers(stream);
    if result == SUCCESS
        && !captured
        && let Some(gpu) = current::of_stream(stream)
    {
        let place = recorded(event);
        place.sequence.store(gpu.clock.sequence(), Relaxed);
        place.gpu.store(gpu.index, Relaxed);
        place.stream.store(stream.0 as u64, Relaxed);
        place.event.store(event.0, Relaxed);
    }
    result
}

pub(crate) fn record_flags<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    event: Event,
    stream: Stream,
    _: c_uint,
) -> CuResult {
    record::<PER_THREAD>(driver, event, stream)
}

pub(crate) fn stream<const PER_THREAD: bool>(driver: &Driver<'_>, stream: Stream) -> CuResult {
    let stream = stream.real::<PER_THREAD>();
    let of_stream = || current::of_stream(stream);
    let result = wait(driver, of_stream, |gpu| gpu.clock.is_covered_by(stream.0 as u64, now_ns()), |_| true);
    stream_done(result, stream)
}

/// What is known when a stream turned out to have nothing left to do.
fn stream_done(result: CuResult, stream: Stream) -> CuResult {
    if result == SUCCESS
        && let Some(gpu) = current::of_stream(stream)
    {
        gpu.clock.stream_done(stream.0 as u64, u64::MAX);
    }
    result
}

pub(crate) fn stream_query<const PER_THREAD: bool>(driver: &Driver<'_>, stream: Stream) -> CuResult {
    let stream = stream.real::<PER_THREAD>();
    let result = query(driver, || current::of_stream(stream), |gpu| gpu.clock.is_covered_by(stream.0 as u64, now_ns()));
    stream_done(result, stream)
}

/// A stream waits for an event: whoever waits for that stream waits for what the event is behind.
pub(crate) fn stream_waits<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    stream: Stream,
    event: Event,
    _: c_uint,
) -> CuResult {
    let result = driver.call();
    let stream = stream.real::<PER_THREAD>();
    if result == SUCCESS
        && !(capture::active() && capture::covers(stream))
        && let Some(gpu) = of_event(event)
        // Whoever waits for a stream of another GPU waits for this one, too, but that is seen there.
        && current::of_stream(stream).is_some_and(|own| own.index == gpu.index)
    {
        let place = recorded(event);
        gpu.clock.join(stream.0 as u64, place.stream.load(Relaxed), place.sequence.load(Relaxed));
    }
    result
}

pub(crate) fn event(driver: &Driver<'_>, event: Event) -> CuResult {
    let result = wait(driver, || of_event(event), |gpu| behind_all(gpu, event), |_| true);
    event_done(result, event)
}

fn event_done(result: CuResult, event: Event) -> CuResult {
    if result == SUCCESS
        && let Some(gpu) = of_event(event)
    {
        let place = recorded(event);
        gpu.clock.stream_done(place.stream.load(Relaxed), place.sequence.load(Relaxed));
    }
    result
}

pub(crate) fn event_query(driver: &Driver<'_>, event: Event) -> CuResult {
    let result = query(driver, || of_event(event), |gpu| behind_all(gpu, event));
    event_done(result, event)
}

pub(crate) fn context(driver: &Driver<'_>) -> CuResult {
    wait(driver, current::current, |_| true, |_| true)
}

/// Another context than the current one may be meant; which GPU that is on is not known where there are several.
pub(crate) fn context_2(driver: &Driver<'_>, _: Context) -> CuResult {
    let only = || current::current().filter(|_| gpu::in_use().count() == 1);
    wait(driver, only, |_| true, |_| true)
}

pub(crate) fn copy(driver: &Driver<'_>, _: DevicePointer, _: DevicePointer, _: usize) -> CuResult {
    // Between two places on the GPU it waits for nothing.
    driver.call()
}

pub(crate) fn copy_in(driver: &Driver<'_>, _: DevicePointer, _: Opaque, _: usize) -> CuResult {
    // It may return before the GPU is done with what came before, where the copy is small.
    driver.call()
}

/// What is copied out was computed, by everything that was launched to the default stream, at least.
pub(crate) fn copy_out(driver: &Driver<'_>, _: Opaque, _: DevicePointer, _: usize) -> CuResult {
    let all = |gpu: &Gpu| [0, 2].iter().any(|stream| gpu.clock.is_covered_by(*stream, now_ns()));
    wait(driver, current::current, all, |_| true)
}

pub(crate) fn copy_async<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    _: DevicePointer,
    _: DevicePointer,
    _: usize,
    stream: Stream,
) -> CuResult {
    copy_on(driver, stream.real::<PER_THREAD>())
}

pub(crate) fn copy_out_async<const PER_THREAD: bool>(
    driver: &Driver<'_>,
    _: Opaque,
    _: DevicePointer,
    _: usize,
    stream: Stream,
) -> CuResult {
    copy_on(driver, stream.real::<PER_THREAD>())
}

/// To memory that is not pinned, a copy waits for what came before it in its stream; others return at once. Which it was
/// is asked when it took a while.
fn copy_on(driver: &Driver<'_>, stream: Stream) -> CuResult {
    if capture::active() && capture::covers(stream) {
        return driver.call();
    }
    let waited = |took_ns: u64| {
        took_ns > WAITED_NS && capture::ask().is_some_and(|_asking| real::cuStreamQuery(stream) == SUCCESS)
    };
    wait(driver, || current::of_stream(stream), |gpu| gpu.clock.is_covered_by(stream.0 as u64, now_ns()), waited)
}

fn of_event(event: Event) -> Option<&'static Gpu> {
    let place = recorded(event);
    (place.event.load(Relaxed) == event.0).then(|| gpu::at(place.gpu.load(Relaxed))).flatten()
}

fn behind_all(gpu: &Gpu, event: Event) -> bool {
    let place = recorded(event);
    place.sequence.load(Relaxed) == gpu.clock.sequence()
        && gpu.clock.is_covered_by(place.stream.load(Relaxed), now_ns())
}

/// The program waits: for all that was launched or a part of it, if it did wait, which is told by how long it took.
fn wait(
    driver: &Driver<'_>,
    which: impl FnOnce() -> Option<&'static Gpu>,
    all: impl FnOnce(&Gpu) -> bool,
    waited: impl FnOnce(u64) -> bool,
) -> CuResult {
    let Some(gpu) = which() else { return driver.call() };
    let began = now_ns();
    let sequence = gpu.clock.sequence();
    let all = all(gpu);
    let syncing = gpu.window().filter(|_| all).map(|window| &window.own().syncing_since_ns);
    if let Some(since) = syncing {
        since.store(began, Relaxed);
    }
    let result = driver.call();
    if let Some(since) = syncing {
        since.store(0, Relaxed);
    }
    if let Some(window) = gpu.window()
        && result == SUCCESS
        && waited(now_ns() - began)
    {
        window.own().syncs.fetch_add(1, Relaxed);
        // What another thread launched meanwhile is not done.
        if all && gpu.clock.sequence() == sequence {
            done(gpu, began);
        }
        sample::collect(gpu);
        notes::publish_some(&gpu.notes, window);
    }
    result
}

/// The program asks whether work is done.
fn query(
    driver: &Driver<'_>,
    which: impl FnOnce() -> Option<&'static Gpu>,
    all: impl FnOnce(&Gpu) -> bool,
) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = which()
        && gpu.window().is_some_and(|window| window.own().burst_since_ns.load(Relaxed) != 0)
        && all(gpu)
    {
        done(gpu, now_ns());
        sample::collect(gpu);
    }
    result
}

fn done(gpu: &Gpu, began_ns: u64) {
    let Some(window) = gpu.window() else { return };
    let class = Class::from_word(window.control().half(|page| &page.class));
    let now = now_ns();
    fast_path::end();
    // Others measure; what their syncs say is as much about their neighbours as about them.
    let learn = (class == Class::Latency).then(|| ours(gpu, now)).flatten();
    gpu.clock.idle(window.own(), &KERNELS, began_ns, now, learn);
}

/// Which part of the GPU's time was ours, in thousandths: all of it, or what is to be expected of slices. Where kernels
/// run side by side that cannot be told while others have any, and what is learned from is only when nobody has.
fn ours(gpu: &Gpu, now_ns: u64) -> Option<u64> {
    if gpu.was_ours(now_ns) {
        return Some(WHOLE);
    }
    if gpu.is_spatial() {
        return None;
    }
    let slice = gpu.slice_ns();
    Some((WHOLE * slice / slice.saturating_add(gpu.others_slices_ns(now_ns))).min(WHOLE - 1))
}
