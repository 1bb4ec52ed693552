//! The way out: text on stdout, and the errors and files that commands share with the benchmarks.

use anyhow::Context;
use std::io::{self, Write};

pub(crate) use harness::{Exit, Misuse, WholeFile, reason};

/// Writes to stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to stdout")
}

/// Writes a value to stdout as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value).context("write JSON")? + "\n"))
}
