//! Commands of a page that belong together: a server is started, asked and stopped.
//!
//! All blocks marked `console,serve` of a page are one script for one shell, in a folder of its own. What stands in
//! blocks marked `text` of such a page must be found in what was printed, line by line and space by space apart.
//!
//! The same commands are run once more with the server stopped and started again after each: it starts every time, and
//! what was ready is ready again.

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
    let lines: String = commands.iter().map(|command| said(command)).collect();
    let printed = in_one_shell(workspace, folder, page, &lines)?;
    let found = words(&printed);
    for line in expected {
        ensure!(found.contains(&words(line)), "find `{line}`, as {page} says, in what was printed:\n{printed}");
    }
    eprintln!("  ran     {page}: {} commands in one shell  ({})", commands.len(), seconds(start.elapsed()));
    Ok(())
}

/// Runs the commands of a page with the server stopped and started again after each step; how often that was. Pages
/// without a server have nothing to start.
pub(super) fn run_restarting(workspace: &Workspace, folder: &Path, page: &str, commands: &[&str]) -> Result<usize> {
    let (lines, restarts) = with_restarts(commands);
    if restarts == 0 {
        return Ok(0);
    }
    let start = Instant::now();
    in_one_shell(workspace, folder, page, &format!("{RESTART}{lines}"))?;
    let (count, took) = (commands.len(), seconds(start.elapsed()));
    eprintln!("  ran     {page}: {count} commands, the server started again {restarts} times  ({took})");
    Ok(restarts)
}

/// What a script needs to stop the server and start it again as it was started. Models that were ready are waited for.
const RESTART: &str = r#"
ready() { weft models --json | python3 -c 'import json, sys
for model in json.load(sys.stdin)["models"]:
    if model["state"] == "ready": print("%s:%s" % (model["name"], model["version"]))'; }
restart() {
    local before now model deadline=$((SECONDS + 60))
    before=$(ready)
    kill "$SERVER"
    wait "$SERVER"
    eval "$UP"
    SERVER=$!
    while true; do
        if ! kill -0 "$SERVER" 2>/dev/null; then echo "the server does not start again after: $1"; exit 1; fi
        if now=$(ready); then
            missing=
            for model in $before; do grep -qxF "$model" <<< "$now" || missing="$missing $model"; done
            if [ -z "$missing" ]; then return; fi
        fi
        if ((SECONDS > deadline)); then
            echo "not ready again after: $1 (missing:$missing)"
            weft models
            exit 1
        fi
        sleep 0.1
    done
}
"#;

/// The commands as a script that calls `restart` after each while the server runs, and how often it does.
fn with_restarts(commands: &[&str]) -> (String, usize) {
    let (mut script, mut restarts, mut running) = (String::new(), 0, false);
    for command in commands {
        script += &said(command);
        if command.starts_with("weft up") && command.ends_with('&') {
            running = true;
            script += &format!("SERVER=$!\nUP={}\n", quoted(command));
        } else if command.starts_with("kill ") {
            running = false;
        }
        if running {
            restarts += 1;
            script += &format!("restart {}\n", quoted(command));
        }
    }
    (script, restarts)
}

/// Runs lines in a shell of their own; what was printed.
fn in_one_shell(workspace: &Workspace, folder: &Path, page: &str, lines: &str) -> Result<String> {
    // Job control, so that `%1` means the server; whatever happens, it does not outlive the script.
    let script = format!("set -em\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{lines}");
    let shell = Program::new("bash").arguments(["-c", &script]).folder(folder);
    let shell = shell.search_first(workspace.weft_path().parent().unwrap_or(folder))?;
    let (status, printed) = shell.variable("EXAMPLES", workspace.root.join("examples")).try_quietly()?;
    ensure!(status == Some(0), "run the commands of {page}: exit status {status:?}\n{printed}");
    Ok(printed)
}

/// A command and, before it, that it is run.
fn said(command: &str) -> String {
    format!("echo '$' {}\n{command}\n", quoted(command))
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
    fn the_server_is_started_again_after_each_step_while_it_runs() {
        let (script, restarts) = with_restarts(&["weft setup", "weft up &", "weft deploy a a.py", "kill %1", "wait"]);
        assert_eq!(restarts, 2);
        let told = |line: &&str| !line.starts_with("echo");
        let lines: Vec<&str> = script.lines().filter(told).collect();
        let first = ["weft setup", "weft up &", "SERVER=$!", "UP='weft up &'", "restart 'weft up &'"];
        assert_eq!(lines[..5], first);
        assert_eq!(lines[5..], ["weft deploy a a.py", "restart 'weft deploy a a.py'", "kill %1", "wait"]);
        assert_eq!(with_restarts(&["weft setup", "weft profile x"]).1, 0);
    }

    #[test]
    fn spaces_do_not_matter_and_quotes_survive() {
        assert_eq!(words("a  b\n c"), "a b c");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
