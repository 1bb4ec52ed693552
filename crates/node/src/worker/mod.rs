//! The other end: worker processes that are written in Rust.
//!
//! [`onnx`] is the whole of `weft worker onnx`. A model's mistake is an answer; whatever else goes wrong ends the
//! process, and the node starts another. Nothing is printed but by the model's libraries.

mod control;
mod onnx;
mod providers;
mod elements;

pub use onnx::onnx;
