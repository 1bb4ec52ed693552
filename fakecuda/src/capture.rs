//! Capture: streams that write down what is submitted to them, and what is forbidden meanwhile.
//!
//! A capture begins in one stream. Others join it by waiting for an event recorded in it, and must be joined back, by an
//! event that a stream of the capture waits for, before it ends. A forbidden call fails and spoils the capture: ending it
//! then says so and gives no graph.

use crate::boundary::{In, Out};
use crate::code::{Code, Status};
use crate::driver::{Handle, Process, process};
use crate::graph::{Graph, Kind};
pub(crate) use crate::objects::Capture;
use crate::stream;
use crate::thread::thread_id;
use std::cell::Cell;
use std::collections::BTreeMap;

/// What other calls of which threads are forbidden: all, the capturing thread's, none.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

thread_local! {
    static THREAD_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// The capture that a stream is part of, if it is; fails if that was spoiled, or if using the stream spoils another.
pub(crate) fn of_stream(process: &mut Process, stream: Handle) -> Result<Option<Handle>, Code> {
    if let Some(capture) = process.streams.get(stream)?.capture {
        let spoiled = process.captures.get(capture)?.spoiled;
        return if spoiled { Err(Code::STREAM_CAPTURE_INVALIDATED) } else { Ok(Some(capture)) };
    }
    if !process.captures.0.is_empty() && stream::is_legacy(process, stream) {
        let context = process.streams.get(stream)?.context;
        let implied = |other: &stream::Stream| other.context == context && other.is_blocking();
        let spoiled: Vec<Handle> =
            process.streams.0.values().filter(|other| implied(other)).filter_map(|other| other.capture).collect();
        if !spoiled.is_empty() {
            spoil(process, &spoiled);
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(None)
}

/// Writes a node down if the stream is capturing.
pub(crate) fn record(process: &mut Process, stream: Handle, kind: Kind) -> Result<bool, Code> {
    let Some(capture) = of_stream(process, stream)? else { return Ok(false) };
    let node = process.new_handle();
    let capture = process.captures.get_mut(capture)?;
    capture.streams.insert(stream, true);
    let graph = capture.graph;
    process.graphs.get_mut(graph)?.add(node, kind);
    Ok(true)
}

/// Fails if the stream is capturing: the call would wait for work that does not run.
pub(crate) fn forbid_stream(process: &mut Process, stream: Handle) -> Status {
    match of_stream(process, stream)? {
        None => Ok(()),
        Some(capture) => {
            spoil(process, &[capture]);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Fails if anything is capturing.
pub(crate) fn forbid_everywhere(process: &mut Process) -> Status {
    let all: Vec<Handle> = process.captures.0.keys().copied().collect();
    if all.is_empty() {
        return Ok(());
    }
    spoil(process, &all);
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// Fails if a capture goes on whose mode forbids calls that may wait, such as allocations.
pub(crate) fn forbid_unsafe(process: &mut Process) -> Status {
    if process.captures.0.is_empty() || THREAD_MODE.get() == RELAXED {
        return Ok(());
    }
    let everywhere = THREAD_MODE.get() == GLOBAL;
    let thread = thread_id();
    let forbids = |capture: &Capture| match capture.mode {
        GLOBAL => everywhere || capture.thread == thread,
        THREAD_LOCAL => capture.thread == thread,
        _ => false,
    };
    let found: Vec<Handle> =
        process.captures.0.iter().filter(|(_, capture)| forbids(capture)).map(|(handle, _)| *handle).collect();
    if found.is_empty() {
        return Ok(());
    }
    spoil(process, &found);
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

fn spoil(process: &mut Process, captures: &[Handle]) {
    for capture in captures {
        if let Ok(capture) = process.captures.get_mut(*capture) {
            capture.spoiled = true;
        }
    }
}

/// A stream waits for an event that was recorded in a capture.
pub(crate) fn join(process: &mut Process, stream: Handle, (capture, from): (Handle, Handle)) -> Status {
    if process.captures.get(capture).is_err() {
        return Err(Code::CAPTURED_EVENT);
    }
    let own = process.streams.get(stream)?.capture;
    if own.is_none() && stream::is_legacy(process, stream) {
        spoil(process, &[capture]);
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    if let Some(other) = own
        && other != capture
    {
        spoil(process, &[capture, other]);
        return Err(Code::STREAM_CAPTURE_MERGE);
    }
    process.streams.get_mut(stream)?.capture = Some(capture);
    let capture = process.captures.get_mut(capture)?;
    if from != stream {
        capture.streams.insert(from, false);
        capture.streams.insert(stream, true);
    }
    Ok(())
}

pub(crate) fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> Status {
    begin(stream, None, mode)
}

pub(crate) fn cuStreamBeginCaptureToGraph(
    stream: Handle,
    graph: Handle,
    _dependencies: In<Handle>,
    _edges: In<u64>,
    _count: usize,
    mode: u32,
) -> Status {
    begin(stream, Some(graph), mode)
}

fn begin(stream: Handle, graph: Option<Handle>, mode: u32) -> Status {
    if mode > RELAXED {
        return Err(Code::INVALID_VALUE);
    }
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    if stream::is_legacy(&process, stream) {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    if process.streams.get(stream)?.capture.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let graph = match graph {
        Some(graph) => process.graphs.get(graph).map(|_| graph)?,
        None => {
            let graph = process.new_handle();
            process.graphs.0.insert(graph, Graph::default());
            graph
        }
    };
    let handle = process.new_handle();
    let streams = BTreeMap::from([(stream, false)]);
    let capture = Capture { origin: stream, mode, thread: thread_id(), graph, streams, spoiled: false };
    process.captures.0.insert(handle, capture);
    process.streams.get_mut(stream)?.capture = Some(handle);
    Ok(())
}

pub(crate) fn cuStreamEndCapture(stream: Handle, out: Out<Handle>) -> Status {
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    let handle = process.streams.get(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
    let capture = process.captures.get(handle)?;
    if capture.origin != stream {
        spoil(&mut process, &[handle]);
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread_id() {
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    let capture = process.captures.remove(handle)?;
    for other in process.streams.0.values_mut().filter(|other| other.capture == Some(handle)) {
        other.capture = None;
    }
    let unjoined = capture.streams.iter().any(|(other, dirty)| *dirty && *other != stream);
    if capture.spoiled || unjoined {
        process.graphs.0.remove(&capture.graph);
        out.offer(0);
        let code = if capture.spoiled { Code::STREAM_CAPTURE_INVALIDATED } else { Code::STREAM_CAPTURE_UNJOINED };
        return Err(code);
    }
    out.set(capture.graph)
}

pub(crate) fn cuStreamIsCapturing(stream: Handle, out: Out<u32>) -> Status {
    cuStreamGetCaptureInfo_v2(stream, out, Out::none(), Out::none(), Out::none(), Out::none())
}

pub(crate) fn cuStreamGetCaptureInfo(stream: Handle, status: Out<u32>, identity: Out<u64>) -> Status {
    cuStreamGetCaptureInfo_v2(stream, status, identity, Out::none(), Out::none(), Out::none())
}

pub(crate) fn cuStreamGetCaptureInfo_v2(
    stream: Handle,
    status: Out<u32>,
    identity: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> Status {
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    let Some(handle) = process.streams.get(stream)?.capture else {
        if stream::is_legacy(&process, stream) {
            of_stream(&mut process, stream)?;
        }
        return status.set(0);
    };
    let capture = process.captures.get(handle)?;
    status.set(if capture.spoiled { 2 } else { 1 })?;
    identity.offer(handle as u64);
    graph.offer(capture.graph);
    dependencies.offer(0);
    count.offer(0);
    Ok(())
}

pub(crate) fn cuStreamGetCaptureInfo_v3(
    stream: Handle,
    status: Out<u32>,
    identity: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Status {
    edges.offer(0);
    cuStreamGetCaptureInfo_v2(stream, status, identity, graph, dependencies, count)
}

pub(crate) fn cuStreamUpdateCaptureDependencies(
    stream: Handle,
    _nodes: In<Handle>,
    _count: usize,
    _flags: u32,
) -> Status {
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    of_stream(&mut process, stream)?.map(|_| ()).ok_or(Code::ILLEGAL_STATE)
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Status {
    let wanted = mode.get()?;
    if wanted > RELAXED {
        return Err(Code::INVALID_VALUE);
    }
    mode.set(THREAD_MODE.replace(wanted))
}
