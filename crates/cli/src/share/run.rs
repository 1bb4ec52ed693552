//! `weft run`: a program under a share.
//!
//! The tenant is registered and then this process becomes the program: its number, terminal, signals, files, working
//! folder and exit code are the program's own, because nothing is between. The connection to the daemon stays open in
//! it and in whatever it starts, and tells the daemon how long the tenant lives.

use super::{ShareArguments, daemon, library, program, supervise};
use crate::output::{Exit, Misuse};
use anyhow::{Context, Result, bail};
use clap::Args;
use node::sharing::{Answer, Client, Question, Register, Registered, environment};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Run a program under a share of a GPU.
///
/// The program is not changed and does not notice: signals, exit code, input, output and working folder are as if it
/// had been started by itself. The share can be changed while it runs, with `weft set`. Where no daemon shares GPUs
/// yet, one is started; it ends a minute after the last program.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    /// The GPU to run on: its number, or its UUID or the beginning of it
    #[arg(long, value_name = "N|UUID")]
    gpu: Option<String>,
    /// Share the GPU's hardware in `time`, in turns, or in `space`, side by side under MPS; `auto` is what the daemon
    /// finds best
    #[arg(id = "way", long = "share", value_name = "WAY")]
    share_in: Option<rpc::Way>,
    /// What `weft set` and `weft top` call it [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// Run it in the background: `weft jobs` tells how it is, and where what it prints is kept
    #[arg(long)]
    detach: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  weft run --class latency -- python serve.py
  weft run --class best-effort --memory 20GiB -- python train.py
  weft run --request 30% --limit 60% --gpu 0 --name trainer -- ./train --epochs 3
  weft run --detach --class best-effort --name trainer -- python train.py
  weft set trainer --limit 40%";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let name = arguments.program.first().context("run nothing: name a program")?;
    let file = program::find(name, std::env::var_os("PATH"))?;
    let asked = arguments.share.asked(arguments.gpu.clone(), arguments.share_in);
    // What makes no sense anywhere is said before anything is started.
    rpc::Share::try_from(asked.clone()).map_err(|problem| Misuse(format!("share a GPU: {problem}")))?;
    let library = library::find()?;
    let own_name = Path::new(name).file_name().unwrap_or(name).to_string_lossy().into_owned();
    if arguments.detach {
        return supervise::start(&arguments.name.unwrap_or(own_name), &arguments.program);
    }
    let register = Register {
        rename: arguments.name.is_none(),
        name: arguments.name.unwrap_or(own_name),
        process: true,
        share: asked,
        command: Some(command_hash(&arguments.program)),
    };
    let (client, registered) = enter(register)?;

    let mut command = Command::new(&file);
    command.arg0(name).args(&arguments.program[1..]);
    command.envs(environment(&client.place, &registered, &library, std::env::var_os("LD_PRELOAD")));
    let _connection = client.survive_exec()?;
    let error = command.exec();
    Err(Exit { code: 126, text: format!("run {}: {error}", file.display()) }.into())
}

/// What is run, as the daemon knows it again.
fn command_hash(words: &[OsString]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect();
    shm::stable_hash(&bytes)
}

/// Registers the tenant with the daemon that is there, or with a new one.
fn enter(register: Register) -> Result<(Client, Registered)> {
    let question = Question::Register(register);
    // A daemon may end, for want of tenants, just after it was found.
    let mut attempts = 3;
    loop {
        let client = daemon::reach_or_start()?;
        attempts -= 1;
        match client.ask(&question) {
            Ok(Answer::Registered(registered)) => return Ok((client, registered)),
            Ok(Answer::Error(error)) => return Err(Misuse(format!("share a GPU: {error}")).into()),
            Ok(_) => bail!("share a GPU: the daemon answered something else"),
            Err(error) if attempts == 0 => return Err(error),
            Err(_) => {}
        }
    }
}
