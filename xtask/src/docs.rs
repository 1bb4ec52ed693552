//! The commands in the documentation: every one that a reader is told to type can be typed.
//!
//! Blocks marked `console` hold commands on lines that start with `$ `; a line that ends in a backslash goes on
//! in the next one, after `> `. A line `? 2` below a command says that it ends with that status (`? failed`: with
//! any but 0). Blocks marked `console,slow` and `console,skip` are not run; words after the mark are the reason.
//! Those marked `console,serve` are run as one, see `session`.
//!
//! Commands see the repository's folders as they would at its root, through links, and the files that they make
//! land in a scratch folder. What they print is not compared: the transcripts in `tests/` are.

mod session;

use crate::program::{Program, seconds};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Run the commands in README.md, docs/ and examples/*/README.md, and fail when one fails.
///
/// Runs what stands after `$ ` in blocks marked ```console. Blocks marked ```console,slow or ```console,skip are
/// listed and not run. Output is not compared.
///
/// Example: cargo xtask docs
/// Example: cargo xtask docs --restart-each-step
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Also run the blocks marked slow.
    #[arg(long)]
    slow: bool,
    /// Instead: run the commands of pages with a server, and stop and start it again after each.
    #[arg(long, conflicts_with = "slow")]
    restart_each_step: bool,
}

pub(crate) fn docs(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    setup::build_weft(workspace)?;
    match arguments.restart_each_step {
        true => restart_each_step(workspace),
        false => run_all(workspace, arguments.slow),
    }
}

/// Runs the commands of every page with a server, which is stopped and started again after each; `weft` must have been
/// built.
pub(crate) fn restart_each_step(workspace: &Workspace) -> Result<()> {
    let mut restarts = 0;
    for path in pages(workspace)? {
        let name = workspace.relative(&path).to_string();
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {name}"))?;
        let blocks = blocks(&text).with_context(|| format!("read the commands in {name}"))?;
        let commands = session_of(&blocks);
        if !commands.is_empty() {
            restarts += session::run_restarting(workspace, &scratch(workspace)?, &name, &commands)?;
        }
    }
    ensure!(restarts > 0, "find a page whose commands start a server: there is none");
    Ok(())
}

/// The commands of a page that belong together.
fn session_of(blocks: &[Block]) -> Vec<&str> {
    let session = blocks.iter().filter(|block| block.mark == Mark::Serve);
    session.flat_map(|block| block.commands.iter().map(|command| command.text.as_str())).collect()
}

/// Runs all documented commands; `weft` must have been built.
pub(crate) fn run_all(workspace: &Workspace, slow: bool) -> Result<()> {
    let (mut run, mut skipped) = (0, 0);
    for path in pages(workspace)? {
        let name = workspace.relative(&path).to_string();
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {name}"))?;
        let blocks = blocks(&text).with_context(|| format!("read the commands in {name}"))?;
        if blocks.is_empty() {
            continue;
        }
        let folder = scratch(workspace)?;
        let session = session_of(&blocks);
        if !session.is_empty() {
            session::run(workspace, &folder, &name, &session, &texts(&text))?;
            run += session.len();
        }
        for block in blocks.iter().filter(|block| block.mark != Mark::Serve) {
            let reason = match (block.mark, slow) {
                (Mark::Run, _) | (Mark::Slow, true) => None,
                (Mark::Slow, false) if block.reason.is_empty() => Some("slow; `cargo xtask docs --slow` runs it"),
                (Mark::Skip, _) if block.reason.is_empty() => Some("marked so, without a reason"),
                _ => Some(block.reason.as_str()),
            };
            for command in &block.commands {
                if let Some(reason) = reason {
                    eprintln!("  SKIPPED {name}:{}: {}  ({reason})", command.line, command.text);
                    skipped += 1;
                } else {
                    try_command(workspace, &folder, &name, command)?;
                    run += 1;
                }
            }
        }
    }
    eprintln!("  {run} commands run, {skipped} skipped");
    Ok(())
}

fn try_command(workspace: &Workspace, folder: &Path, page: &str, command: &Command) -> Result<()> {
    let start = Instant::now();
    let shell = Program::new("sh").arguments(["-c", &command.text]).folder(folder);
    let shell = shell.search_first(workspace.weft_path().parent().unwrap_or(folder))?;
    let (status, printed) = shell.variable("CARGO_TARGET_DIR", &workspace.target).try_quietly()?;
    let place = format!("{page}:{}", command.line);
    let right = match command.expected {
        Status::Exactly(expected) => status == Some(expected),
        Status::Failed => status != Some(0),
    };
    let found = status.map_or_else(|| "none, a signal ended it".to_owned(), |status| status.to_string());
    ensure!(right, "run `{}` of {place}: exit status {found}, expected {}\n{printed}", command.text, command.expected);
    eprintln!("  ran     {place}: {}  ({})", command.text, seconds(start.elapsed()));
    Ok(())
}

/// README.md, all of docs/, and the pages of examples, in order.
fn pages(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["docs", "examples"] {
        let folder = workspace.root.join(folder);
        if folder.is_dir() {
            walk(&folder, &mut found)?;
        }
    }
    found.sort();
    let readme = workspace.root.join("README.md");
    if readme.is_file() {
        found.insert(0, readme);
    }
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(())
}

/// An empty folder that looks like the repository's root: links to what is there, but not to Cargo's and git's
/// own files, which are found in the folders above.
fn scratch(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.root.join("target").join("docs");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
    }
    let folder = workspace.output("docs")?;
    for entry in std::fs::read_dir(&workspace.root).context("list the repository")? {
        let path = entry.context("list the repository")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name.starts_with("Cargo.") || name == "target" {
            continue;
        }
        link(&path, &folder.join(&name)).with_context(|| format!("link {name} into {}", folder.display()))?;
    }
    Ok(folder)
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

#[cfg(not(unix))]
fn link(to: &Path, at: &Path) -> std::io::Result<()> {
    if to.is_dir() { std::os::windows::fs::symlink_dir(to, at) } else { std::os::windows::fs::symlink_file(to, at) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Run,
    Slow,
    Skip,
    /// Part of the page's session: see `session`.
    Serve,
}

#[derive(Debug, PartialEq, Eq)]
struct Block {
    mark: Mark,
    reason: String,
    commands: Vec<Command>,
}

#[derive(Debug, PartialEq, Eq)]
struct Command {
    line: usize,
    text: String,
    expected: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Exactly(i32),
    Failed,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Exactly(status) => write!(f, "{status}"),
            Status::Failed => f.write_str("any but 0"),
        }
    }
}

/// The console blocks of a page.
fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start();
        let fence: String = line.chars().take_while(|c| *c == '`' || *c == '~').collect();
        if fence.len() < 3 {
            continue;
        }
        let body: Vec<_> = lines.by_ref().take_while(|(_, line)| line.trim() != fence).collect();
        let (words, reason) = line[fence.len()..].trim().split_once(' ').unwrap_or((line[fence.len()..].trim(), ""));
        let mark = match words {
            "console" => Mark::Run,
            "console,slow" => Mark::Slow,
            "console,skip" => Mark::Skip,
            "console,serve" => Mark::Serve,
            words if words.starts_with("console") => {
                bail!("line {}: `{words}`: expected console, console,slow, console,skip or console,serve", number + 1)
            }
            _ => continue,
        };
        let commands = commands(&body)?;
        ensure!(!commands.is_empty(), "line {}: a console block without a line that starts with `$ `", number + 1);
        found.push(Block { mark, reason: reason.trim().to_owned(), commands });
    }
    Ok(found)
}

/// The lines of blocks marked `text`.
fn texts(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```text" {
            found.extend(lines.by_ref().take_while(|line| line.trim() != "```").filter(|line| !line.trim().is_empty()));
        }
    }
    found
}

fn commands(body: &[(usize, &str)]) -> Result<Vec<Command>> {
    let mut found: Vec<Command> = Vec::new();
    let mut goes_on = false;
    for (index, line) in body {
        let line = line.trim();
        if goes_on {
            let command = found.last_mut().expect("what goes on has begun");
            command.text.pop();
            command.text.push_str(line.strip_prefix("> ").unwrap_or(line));
            goes_on = line.ends_with('\\');
        } else if let Some(text) = line.strip_prefix("$ ") {
            found.push(Command { line: index + 1, text: text.to_owned(), expected: Status::Exactly(0) });
            goes_on = text.ends_with('\\');
        } else if let (Some(status), Some(command)) = (line.strip_prefix("? "), found.last_mut()) {
            command.expected = match status.trim() {
                "failed" => Status::Failed,
                number => Status::Exactly(number.parse().with_context(|| format!("line {}: {line}", index + 1))?),
            };
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: &[(Mark, &str, &str, Status)]) {
        let blocks = blocks(page).unwrap();
        let found: Vec<_> = blocks
            .iter()
            .flat_map(|block| {
                block
                    .commands
                    .iter()
                    .map(|command| (block.mark, block.reason.as_str(), command.text.as_str(), command.expected))
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn commands_are_found_with_their_status_and_the_rest_is_output() {
        check(
            "text\n```console\n$ weft a \\\n>   b\nprinted\n$ weft c\n? 2\nerror\n```\n```toml\n$ no\n```\n",
            &[(Mark::Run, "", "weft a   b", Status::Exactly(0)), (Mark::Run, "", "weft c", Status::Exactly(2))],
        );
    }

    #[test]
    fn marks_have_reasons() {
        check(
            "```console,slow\n$ a\n```\n```console,skip needs a GPU\n$ b\n? failed\n```\n",
            &[(Mark::Slow, "", "a", Status::Exactly(0)), (Mark::Skip, "needs a GPU", "b", Status::Failed)],
        );
    }

    #[test]
    fn a_wrong_mark_and_an_empty_block_are_refused() {
        for (page, message) in [
            (
                "```console,slwo\n$ a\n```\n",
                "line 1: `console,slwo`: expected console, console,slow, console,skip or console,serve",
            ),
            ("\n```console\nweft\n```\n", "line 2: a console block without a line that starts with `$ `"),
        ] {
            assert_eq!(blocks(page).unwrap_err().to_string(), message);
        }
    }
}
