//! Steps one after the other, and a table of how long each took.

use crate::program::seconds;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Steps done so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration, &'static str)>,
}

impl Steps {
    /// Does a step. When it fails, the table of what was done is printed, and `remedy` says what to do.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        remedy: &'static str,
        action: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let result = action();
        self.done.push((name, start.elapsed(), if result.is_ok() { "ok" } else { "FAILED" }));
        if result.is_err() {
            self.print();
            eprintln!("\nwhat to do: {remedy}");
        }
        result.with_context(|| format!("pass the step \"{name}\""))
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let total = self.done.iter().map(|(_, took, _)| *took).sum();
        let rule = "-".repeat(48);
        eprintln!("\n{:<28}{:>14}  \n{rule}", "step", "time");
        for (name, took, outcome) in &self.done {
            eprintln!("{name:<28}{:>14}  {outcome}", seconds(*took));
        }
        eprintln!("{rule}\n{:<28}{:>14}", "total", seconds(total));
    }
}
