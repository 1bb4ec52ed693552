//! Waiting for streams, and streams that wait.

use crate::capture;
use crate::code::{Code, Status};
use crate::driver::{Handle, process};
use crate::queue;
use crate::stream::{end_of, resolve};

pub(crate) fn cuStreamSynchronize(stream: Handle) -> Status {
    let end = {
        let mut process = process()?;
        let stream = resolve(&mut process, stream)?;
        capture::forbid_stream(&mut process, stream)?;
        end_of(&process, stream)?
    };
    queue::synchronize(end)
}

pub(crate) fn cuStreamQuery(stream: Handle) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    capture::forbid_stream(&mut process, stream)?;
    let end = end_of(&process, stream)?;
    if queue::is_done(end)? { Ok(()) } else { Err(Code::NOT_READY) }
}

pub(crate) fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    let found = process.events.get(event)?;
    if let Some(captured) = found.captured {
        return capture::join(&mut process, stream, captured);
    }
    let recorded = found.recorded;
    // The queue keeps the order by itself; what waits for the stream must wait for the event's host functions as well.
    if let (Some(recorded), stream) = (recorded, process.streams.get_mut(stream)?)
        && recorded.point.device == stream.device
    {
        stream.end.position_ns = stream.end.position_ns.max(recorded.point.position_ns);
        stream.end.host_functions = stream.end.host_functions.max(recorded.point.host_functions);
    }
    Ok(())
}
