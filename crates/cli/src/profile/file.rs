//! Files that were named.

use crate::output::{Misuse, reason};
use harness::read_text;
use std::path::Path;

/// The text of a file; `what` it is meant to be.
pub(super) fn text(what: &str, path: &Path) -> Result<String, Misuse> {
    read_text(path).map_err(|error| wrong(what, path, reason(&error)))
}

pub(super) fn wrong(what: &str, path: &Path, problem: impl std::fmt::Display) -> Misuse {
    Misuse(format!("read {what} {}: {problem}", path.display()))
}
