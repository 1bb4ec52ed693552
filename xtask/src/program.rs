//! Running other programs: said before, timed after, explained when they fail.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program about to be run.
#[derive(Debug)]
pub(crate) struct Program {
    command: Command,
    shown: String,
}

impl Program {
    pub(crate) fn new(path: impl AsRef<OsStr>) -> Program {
        let path = path.as_ref();
        let name = Path::new(path).file_stem().unwrap_or(path).to_string_lossy().into_owned();
        Program { command: Command::new(path), shown: name }
    }

    pub(crate) fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Program {
        for argument in arguments {
            self.shown.push(' ');
            self.shown.push_str(&quoted(argument));
            self.command.arg(argument);
        }
        self
    }

    pub(crate) fn folder(mut self, folder: &Path) -> Program {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// Hides an environment variable from it.
    pub(crate) fn without(mut self, name: &str) -> Program {
        self.command.env_remove(name);
        self
    }

    /// Hides all environment variables from it that are not set afterwards.
    pub(crate) fn without_all(mut self) -> Program {
        self.command.env_clear();
        self
    }

    /// Puts a folder before all others in which programs are looked for.
    pub(crate) fn search_first(self, folder: &Path) -> Result<Program> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).with_context(|| format!("search {} first", folder.display()))?;
        Ok(self.variable("PATH", path))
    }

    /// What a person would type.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Runs it and says so; it writes where this program writes. `Err` when it fails.
    pub(crate) fn run(mut self) -> Result<Duration> {
        eprintln!("  running {}", self.shown);
        let start = Instant::now();
        let status = self.command.status().with_context(|| format!("run {}", self.shown))?;
        if !status.success() {
            bail!("run {}: {status}", self.shown);
        }
        eprintln!("  done    {} ({})", self.shown, seconds(start.elapsed()));
        Ok(start.elapsed())
    }

    /// Runs it quietly for what it prints; its complaints still show. `Err` when it fails.
    pub(crate) fn read(mut self) -> Result<String> {
        self.command.stderr(Stdio::inherit());
        let Output { status, stdout, .. } = self.command.output().with_context(|| format!("run {}", self.shown))?;
        if !status.success() {
            bail!("run {}: {status}", self.shown);
        }
        String::from_utf8(stdout).with_context(|| format!("read what {} printed", self.shown))
    }

    /// Runs it quietly; everything it printed and its exit status, `None` when a signal ended it.
    pub(crate) fn try_quietly(mut self) -> Result<(Option<i32>, String)> {
        let output = self.command.output().with_context(|| format!("run {}", self.shown))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Starts it and does not wait. What it prints goes to the log. It stays in this program's process group, so that
    /// Ctrl-C ends both.
    pub(crate) fn start(mut self, log: &Path) -> Result<Child> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let copy = file.try_clone().with_context(|| format!("write {}", log.display()))?;
        self.command.stdin(Stdio::null()).stdout(file).stderr(copy);
        self.command.spawn().with_context(|| format!("start {}", self.shown))
    }

    /// Whether it can be run at all and ends well. Quiet.
    pub(crate) fn works(self) -> bool {
        matches!(self.try_quietly(), Ok((Some(0), _)))
    }
}

/// A length of time as people say it.
pub(crate) fn seconds(length: Duration) -> String {
    match length.as_secs() {
        0..60 => format!("{:.1} s", length.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", length.as_secs() / 60, length.as_secs() % 60),
        _ => format!("{} h {:02} min", length.as_secs() / 3600, length.as_secs() / 60 % 60),
    }
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_typed() {
        let program = Program::new("/somewhere/cargo").arguments(["test", "--", "it's", ""]);
        assert_eq!(program.shown(), r"cargo test -- 'it'\''s' ''");
    }

    #[test]
    fn lengths_of_time_are_short() {
        let text = |millis| seconds(Duration::from_millis(millis));
        assert_eq!(
            (text(1_260), text(61_000), text(7_500_000)),
            ("1.3 s".into(), "1 min 01 s".into(), "2 h 05 min".into())
        );
    }
}
