//! Commands of a page that belong together: a server is started, asked and stopped.
//!
//! All blocks marked `console,serve` of a page are one script for one shell, in a folder of its own. What stands in
//! blocks marked `text` of such a page must be found in what was printed, line by line and space by space apart.

use crate::program::{Program, seconds};
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Instant;

/// Runs the commands of a page in one shell.
pub(super) fn run(
    workspace: &Workspace,
    folder: &Path,
    page: &str,
    commands: &[&str],
    expected: &[&str],
) -> Result<()> {
    let start = Instant::now();
    let lines: String = commands.iter().map(|command| format!("echo '$' {}\n{command}\n", quoted(command))).collect();
    // Job control, so that `%1` means the server; whatever happens, it does not outlive the script.
    let script = format!("set -em\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{lines}");
    let shell = Program::new("bash").arguments(["-c", &script]).folder(folder);
    let shell = shell.search_first(workspace.weft_path().parent().unwrap_or(folder))?;
    let (status, printed) = shell.variable("EXAMPLES", workspace.root.join("examples")).try_quietly()?;
    ensure!(status == Some(0), "run the commands of {page}: exit status {status:?}\n{printed}");
    let found = words(&printed);
    for line in expected {
        ensure!(found.contains(&words(line)), "find `{line}`, as {page} says, in what was printed:\n{printed}");
    }
    eprintln!("  ran     {page}: {} commands in one shell  ({})", commands.len(), seconds(start.elapsed()));
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A text with one space between words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_do_not_matter_and_quotes_survive() {
        assert_eq!(words("a  b\n c"), "a b c");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
