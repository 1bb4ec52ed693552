//! `weft run --detach`: a program in the background, and the process that looks after it.
//!
//! That process starts `weft run` again, without `--detach`, in a process group of its own and with its output in a
//! file, waits for its end and writes it down. It does nothing else, so that the program is under its share as any
//! other is.

use super::job::{Ended, Job, OWN, Record, now};
use crate::output::{Exit, Misuse, print};
use anyhow::{Context, Result};
use clap::Args;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to be started.
const PATIENCE: Duration = Duration::from_secs(10);
/// A program that ends within this is thought to have failed to start.
const SETTLED: Duration = Duration::from_millis(300);

/// Starts this command again in the background, under a process that looks after it.
pub(super) fn start(name: &str, program: &[OsString]) -> Result<()> {
    let job = Job::named(name)?;
    // Held for a moment only: whoever looks after the job takes it over.
    drop(job.hold()?.ok_or_else(|| Misuse(format!("there is a job `{name}` already; choose another --name")))?);
    job.remove();
    let own = std::env::current_exe().context("find this program")?;
    let before = std::env::args_os().len() - program.len();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Up to the program, whose words may look like ours.
    let (ours, program_words) = words.split_at(before - 1);
    let run = ours.iter().position(|word| word == "run").context("find what was asked for")?;
    let (before, asked) = ours.split_at(run + 1);
    let asked = asked.iter().filter(|word| *word != "--detach" && *word != "--wait");
    let mut command = Command::new(own);
    command.arg("supervise").arg(name).arg("--").args(before).arg("--wait").args(asked).args(program_words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().context("start a process that looks after the job")?;
    let began = Instant::now();
    let log = job.log().display().to_string();
    loop {
        let record = job.read();
        let waiting = record.as_ref().and_then(|record| record.waiting.as_ref());
        let entered = record.as_ref().is_some_and(|record| record.entered);
        match record.as_ref().map(|record| (record.process, record.ended)) {
            Some((_, Some(ended))) if began.elapsed() < PATIENCE => {
                let said = std::fs::read_to_string(job.log()).unwrap_or_default();
                let said = said.lines().last().unwrap_or("it said nothing").to_owned();
                if ended.code == Some(0) {
                    return print(&format!("{name} ran and ended; what it printed is in {log}\n"));
                }
                let text = format!("{name} ended at once ({}): {said}; see {log}", how(&ended));
                return Err(
                    Exit { code: ended.code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), text }.into()
                );
            }
            Some((Some(_), None)) if waiting.is_some() => {
                let reason = waiting.map_or("", String::as_str);
                return print(&format!("{name} waits: {reason}; it starts when there is room\n"));
            }
            Some((Some(_), None)) if entered && began.elapsed() > SETTLED => {
                return print(&format!("{name} runs; what it prints is in {log}\n"));
            }
            _ if began.elapsed() > PATIENCE => {
                return Err(Misuse(format!("start {name}: nothing happens; see {log}")).into());
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// How a job ended, in words.
pub(super) fn how(ended: &Ended) -> String {
    match (ended.code, ended.signal) {
        (Some(0), _) => "done".to_owned(),
        (Some(code), _) => format!("failed with {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Look after a job: what `weft run --detach` starts.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Arguments {
    name: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let job = Job::named(&arguments.name)?;
    let _held = job.hold()?.context("look after a job that somebody looks after")?;
    let path = job.log();
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.with_context(|| format!("write {}", path.display()))?;
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(&arguments.command).env(OWN, &arguments.name).stdin(Stdio::null()).process_group(0);
    command.stdout(log.try_clone().context("write the log")?).stderr(log);
    let words = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut record = Record {
        name: arguments.name.clone(),
        command: words,
        process: None,
        started: now(),
        ended: None,
        entered: false,
        waiting: None,
    };
    let mut child = command.spawn().context("start the program")?;
    record.process = Some(child.id());
    job.write(&record)?;
    let status = child.wait().context("wait for the program")?;
    record.ended = Some(Ended { at: now(), code: status.code(), signal: status.signal() });
    job.write(&record)
}
