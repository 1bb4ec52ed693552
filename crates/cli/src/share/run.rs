//! `weft run`: a program under a share.
//!
//! The tenant is registered and then this process becomes the program: its number, terminal, signals, files, working
//! folder and exit code are the program's own, because nothing is between. The connection to the daemon stays open in
//! it and in whatever it starts, and tells the daemon how long the tenant lives.

use super::job::Job;
use super::{ShareArguments, daemon, library, program, supervise};
use crate::output::{Exit, Misuse};
use anyhow::{Context, Result, bail};
use clap::Args;
use config::{Share, ShareAsked};
use policy::sharing::Class;
use share_client::{Answer, Client, Question, Register, Registered, environment};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Run a program under a share of a GPU.
///
/// The program runs unchanged: signals, exit code, input, output and working folder are as without Weft. `weft set`
/// changes the share while it runs. `weft run` starts the daemon that shares GPUs if none runs; that daemon ends a minute
/// after its last program.
///
/// On a machine with several GPUs the program sees one of them. Weft picks one where the requested share fits beside what
/// others requested; a program without --limit gets an idle GPU if there is one, and otherwise the least loaded. `weft
/// explain` says why.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    /// GPU to run on: a number, a UUID or its beginning, several separated by commas, or `all` [default:
    /// CUDA_VISIBLE_DEVICES if it is set, else one with room]
    #[arg(long, value_name = "N|UUID")]
    gpu: Option<String>,
    /// Number of GPUs to run on; Weft picks them [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "gpu", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,
    /// Sharing mode: `temporal` (time slices), `spatial` (side by side under MPS), or `auto`: the daemon chooses [default:
    /// auto]
    #[arg(id = "way", long = "share", value_name = "MODE")]
    share_in: Option<config::SharingMode>,
    /// Name for `weft set` and `weft top` [default: the program's file name]
    #[arg(long)]
    name: Option<String>,
    /// Run the program in the background as soon as there is room; `weft jobs` shows its state and its log
    #[arg(long)]
    detach: bool,
    /// Wait until there is room for the share, instead of failing
    #[arg(long)]
    wait: bool,
    /// End this best-effort job when a program of another class needs its memory, and start it again when there is room.
    /// Weft sends SIGTERM, and SIGKILL after SECONDS [default: 30]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "30")]
    requeue: Option<u64>,
    /// End together with the parent process
    #[arg(long, hide = true, conflicts_with = "detach")]
    with_parent: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  weft run --class latency -- python serve.py
  weft run --class best-effort --memory 20GiB -- python train.py
  weft run --request 30% --limit 60% --gpu 0 --name trainer -- ./train --epochs 3
  weft run --detach --class best-effort --memory 60GiB --gpus 2 --name trainer -- torchrun --nproc-per-node 2 train.py
  weft run --detach --requeue --class best-effort --memory 60GiB --name trainer -- python train.py --from-checkpoint
  weft set trainer --limit 40%";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let name = arguments.program.first().context("run a program: name one")?;
    if arguments.with_parent {
        crate::signal::end_with_parent()?;
    }
    let file = program::find(name, std::env::var_os("PATH"))?;
    let gpu = arguments.gpu.clone().or_else(|| chosen_before(arguments.gpus));
    let asked = ShareAsked { mode: arguments.share_in, gpu, gpus: arguments.gpus, ..arguments.share.asked() };
    // What makes no sense anywhere is said before anything is started.
    let share = Share::try_from(asked.clone()).map_err(|problem| Misuse(format!("share a GPU: {problem}")))?;
    if arguments.requeue.is_some() {
        check_requeue(arguments.detach, &share)?;
    }
    let library = library::find()?;
    let own_name = Path::new(name).file_name().unwrap_or(name).to_string_lossy().into_owned();
    if arguments.detach {
        let name = arguments.name.unwrap_or(own_name);
        return supervise::start(&name, arguments.requeue, &arguments.program);
    }
    let register = Register {
        // A job and its tenant have one name.
        rename: arguments.name.is_none() && Job::own().is_none(),
        name: arguments.name.unwrap_or(own_name),
        process: true,
        share: asked,
        command: Some(command_hash(&arguments.program)),
        wait: arguments.wait,
        leaves: arguments.requeue.is_some(),
    };
    let (client, registered) = enter(register)?;

    let mut command = Command::new(&file);
    command.arg0(name).args(&arguments.program[1..]);
    command.envs(environment(&client.paths, &registered, &library, std::env::var_os("LD_PRELOAD")));
    command.env_remove(super::job::OWN);
    let _connection = client.survive_exec()?;
    let error = command.exec();
    Err(Exit { code: 126, text: format!("run {}: {error}", file.display()) }.into())
}

/// Only who is looked after can be started again, and only who says what it needs is not started into too little.
fn check_requeue(detach: bool, share: &Share) -> Result<(), Misuse> {
    let problem = match share {
        _ if !detach && Job::own().is_none() => "nobody would start it again; add --detach",
        share if share.class != Class::BestEffort => "only best-effort jobs make room; add --class best-effort",
        share if share.memory.is_none() => "it has to be known how much room it needs; add --memory",
        _ => return Ok(()),
    };
    Err(Misuse(format!("requeue the job: {problem}")))
}

/// Who chose GPUs the way CUDA has it keeps them: its numbers are not those of NVML, so that they mean nothing here.
fn chosen_before(gpus: Option<u32>) -> Option<String> {
    let chosen = std::env::var_os("CUDA_VISIBLE_DEVICES").is_some_and(|list| !list.is_empty());
    (chosen && gpus.is_none()).then(|| "all".to_owned())
}

/// What is run, as the daemon knows it again.
fn command_hash(words: &[OsString]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect();
    shm::stable_hash(&bytes)
}

/// Times that a daemon is asked: it may end, for want of tenants, just after it was found.
const ATTEMPTS: u32 = 3;
/// How long somebody waits for room before asking again.
const AGAIN: Duration = Duration::from_millis(500);

/// What is said while there is no room: in the job's record where it is one, and on the terminal or in the log.
#[derive(Default)]
struct Waiting {
    reason: String,
}

impl Waiting {
    fn because(&mut self, reason: &str) {
        if self.reason == reason {
            return;
        }
        reason.clone_into(&mut self.reason);
        // There may be nobody to tell.
        let _ = writeln!(std::io::stderr(), "weft: waits for room: {reason}");
        if let Some(job) = Job::own() {
            job.note(Some(reason));
        }
    }
}

/// Registers the tenant with the daemon that is there, or with a new one.
fn enter(register: Register) -> Result<(Client, Registered)> {
    let question = Question::Register(register);
    let mut waiting = Waiting::default();
    let mut attempts = ATTEMPTS;
    loop {
        let client = daemon::reach_or_start()?;
        attempts -= 1;
        match client.ask(&question) {
            Ok(Answer::Registered(registered)) => {
                if let Some(job) = Job::own() {
                    job.note(None);
                }
                return Ok((client, registered));
            }
            Ok(Answer::Error(error)) => return Err(Misuse(format!("share a GPU: {error}")).into()),
            Ok(Answer::Later(reason)) => {
                waiting.because(&reason);
                std::thread::sleep(AGAIN);
                attempts = ATTEMPTS;
            }
            Ok(_) => bail!("share a GPU: the daemon answered something else"),
            Err(error) if attempts == 0 => return Err(error),
            Err(_) => {}
        }
    }
}
