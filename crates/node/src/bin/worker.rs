//! Stands in for `weft worker onnx` in this crate's tests.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // The first two words are `worker onnx`, as the `weft` binary is called.
    match node::worker::onnx(std::env::args_os().skip(3)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
