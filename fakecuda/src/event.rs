//! Events: points of a stream that can be asked about, waited for and dated.

use crate::boundary::Out;
use crate::capture;
use crate::clock::now_ns;
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Handle, process};
pub(crate) use crate::objects::{Event, Recorded};
use crate::queue::{self, Point};
use crate::stream;

/// An event that keeps no time.
const NO_TIMING: u32 = 2;

pub(crate) fn cuEventCreate(out: Out<Handle>, flags: u32) -> Status {
    current::current()?;
    let mut process = process()?;
    let handle = process.new_handle();
    process.events.0.insert(handle, Event { flags, recorded: None, captured: None });
    out.set(handle)
}

pub(crate) fn cuEventDestroy(event: Handle) -> Status {
    process()?.events.remove(event).map(|_| ())
}

pub(crate) fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    process.events.get(event)?;
    if let Some(capture) = capture::of_stream(&mut process, stream)? {
        process.events.get_mut(event)?.captured = Some((capture, stream));
        return Ok(());
    }
    let point = stream::end_of(&process, stream)?;
    let event = process.events.get_mut(event)?;
    event.captured = None;
    event.recorded = Some(Recorded { point, at_ns: now_ns(), passed_ns: None });
    Ok(())
}

pub(crate) fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) -> Status {
    cuEventRecord(event, stream)
}

pub(crate) fn cuEventQuery(event: Handle) -> Status {
    match point(event)? {
        None => Ok(()),
        Some(point) if queue::is_done(point)? => Ok(()),
        Some(_) => Err(Code::NOT_READY),
    }
}

pub(crate) fn cuEventSynchronize(event: Handle) -> Status {
    match point(event)? {
        None => Ok(()),
        Some(point) => queue::synchronize(point),
    }
}

fn point(event: Handle) -> Result<Option<Point>, Code> {
    let process = process()?;
    let event = process.events.get(event)?;
    if event.captured.is_some() {
        return Err(Code::CAPTURED_EVENT);
    }
    Ok(event.recorded.map(|recorded| recorded.point))
}

pub(crate) fn cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) -> Status {
    let (start, end) = (passed(start)?, passed(end)?);
    out.set((end as f64 - start as f64) as f32 / 1e6)
}

fn passed(handle: Handle) -> Result<u64, Code> {
    let mut process = process()?;
    let event = process.events.get_mut(handle)?;
    if event.flags & NO_TIMING != 0 {
        return Err(Code::INVALID_HANDLE);
    }
    let recorded = event.recorded.as_mut().ok_or(Code::INVALID_HANDLE)?;
    if let Some(passed) = recorded.passed_ns {
        return Ok(passed);
    }
    if !queue::is_done(recorded.point)? {
        return Err(Code::NOT_READY);
    }
    let passed = queue::passed_at(recorded.point, recorded.at_ns)?;
    recorded.passed_ns = Some(passed);
    Ok(passed)
}
