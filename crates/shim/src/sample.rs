//! Durations measured by the GPU itself: a few launches between two events each.
//!
//! Two events cost the launching thread about 10 us, so this is for tenants that are not latency tenants, for the first
//! launches of an identity and then one in 64, and never while anything is captured. Nothing is waited for: events are
//! looked at when the program syncs, or when another launch is measured.

#![deny(unsafe_code)]

use crate::gpu::{Gpu, IDENTITIES};
use crate::ops::capture;
use crate::real;
use crate::types::{CuResult, Event, SUCCESS, Stream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Measurements that may be going on.
const SLOTS: usize = 16;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: CuResult = 600;
/// Empty launches between two events take about this long.
const LEAST_NS: u64 = 500;

/// The measurements of one GPU.
pub(crate) struct Samples {
    slots: [Slot; SLOTS],
    pending: AtomicU32,
}

struct Slot {
    taken: AtomicBool,
    pending: AtomicBool,
    /// The context that the events belong to; 0 when there are none.
    context: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// What was launched.
    number: AtomicU32,
    /// How long the GPU had nothing to do between the first event and the launch.
    lead_ns: AtomicU64,
}

impl Samples {
    pub(crate) const fn new() -> Samples {
        let slots = [const {
            Slot {
                taken: AtomicBool::new(false),
                pending: AtomicBool::new(false),
                context: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                number: AtomicU32::new(0),
                lead_ns: AtomicU64::new(0),
            }
        }; SLOTS];
        Samples { slots, pending: AtomicU32::new(0) }
    }

    /// Forgets all events: their context is gone, or another process's.
    pub(crate) fn forget(&self) {
        for slot in &self.slots {
            slot.context.store(0, Ordering::Relaxed);
            slot.pending.store(false, Ordering::Relaxed);
            slot.taken.store(false, Ordering::Release);
        }
        self.pending.store(0, Ordering::Relaxed);
    }

    /// Whether there is anything to look at.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }
}

/// Launches between two events.
#[cold]
pub(crate) fn launch(gpu: &Gpu, number: u32, stream: Stream, idle: bool, call: impl FnOnce() -> CuResult) -> CuResult {
    collect(gpu);
    let Some(slot) = begin(gpu, stream) else { return call() };
    let began = shm::now_ns();
    let result = call();
    let lead = if idle { shm::now_ns() - began } else { 0 };
    let recorded = result == SUCCESS && {
        let asking = capture::ask();
        asking.is_some() && real::cuEventRecord(Event(slot.end.load(Ordering::Relaxed)), stream) == SUCCESS
    };
    if recorded {
        slot.number.store(number, Ordering::Relaxed);
        slot.lead_ns.store(lead, Ordering::Relaxed);
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
                    let duration = elapsed.saturating_sub(lead).max(elapsed / 8).max(LEAST_NS);
                    IDENTITIES.place(slot.number.load(Ordering::Relaxed)).measure(duration);
                }
            }
            _ => slot.context.store(0, Ordering::Relaxed),
        }
        gpu.samples.pending.fetch_sub(1, Ordering::Relaxed);
        slot.taken.store(false, Ordering::Release);
    }
}
