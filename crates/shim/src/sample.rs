//! Durations measured by the GPU itself: a few launches between two events each.
//!
//! Two events cost the launching thread about 10 us, so this is for tenants that are not latency tenants, for the first
//! launches of an identity and then one in 64, and never while anything is captured. Nothing is waited for: events are
//! looked at when the program syncs, or when another launch is measured.
//!
//! For best-effort tenants they also say how far the GPU really is. The virtual clock does not know that others have the
//! GPU; what is measured and late does: it and all that was launched after it are outstanding, and when that is more than
//! may be, the gate waits for it. So at least one launch is measured for every depth of work.

#![deny(unsafe_code)]

use crate::capture;
use crate::gpu::Gpu;
use crate::identity::KERNELS;
use crate::real;
use crate::samples::{Slot, duration};
use crate::types::{CuResult, Event, SUCCESS, Stream};
use std::sync::atomic::Ordering;

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: CuResult = 600;

/// Launches between two events.
#[cold]
pub(crate) fn launch(gpu: &Gpu, number: u32, stream: Stream, idle: bool, call: impl FnOnce() -> CuResult) -> CuResult {
    let (expected, charged) = gpu.window().map_or((0, 0), |window| {
        let page = window.own();
        (page.busy_until_ns.load(Ordering::Relaxed), page.charged_ns.load(Ordering::Relaxed))
    });
    gpu.samples.charged_ns.store(charged, Ordering::Relaxed);
    let duration = KERNELS.record(number).duration_ns();
    collect(gpu);
    let Some(slot) = begin(gpu, stream) else { return call() };
    let began = shm::now_ns();
    let result = call();
    let now = shm::now_ns();
    let lead = if idle { now - began } else { 0 };
    let recorded = result == SUCCESS && {
        let asking = capture::ask();
        asking.is_some() && real::cuEventRecord(Event(slot.end.load(Ordering::Relaxed)), stream) == SUCCESS
    };
    if recorded {
        slot.number.store(number, Ordering::Relaxed);
        slot.lead_ns.store(lead, Ordering::Relaxed);
        slot.expected_ns.store(expected, Ordering::Relaxed);
        slot.charged_before_ns.store(charged.saturating_sub(duration), Ordering::Relaxed);
        slot.charged_ns.store(charged, Ordering::Relaxed);
        slot.others_ns.store(gpu.others_slices_ns(now), Ordering::Relaxed);
        slot.off_ns.store(gpu.preempted_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        gpu.samples.pending.fetch_add(1, Ordering::Relaxed);
        slot.pending.store(true, Ordering::Release);
    } else {
        slot.taken.store(false, Ordering::Release);
    }
    result
}

fn begin(gpu: &Gpu, stream: Stream) -> Option<&Slot> {
    let _asking = capture::ask()?;
    let context = real::current_context()?.0;
    let slot = gpu.samples.slots.iter().find(|slot| {
        let owner = slot.context.load(Ordering::Relaxed);
        (owner == context || owner == 0) && !slot.taken.swap(true, Ordering::Acquire)
    })?;
    let ready = slot.context.load(Ordering::Relaxed) == context || {
        let (mut start, mut end) = (0, 0);
        let made = real::cuEventCreate(&mut start, 0) == SUCCESS && real::cuEventCreate(&mut end, 0) == SUCCESS;
        if made {
            slot.start.store(start, Ordering::Relaxed);
            slot.end.store(end, Ordering::Relaxed);
            slot.context.store(context, Ordering::Relaxed);
        }
        made
    };
    if ready && real::cuEventRecord(Event(slot.start.load(Ordering::Relaxed)), stream) == SUCCESS {
        return Some(slot);
    }
    slot.taken.store(false, Ordering::Release);
    None
}

/// Takes the measurements that are done.
pub(crate) fn collect(gpu: &Gpu) {
    if !gpu.samples.pending() {
        return;
    }
    let Some(_asking) = capture::ask() else { return };
    for slot in &gpu.samples.slots {
        // Whoever takes `pending` away has the slot to himself.
        if !slot.pending.swap(false, Ordering::AcqRel) {
            continue;
        }
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        match real::cuEventQuery(Event(end)) {
            NOT_READY => {
                slot.pending.store(true, Ordering::Release);
                continue;
            }
            SUCCESS => {
                let mut milliseconds = 0.0;
                if real::cuEventElapsedTime(&mut milliseconds, Event(start), Event(end)) == SUCCESS {
                    let elapsed = (f64::from(milliseconds) * 1e6) as u64;
                    let lead = slot.lead_ns.load(Ordering::Relaxed);
                    let off =
                        gpu.preempted_ns.load(Ordering::Relaxed).saturating_sub(slot.off_ns.load(Ordering::Relaxed));
                    // Who is off the GPU for others has no turns between theirs.
                    let others = || slot.others_ns.load(Ordering::Relaxed).max(gpu.others_slices_ns(shm::now_ns()));
                    let others = if off == 0 { others() } else { 0 };
                    let record = KERNELS.record(slot.number.load(Ordering::Relaxed));
                    if let Some((at_least, at_most)) = duration(elapsed, lead, gpu.slice_ns(), others) {
                        // It may have been off for all of that time, or for none of it.
                        let at_least = if off == 0 { at_least } else { at_most.saturating_sub(off) };
                        record.measure_between(at_least, at_most, gpu.slice_ns());
                    }
                }
            }
            _ => slot.context.store(0, Ordering::Relaxed),
        }
        gpu.samples.pending.fetch_sub(1, Ordering::Relaxed);
        slot.taken.store(false, Ordering::Release);
    }
}
