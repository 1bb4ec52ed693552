//! The hardware's time slices: how long a process's work runs before others get the GPU.
//!
//! They are set with the driver's own control on the groups of [`channels`](crate::channels), when the control page says
//! so. A slice of 0 gives back what the driver had set. It takes 0.2 to 0.5 ms for each group, and happens once per change:
//! in a launch, or in the thread of [`preempt`](crate::preempt) where that sees the change first.

#![deny(unsafe_code)]

use crate::channels::{self, Kind, Object};
use crate::gpu::Gpu;
use std::sync::atomic::{AtomicBool, Ordering};

const SET_SLICE: u32 = 0xa06c_0103;
const GET_SLICE: u32 = 0xa06c_0104;

/// Sets the slice that the control page asks for, if it asks for another than before.
pub(crate) fn attend(gpu: &Gpu) {
    if gpu
        .window()
        .is_some_and(|window| window.control().half(|page| &page.revision) != gpu.revision.load(Ordering::Relaxed))
    {
        apply(gpu);
    }
}

/// Sets the slice that the control page asks for.
#[cold]
pub(crate) fn apply(gpu: &Gpu) {
    static BUSY: AtomicBool = AtomicBool::new(false);
    let Some(window) = gpu.window() else { return };
    let control = window.control();
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    let revision = control.half(|page| &page.revision);
    gpu.revision.store(revision, Ordering::Relaxed);
    let wanted = control.half(|page| &page.slice_us);
    let page = window.own();
    let untouched = wanted == 0 && page.slice_us.load(Ordering::Relaxed) == 0;
    if !untouched {
        // Without a group there is nothing to set, and nothing to say of it: the next one that is made is set.
        let statuses = channels::all_of(Kind::Group, gpu).map(|group| set(group, u64::from(wanted)));
        if let Some(status) = statuses.max() {
            page.slice_capability.store(if status == 0 { 1 } else { status }, Ordering::Relaxed);
            if status == 0 {
                page.slice_us.store(wanted, Ordering::Relaxed);
            }
        }
    }
    BUSY.store(false, Ordering::Release);
}

fn set(group: &Object, wanted: u64) -> u32 {
    let mut own = group.own_us.load(Ordering::Relaxed);
    if own == 0 {
        let status = group.control(GET_SLICE, &mut own);
        if status != 0 || own == 0 {
            return status;
        }
        group.own_us.store(own, Ordering::Relaxed);
    }
    let mut slice = if wanted == 0 { own } else { wanted };
    group.control(SET_SLICE, &mut slice)
}
