//! Stream capture: launches that are written down instead of executed.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::capture::{note, over, settle};
use crate::gpu::captures;
use crate::types::{CuResult, Graph, Opaque, Out, SUCCESS, Stream};
use crate::unseen;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

pub(crate) fn begin(driver: &Driver<'_>, stream: Stream, _: c_int) -> CuResult {
    captures().fetch_add(1, Ordering::SeqCst);
    unseen::end();
    settle();
    note(stream);
    let result = driver.call();
    if result != SUCCESS {
        over(stream);
    }
    result
}

pub(crate) fn begin_to_graph(
    driver: &Driver<'_>,
    stream: Stream,
    _: Graph,
    _: Opaque,
    _: Opaque,
    _: usize,
    mode: c_int,
) -> CuResult {
    begin(driver, stream, mode)
}

/// A capture ends, well or not.
pub(crate) fn end(driver: &Driver<'_>, stream: Stream, _: Out<Graph>) -> CuResult {
    let result = driver.call();
    over(stream);
    result
}
