//! A process's work on one GPU: submitting it, and waiting for it.
//!
//! A [`Point`] says when something is done: when the queue was given a number of nanoseconds, and when so many host
//! functions of the process were called. Work of all streams goes into one queue, so that a stream's end is the point of
//! what was last submitted to it.
//!
//! Copies take no time on the GPU, as they have engines of their own. Host functions are called in order by one thread when
//! the queue reaches them; work behind them does not wait for them, waiting does.

use crate::book::Slot;
use crate::boundary::call_host_function;
use crate::clock::wait_until;
use crate::code::Code;
use crate::driver::{self, Process, gpu, slot};
pub(crate) use crate::objects::Point;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

/// Launches that may be outstanding before the next one waits, as with the real driver.
const DEPTH: usize = 1024;
/// The longest wait before looking again: what was predicted changes when others submit work or die.
const LOOK_NS: u64 = 1_000_000;

/// What is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// One kernel.
    Kernel { duration_ns: u64 },
    /// A graph of kernels.
    Graph { duration_ns: u64, kernels: u64 },
    /// Something that takes no time, behind what is there.
    Marker,
}

/// Puts work at the end of the queue and says when it is done.
pub(crate) fn submit(process: &mut Process, device: i32, work: Work) -> Result<Point, Code> {
    let slot = slot(device)?;
    let position_ns = gpu(device)?.update(|book| {
        let slot = &mut book.slots[slot];
        match work {
            Work::Kernel { duration_ns } => {
                slot.launches += 1;
                slot.submitted_ns += duration_ns;
            }
            Work::Graph { duration_ns, kernels } => {
                slot.graph_launches += 1;
                slot.graph_kernels += kernels;
                slot.submitted_ns += duration_ns;
            }
            Work::Marker => {}
        }
        slot.submitted_ns
    });
    let point = Point { device, position_ns, host_functions: SUBMITTED.load(Ordering::Acquire) };
    if !matches!(work, Work::Marker) {
        process.queues[device as usize].outstanding.push_back(point);
    }
    Ok(point)
}

/// Waits until there is room for one more launch. Called without the process's lock, which others need meanwhile.
pub(crate) fn wait_for_room(device: i32) -> Result<(), Code> {
    let oldest = {
        let mut process = driver::process()?;
        let outstanding = &mut process.queues[device as usize].outstanding;
        if outstanding.len() < DEPTH {
            return Ok(());
        }
        // Half of what is done goes at once, so that the books are not asked at every launch.
        if is_done(outstanding[DEPTH / 2])? {
            outstanding.drain(..=DEPTH / 2);
            return Ok(());
        }
        outstanding.pop_front()
    };
    oldest.map_or(Ok(()), wait_for_time)
}

/// Whether a point was passed.
pub(crate) fn is_done(point: Point) -> Result<bool, Code> {
    let slot = slot(point.device)?;
    let given_ns = gpu(point.device)?.update(|book| book.slots[slot].given_ns);
    Ok(given_ns >= point.position_ns && CALLED.load(Ordering::Acquire) >= point.host_functions)
}

/// Waits until a point was passed, and counts that.
pub(crate) fn synchronize(point: Point) -> Result<(), Code> {
    let slot = slot(point.device)?;
    gpu(point.device)?.update(|book| book.slots[slot].synchronizations += 1);
    wait_for_time(point)?;
    while CALLED.load(Ordering::Acquire) < point.host_functions {
        driver::require_initialized()?;
        std::thread::sleep(std::time::Duration::from_micros(20));
    }
    Ok(())
}

fn wait_for_time(point: Point) -> Result<(), Code> {
    let slot = slot(point.device)?;
    let gpu = gpu(point.device)?;
    loop {
        driver::require_initialized()?;
        let until = gpu.update(|book| {
            let done = book.slots[slot].given_ns >= point.position_ns;
            (!done).then(|| book.predict(slot, point.position_ns).unwrap_or(u64::MAX).min(book.now_ns + LOOK_NS))
        });
        match until {
            None => return Ok(()),
            Some(until) => wait_until(until),
        }
    }
}

/// When a point that was passed was passed, but not before `earliest_ns`.
pub(crate) fn passed_at(point: Point, earliest_ns: u64) -> Result<u64, Code> {
    let slot = slot(point.device)?;
    let passed = gpu(point.device)?.passed_at(slot, point.position_ns).unwrap_or(earliest_ns);
    Ok(passed.max(earliest_ns))
}

/// The end of everything that was submitted.
pub(crate) fn end(device: i32) -> Result<Point, Code> {
    let slot = slot(device)?;
    let position_ns = gpu(device)?.update(|book| book.slots[slot].submitted_ns);
    Ok(Point { device, position_ns, host_functions: SUBMITTED.load(Ordering::Acquire) })
}

/// Changes this process's counters on a GPU.
pub(crate) fn count<R>(device: i32, change: impl FnOnce(&mut Slot) -> R) -> Result<R, Code> {
    let slot = slot(device)?;
    Ok(gpu(device)?.update(|book| change(&mut book.slots[slot])))
}

static SUBMITTED: AtomicU64 = AtomicU64::new(0);
static CALLED: AtomicU64 = AtomicU64::new(0);

/// Has a host function called when the queue reaches it.
pub(crate) fn submit_host_function(
    process: &mut Process,
    device: i32,
    function: usize,
    argument: usize,
) -> Result<Point, Code> {
    static CALLS: OnceLock<Mutex<Sender<(Point, usize, usize)>>> = OnceLock::new();
    let calls = CALLS.get_or_init(|| {
        let (sender, calls) = channel::<(Point, usize, usize)>();
        std::thread::spawn(move || {
            for (point, function, argument) in calls {
                let _ = wait_for_time(point);
                call_host_function(function, argument);
                CALLED.fetch_add(1, Ordering::AcqRel);
            }
        });
        Mutex::new(sender)
    });
    let mut point = submit(process, device, Work::Marker)?;
    let calls = calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    calls.send((point, function, argument)).map_err(|_| Code::UNKNOWN)?;
    point.host_functions = SUBMITTED.fetch_add(1, Ordering::AcqRel) + 1;
    Ok(point)
}
