//! Errors that a caller tells apart; everything else is an `anyhow::Error`.

use std::fmt;

/// A mistake that whoever typed the command can put right. The text says what failed, why, and what to do next.
#[derive(Debug)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// The exit code of a program that was interrupted before it finished, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// An error with an exit code of its own, as shells have for programs that are not there.
#[derive(Debug)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// What failed.
    pub text: String,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Exit {}
