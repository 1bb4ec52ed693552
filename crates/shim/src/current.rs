//! Which GPU a call is about, and what happens when a process uses a GPU for the first time.
//!
//! A GPU is found by its ordinal in this process and known to the daemon by its UUID. Almost every process uses one; as
//! long as that is so, a launch need not ask the driver which one it is on.

#![deny(unsafe_code)]

use crate::gpu::{self, Gpu};
use crate::hot::{HOT, NO_GPU, SEVERAL_GPUS};
use crate::types::{Device, Stream};
use crate::{attach, fast_path, fork, real};
use shm::PageWindow;
use std::sync::atomic::Ordering;

/// Streams up to this are default ones, of whatever context is current.
const DEFAULT_STREAMS: usize = 2;

/// The GPU of the calling thread, if it has one.
#[inline]
pub(crate) fn current() -> Option<&'static Gpu> {
    match HOT.only.load(Ordering::Acquire) {
        NO_GPU | SEVERAL_GPUS => ask(),
        only => gpu::at(only - 1),
    }
}

/// The GPU of a stream: the calling thread's for a default stream, and the stream's own for others, whatever is current.
#[inline]
pub(crate) fn of_stream(stream: Stream) -> Option<&'static Gpu> {
    match HOT.only.load(Ordering::Acquire) {
        NO_GPU => ask(),
        SEVERAL_GPUS => ask_of(stream),
        only => gpu::at(only - 1),
    }
}

#[cold]
fn ask() -> Option<&'static Gpu> {
    of(real::current_device()?)
}

#[cold]
fn ask_of(stream: Stream) -> Option<&'static Gpu> {
    if stream.0 <= DEFAULT_STREAMS {
        return ask();
    }
    // A driver that cannot be asked is older than 12.8.
    real::device_of(stream).map_or_else(ask, of)
}

/// A GPU by its ordinal. The first call asks the daemon for its pages; calls that come meanwhile wait for them too, so that
/// nothing goes uncounted and past the limits.
pub(crate) fn of(device: Device) -> Option<&'static Gpu> {
    let gpu = gpu::at(usize::try_from(device.0).ok()?)?;
    if !gpu.in_use.load(Ordering::Acquire) {
        fork::watch();
        gpu.window.get_or_init(|| PageWindow::reserve().ok());
        attach::first(gpu, device);
        let only = HOT.only.compare_exchange(NO_GPU, gpu.index + 1, Ordering::AcqRel, Ordering::Acquire);
        if only.is_err_and(|only| only != gpu.index + 1) {
            HOT.only.store(SEVERAL_GPUS, Ordering::Release);
            fast_path::end();
        }
        gpu.in_use.store(true, Ordering::Release);
    }
    Some(gpu)
}
