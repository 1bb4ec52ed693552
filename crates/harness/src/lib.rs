//! What benchmarks and the profiler have in common: programs under test, Ctrl-C, files that are whole or absent, and
//! errors that tell a mistake in what was typed from everything else.
//!
//! It knows nothing of GPUs, of Weft's protocols, or of what is measured.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod error;
mod file;
mod signal;
mod interrupt;
mod process;
mod program;

pub use error::{Exit, INTERRUPTED, Misuse};
pub use file::{WholeFile, read_text, read_text_from, reason};
pub use interrupt::Interrupt;
pub use process::Process;
pub use program::{Answer, Order, Program, now_ns};
pub use signal::wait_for_signal;
