//! Stream capture: launches that are written down instead of executed.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::capture::{note, over, settle};
use crate::fast_path;
use crate::hot::HOT;
use crate::types::{CuResult, Graph, Opaque, Out, SUCCESS, Stream};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

pub(crate) fn begin(driver: &Driver<'_>, stream: Stream, _: c_int) -> CuResult {
    HOT.captures.fetch_add(1, Ordering::SeqCst);
    fast_path::end();
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
