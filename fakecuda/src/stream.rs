//! Streams. All of a process's work on a GPU is one queue, so a stream is the end of what was submitted to it, and the
//! capture that it is part of.

use crate::boundary::{In, Out};
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Handle, Process, process};
use crate::objects::NON_BLOCKING;
pub(crate) use crate::objects::Stream;
use crate::queue::{self, Point};
use crate::thread::thread_id;
use std::cell::Cell;

/// The handles with a meaning of their own.
const LEGACY: Handle = 1;
const PER_THREAD: Handle = 2;

thread_local! {
    static OWN_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Runs one call in which handle zero is the thread's own default stream.
pub(crate) fn with_own_default<R>(call: impl FnOnce() -> R) -> R {
    OWN_DEFAULT.set(true);
    let result = call();
    OWN_DEFAULT.set(false);
    result
}

/// What a stream handle means here: the handle of the stream itself.
pub(crate) fn resolve(process: &mut Process, stream: Handle) -> Result<Handle, Code> {
    let own = match stream {
        0 => OWN_DEFAULT.get(),
        LEGACY => false,
        PER_THREAD => true,
        other => return process.streams.get(other).map(|_| other),
    };
    let handle = current::current()?;
    let context = process.contexts.get(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
    if !own {
        return Ok(context.default_stream);
    }
    let device = context.device;
    let key = (handle, thread_id());
    if let Some(known) = process.thread_streams.get(&key) {
        return Ok(*known);
    }
    let made = process.new_handle();
    process.streams.0.insert(made, Stream::new(handle, device, 0, 0));
    process.thread_streams.insert(key, made);
    Ok(made)
}

/// Whether a stream is the default one that all blocking streams wait for.
pub(crate) fn is_legacy(process: &Process, stream: Handle) -> bool {
    process.contexts.0.values().any(|context| context.default_stream == stream)
}

/// What must have happened for a stream to be done: for the legacy stream, everything.
pub(crate) fn end_of(process: &Process, stream: Handle) -> Result<Point, Code> {
    let found = process.streams.get(stream)?;
    if is_legacy(process, stream) { queue::end(found.device) } else { Ok(found.end) }
}

pub(crate) fn cuStreamCreate(out: Out<Handle>, flags: u32) -> Status {
    cuStreamCreateWithPriority(out, flags, 0)
}

pub(crate) fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> Status {
    if flags > NON_BLOCKING {
        return Err(Code::INVALID_VALUE);
    }
    let context = current::current()?;
    let mut process = process()?;
    let device = current::current_device(&process)?;
    let handle = process.new_handle();
    process.streams.0.insert(handle, Stream::new(context, device, flags, priority.clamp(-5, 0)));
    out.set(handle)
}

pub(crate) fn cuStreamDestroy(stream: Handle) -> Status {
    if stream <= PER_THREAD {
        return Err(Code::INVALID_HANDLE);
    }
    // Its work goes on; the queue knows nothing of streams.
    process()?.streams.remove(stream).map(|_| ())
}

pub(crate) fn cuStreamGetPriority(stream: Handle, out: Out<i32>) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    out.set(process.streams.get(stream)?.priority)
}

pub(crate) fn cuStreamGetFlags(stream: Handle, out: Out<u32>) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    out.set(process.streams.get(stream)?.flags)
}

pub(crate) fn cuStreamGetId(stream: Handle, out: Out<u64>) -> Status {
    let mut process = process()?;
    out.set(resolve(&mut process, stream)? as u64)
}

pub(crate) fn cuStreamGetCtx(stream: Handle, out: Out<Handle>) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    out.set(process.streams.get(stream)?.context)
}

pub(crate) fn cuStreamGetDevice(stream: Handle, out: Out<i32>) -> Status {
    let mut process = process()?;
    let stream = resolve(&mut process, stream)?;
    out.set(process.streams.get(stream)?.device)
}

pub(crate) fn cuStreamAttachMemAsync(stream: Handle, _address: u64, _bytes: usize, _flags: u32) -> Status {
    let mut process = process()?;
    resolve(&mut process, stream).map(|_| ())
}

pub(crate) fn cuStreamSetAttribute(stream: Handle, _attribute: u32, _value: In<u64>) -> Status {
    let mut process = process()?;
    resolve(&mut process, stream).map(|_| ())
}
