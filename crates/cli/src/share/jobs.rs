//! `weft jobs`, `weft suspend`, `weft resume`, `weft stop`: programs in the background.

use super::daemon;
use super::job::{Job, Record, how, now};
use crate::output::{Misuse, print, print_json};
use anyhow::{Context, Result, bail};
use clap::Args;
use config::ShareAsked;
use report::columns::{align, row};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use share_client::{Answer, Change, Question, TenantStatus};
use std::time::{Duration, Instant};

/// List background jobs, running and ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft jobs\n  weft jobs trainer --log\n  weft jobs trainer --forget")]
pub(crate) struct Jobs {
    /// Name of one job [default: all]
    name: Option<String>,
    /// Print the log of the job
    #[arg(long, requires = "name")]
    log: bool,
    /// Delete the record and the log of a job that ended
    #[arg(long, requires = "name", conflicts_with = "log")]
    forget: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a job does.
enum State {
    Runs(Option<Box<TenantStatus>>),
    Suspended,
    Waits,
    Leaves(String),
    Over(String),
}

impl Jobs {
    pub(crate) fn main(self) -> Result<()> {
        let known = Job::all()?;
        let of_name = |record: &Record| self.name.as_ref().is_none_or(|name| record.name == *name);
        let mine: Vec<(Job, Record)> = known.into_iter().filter(|(_, record)| of_name(record)).collect();
        if let (Some(name), true) = (&self.name, mine.is_empty()) {
            return Err(Misuse(format!("find job `{name}`: there is none of this name; `weft jobs` lists all")).into());
        }
        if self.log {
            let path = mine[0].0.log();
            return print(&std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
        if self.forget {
            let (job, record) = &mine[0];
            if job.is_held() {
                return Err(
                    Misuse(format!("forget {}: it still runs; end it with `weft stop` first", record.name)).into()
                );
            }
            job.remove();
            return print(&format!("{} is forgotten\n", record.name));
        }
        let tenants = tenants();
        let states = mine.iter().map(|(job, record)| state(job, record, &tenants)).collect::<Vec<State>>();
        if self.json {
            let told = mine.iter().zip(&states).map(|((job, record), state)| {
                json!({
                    "name": record.name, "state": state.word(), "command": record.command,
                    "started": record.started, "ended": record.ended, "waiting": record.waiting,
                    "requeued": record.requeued, "log": job.log(),
                })
            });
            return print_json(&json!({ "jobs": told.collect::<Vec<_>>() }));
        }
        let mut rows = vec![row(["job", "state", "for", "GPU used", "log"])];
        for ((job, record), state) in mine.iter().zip(&states) {
            let until = record.ended.map_or_else(now, |ended| ended.at);
            let used = match state {
                State::Runs(Some(tenant)) => format!("{}%", tenant.used_permille / 10),
                _ => "-".to_owned(),
            };
            let length = length(until.saturating_sub(record.started));
            rows.push(vec![record.name.clone(), state.word(), length, used, job.log().display().to_string()]);
        }
        print(&align(&rows))
    }
}

impl State {
    fn word(&self) -> String {
        match self {
            State::Runs(_) => "runs".to_owned(),
            State::Suspended => "suspended".to_owned(),
            State::Waits => "waits for room".to_owned(),
            State::Leaves(whom) => format!("makes room for {whom}"),
            State::Over(how) => how.clone(),
        }
    }
}

fn state(job: &Job, record: &Record, tenants: &[TenantStatus]) -> State {
    match (&record.ended, job.is_held()) {
        (Some(ended), _) => State::Over(how(ended)),
        (None, false) => State::Over("lost: it was killed with what looked after it".to_owned()),
        (None, true) if record.waiting.is_some() => State::Waits,
        (None, true) if let Some(whom) = &record.leaving => State::Leaves(whom.clone()),
        (None, true) => match tenants.iter().find(|tenant| tenant.name == record.name) {
            Some(tenant) if tenant.share.suspended => State::Suspended,
            tenant => State::Runs(tenant.cloned().map(Box::new)),
        },
    }
}

/// Everybody that the daemon knows; nobody where there is none.
fn tenants() -> Vec<TenantStatus> {
    let status = daemon::reach().ok().and_then(|client| client.status().ok());
    status.map_or_else(Vec::new, |status| status.gpus.into_iter().flat_map(|gpu| gpu.tenants).collect())
}

fn length(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// Suspend a program: it launches nothing until `weft resume`.
///
/// Kernels that it has launched finish. It keeps its memory; others get its share of GPU time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft suspend trainer\n  weft resume trainer")]
pub(crate) struct Suspend {
    /// Name of the program in `weft top`
    name: String,
}

/// Resume a suspended program.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft resume trainer")]
pub(crate) struct Resume {
    /// Name of the program in `weft top`
    name: String,
}

impl Suspend {
    pub(crate) fn main(self) -> Result<()> {
        suspend(&self.name, true)?;
        print(&format!("{} is suspended; `weft resume {}` resumes it\n", self.name, self.name))
    }
}

impl Resume {
    pub(crate) fn main(self) -> Result<()> {
        suspend(&self.name, false)?;
        print(&format!("{} is resumed\n", self.name))
    }
}

pub(super) fn suspend(name: &str, suspended: bool) -> Result<()> {
    let share = ShareAsked { suspended: Some(suspended), ..ShareAsked::default() };
    match daemon::reach()?.ask(&Question::Set(Change { name: name.to_owned(), share }))? {
        Answer::Set(_) => Ok(()),
        Answer::Error(error) => Err(Misuse(format!("change {name}: {error}")).into()),
        _ => bail!("change {name}: the daemon answered something else"),
    }
}

/// End a background job.
///
/// Sends SIGTERM, and SIGKILL if the job has not ended after --patience.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft stop trainer\n  weft stop trainer --patience 60")]
pub(crate) struct Stop {
    /// Name of the job
    name: String,
    /// Time that the job has to end before it is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
}

impl Stop {
    pub(crate) fn main(self) -> Result<()> {
        let job = Job::named(&self.name)?;
        let group = || job.read()?.process.and_then(|process| Pid::from_raw(process as i32));
        let nobody = || Misuse(format!("stop `{}`: no job of this name runs; `weft jobs` lists all", self.name));
        group().filter(|_| job.is_held()).ok_or_else(nobody)?;
        // One that is being started again looks whether it is to, once it has written down as what.
        job.end_for_good()?;
        let group = group().ok_or_else(nobody)?;
        // Somebody who waits to launch something cannot hear.
        let _ = suspend(&self.name, false);
        signal(group, Signal::TERM).with_context(|| format!("ask {} to end", self.name))?;
        if ends(&job, Duration::from_secs(self.patience)) {
            return print(&format!("{} ended\n", self.name));
        }
        signal(group, Signal::KILL).with_context(|| format!("kill {}", self.name))?;
        if ends(&job, Duration::from_secs(10)) {
            return print(&format!("{} did not end within {} s and was killed\n", self.name, self.patience));
        }
        bail!("end {}: it was killed and is still there; its GPU may hang, see `weft doctor`", self.name)
    }
}

/// Signals what is there of a group.
fn signal(group: Pid, signal: Signal) -> Result<(), Errno> {
    match kill_process_group(group, signal) {
        Err(Errno::SRCH) => Ok(()),
        result => result,
    }
}

/// Whether a job ends within this time.
fn ends(job: &Job, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while job.is_held() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
