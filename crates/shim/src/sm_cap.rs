//! SM caps: long kernels run on a part of the SMs while a more important tenant needs the GPU at the same time.
//!
//! Under MPS kernels of several processes run side by side, and one that has taken every SM keeps them until its blocks
//! are done, whatever anybody's priority is. A kernel that may use three quarters of them leaves room at once. The
//! driver can give a stream a part of the SMs (a green context), so a long kernel is launched on such a stream instead
//! of the program's, between two events that keep its place in the program's order:
//!
//! ```text
//! program's stream   ... a ──┐             ┌── c ...
//! ours, some SMs             └── b, long ──┘
//! ```
//!
//! That takes four more calls of the driver, some ten microseconds, which is little beside a long kernel, and it can be
//! changed from one launch to the next.
//!
//! Invariants:
//! 1. What comes before the kernel in its stream is done before it, and what comes after waits for it, as without us.
//! 2. Whatever is refused is launched as the program asked, and not tried again after a few times; a kernel that needs
//!    all its blocks at once is none of these times.
//! 3. Nothing is asked while anything is captured, and nobody waits for another thread that is at this.

#![deny(unsafe_code)]

use crate::capture;
use crate::lock::Lock;
use crate::real::{self, SmResource};
use crate::types::{CuResult, Device, Event, SUCCESS, Stream};
use shm::TenantPage;
use std::sync::atomic::Ordering::Relaxed;

/// SMs are given out in groups of this many.
const GROUP: u32 = 8;
/// Groups that are told apart.
const GROUPS: usize = 33;
/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`: this kernel needs all its blocks at once. Others do not.
const TOO_LARGE: CuResult = 720;
/// Refusals of the driver after which SM caps are not tried any more.
const REFUSALS_MAX: u32 = 16;

/// `CU_DEV_RESOURCE_TYPE_SM`, `CU_GREEN_CTX_DEFAULT_STREAM`, `CU_STREAM_NON_BLOCKING`, `CU_EVENT_DISABLE_TIMING`.
const SMS: u32 = 1;
const WITH_STREAM: u32 = 1;
const NON_BLOCKING: u32 = 1;
const WITHOUT_TIME: u32 = 2;

/// The parts of one GPU that this process has made.
pub(crate) struct SmCap {
    parts: Lock<Parts>,
}

struct Parts {
    /// SMs in all; 0 while that was not asked.
    sms: u32,
    /// Marks the place in the program's stream; 0 while there is none.
    before: usize,
    /// By groups of SMs.
    made: [Part; GROUPS],
    refusals: u32,
}

#[derive(Clone, Copy)]
struct Part {
    stream: usize,
    /// Marks that the kernel is done.
    done: usize,
}

const NONE: Parts = Parts { sms: 0, before: 0, made: [Part { stream: 0, done: 0 }; GROUPS], refusals: 0 };

impl SmCap {
    pub(crate) const fn new() -> SmCap {
        SmCap { parts: Lock::new(NONE) }
    }

    /// In a child after `fork`: there are no parts, and nobody is at them.
    pub(crate) fn forget(&self) {
        self.parts.force_open();
        self.forget_parts();
    }

    /// Launches on a part of the SMs of GPU `index`, whose primary context is `primary`; `None` when that could not be
    /// done, and nothing was launched.
    #[cold]
    pub(crate) fn launch(
        &self,
        (index, primary): (usize, usize),
        page: &TenantPage,
        permille: u32,
        stream: Stream,
        on: impl FnOnce(Stream) -> CuResult,
    ) -> Option<CuResult> {
        let _asking = capture::ask()?;
        let mut parts = self.parts.try_lock()?;
        if parts.refusals >= REFUSALS_MAX || real::current_context()?.0 != primary {
            return None;
        }
        match parts.launch(index, permille, stream, on) {
            Ok(()) => {
                page.space_capability.store(1, Relaxed);
                page.space_permille.store(permille, Relaxed);
                page.confined.fetch_add(1, Relaxed);
                Some(SUCCESS)
            }
            Err(TOO_LARGE) => None,
            Err(refusal) => {
                parts.refusals += 1;
                page.space_capability.store(refusal.unsigned_abs().max(2), Relaxed);
                None
            }
        }
    }

    /// The primary context is gone, and the parts with it.
    pub(crate) fn forget_parts(&self) {
        *self.parts.lock() = NONE;
    }
}

impl Parts {
    fn launch(
        &mut self,
        gpu: usize,
        permille: u32,
        stream: Stream,
        on: impl FnOnce(Stream) -> CuResult,
    ) -> Result<(), CuResult> {
        let device = Device(gpu as i32);
        if self.sms == 0 {
            let mut all = SmResource::NONE;
            check(real::cuDeviceGetDevResource(device, &mut all, SMS))?;
            self.sms = all.sms();
        }
        let groups = ((self.sms * permille / 1000 / GROUP).max(1) as usize).min(GROUPS - 1);
        if self.made[groups].stream == 0 {
            self.made[groups] = make(device, groups as u32 * GROUP)?;
        }
        if self.before == 0 {
            check(real::cuEventCreate(&mut self.before, WITHOUT_TIME))?;
        }
        let part = self.made[groups];
        let (ours, before, done) = (Stream(part.stream), Event(self.before), Event(part.done));
        check(real::cuEventRecord(before, stream))?;
        check(real::cuStreamWaitEvent(ours, before, 0))?;
        check(on(ours))?;
        let follows = real::cuEventRecord(done, ours) == SUCCESS && real::cuStreamWaitEvent(stream, done, 0) == SUCCESS;
        if !follows {
            // What comes after must not overtake it.
            let _ = real::cuStreamSynchronize(ours);
        }
        Ok(())
    }
}

/// A stream on so many SMs.
fn make(device: Device, sms: u32) -> Result<Part, CuResult> {
    let (mut all, mut some, mut rest) = (SmResource::NONE, SmResource::NONE, SmResource::NONE);
    let (mut groups, mut description, mut green, mut context) = (1, 0, 0, 0);
    let mut part = Part { stream: 0, done: 0 };
    check(real::cuDeviceGetDevResource(device, &mut all, SMS))?;
    check(real::cuDevSmResourceSplitByCount(&mut some, &mut groups, &all, &mut rest, 0, sms))?;
    check(real::cuDevResourceGenerateDesc(&mut description, &mut some, 1))?;
    check(real::cuGreenCtxCreate(&mut green, description, device, WITH_STREAM))?;
    check(real::cuGreenCtxStreamCreate(&mut part.stream, green, NON_BLOCKING, 0))?;
    check(real::cuCtxFromGreenCtx(&mut context, green))?;
    check(real::cuCtxPushCurrent_v2(context))?;
    let made = real::cuEventCreate(&mut part.done, WITHOUT_TIME);
    let mut ours = 0;
    let left = real::cuCtxPopCurrent_v2(&mut ours);
    check(made)?;
    check(left)?;
    Ok(part)
}

fn check(result: CuResult) -> Result<(), CuResult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}
