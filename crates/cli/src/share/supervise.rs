//! `weft run --detach`: a program in the background, and the process that looks after it.
//!
//! That process starts `weft run` again, without `--detach`, in a process group of its own and with its output in a
//! file, waits for its end and writes it down. It does nothing else, so that the program is under its share as any
//! other is; but where the job makes room for others, it asks the daemon whether it is to, ends it, and starts it again.
//! That one waits for room, and whoever needed it comes first.

use super::job::{Ended, Job, OWN, Record, how, now};
use super::{daemon, jobs};
use crate::output::{Exit, Misuse, print};
use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use share_client::{Answer, Question};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to be started.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked whether a job is to make room, and whether one that is has ended.
const LOOK: Duration = Duration::from_millis(250);
const ASKED_LOOK: Duration = Duration::from_millis(20);
/// How long a program that ended may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(60);
/// A program that ends within this is thought to have failed to start.
const SETTLED: Duration = Duration::from_millis(300);

/// Starts this command again in the background, under a process that looks after it.
pub(super) fn start(name: &str, requeue: Option<u64>, program: &[OsString]) -> Result<()> {
    let job = Job::named(name)?;
    // Held for a moment only: whoever looks after the job takes it over.
    drop(job.hold()?.ok_or_else(|| {
        Misuse(format!("start job `{name}`: there is one of this name already; choose another --name"))
    })?);
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
    command.arg("supervise").args(requeue.map(|patience| format!("--requeue={patience}")));
    command.arg(name).arg("--").args(before).arg("--wait").args(asked).args(program_words);
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

/// Look after a job: what `weft run --detach` starts.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Arguments {
    /// How many seconds it has to end when it makes room; it does not where this is not said.
    #[arg(long)]
    requeue: Option<u64>,
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
    let words = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut record = Record {
        name: arguments.name.clone(),
        command: words,
        process: None,
        started: now(),
        ended: None,
        entered: false,
        waiting: None,
        leaving: None,
        requeued: 0,
    };
    loop {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(&arguments.command).env(OWN, &arguments.name).stdin(Stdio::null()).process_group(0);
        command.stdout(log.try_clone().context("write the log")?).stderr(log.try_clone().context("write the log")?);
        let mut child = command.spawn().context("start the program")?;
        record.process = Some(child.id());
        job.write(&record)?;
        let left = match arguments.requeue {
            Some(patience) => leave_when_asked(&job, &record, &child, &log, Duration::from_secs(patience))?,
            None => false,
        };
        let status = child.wait().context("wait for the program")?;
        if !left || job.is_to_end() {
            record.ended = Some(Ended { at: now(), code: status.code(), signal: status.signal() });
            return job.write(&record);
        }
        record.requeued += 1;
        wait_until_gone(&record.name);
    }
}

/// Waits until the program ended; says whether it was asked to, to make room. It is not waited for as a child, so that its
/// group is still its own.
fn leave_when_asked(job: &Job, record: &Record, child: &Child, mut log: &File, patience: Duration) -> Result<bool> {
    let group = Pid::from_child(child);
    let mut say = |text: &str| {
        // Whoever reads the log does without.
        let _ = writeln!(log, "weft: {text}");
    };
    if job.is_to_end() {
        // That was said before anybody knew of this process.
        kill(group, Signal::TERM);
    }
    let (mut asked, mut looked): (Option<Instant>, Option<Instant>) = (None, None);
    let mut killed = false;
    while !has_ended(group)? {
        // Also while it ends: who asks is there to end it.
        let mut wanted = None;
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            wanted = wanted_by(&record.name);
        }
        match asked {
            Some(since) if !killed && since.elapsed() > patience => {
                say(&format!("it has not ended within {} s and is killed", patience.as_secs()));
                kill(group, Signal::KILL);
                killed = true;
            }
            Some(_) => {}
            None => {
                if let Some(whom) = wanted {
                    asked = Some(Instant::now());
                    say(&format!("it makes room for {whom}, and is started again when there is room"));
                    let entered = job.read().is_some_and(|record| record.entered);
                    job.write(&Record { entered, leaving: Some(whom), ..record.clone() })?;
                    // Somebody who waits to launch something cannot hear.
                    let _ = jobs::suspend(&record.name, false);
                    kill(group, Signal::TERM);
                }
            }
        }
        std::thread::sleep(if asked.is_some() { ASKED_LOOK } else { LOOK });
    }
    if asked.is_some() {
        // What it started has memory, too.
        kill(group, Signal::KILL);
    }
    Ok(asked.is_some())
}

/// Signals a program and what it started, if any of it is there.
fn kill(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Whether a child has ended.
fn has_ended(child: Pid) -> Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), options).context("look after the program")?.is_some())
}

/// Who needs the job's memory.
fn wanted_by(name: &str) -> Option<String> {
    match ask_wanted(name)? {
        Answer::Wanted(whom) => whom,
        _ => None,
    }
}

/// Waits until the daemon knows the job no more, for a while: giving a GPU's memory back takes time after the end.
fn wait_until_gone(name: &str) {
    let until = Instant::now() + GONE_PATIENCE;
    while matches!(ask_wanted(name), Some(Answer::Wanted(_))) && Instant::now() < until {
        std::thread::sleep(ASKED_LOOK);
    }
}

fn ask_wanted(name: &str) -> Option<Answer> {
    daemon::reach().ok()?.ask(&Question::Wanted(name.to_owned())).ok()
}
