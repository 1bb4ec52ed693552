//! Real workers under a real node: what they answer, and what happens when they do not.
//!
//! Needs Python 3 and, the first time, a `pip` that can install numpy and onnxruntime into the build folder.

mod harness;
mod python;
mod weights;
mod failures;
mod lifecycle;
mod onnx_file;
mod onnx;
mod emulated;
mod measure;
