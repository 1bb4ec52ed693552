//! Looks at the stand-in GPUs from outside.
//!
//! `fakecuda-state` prints one line for each process on each GPU, those that ended as well; the state is the one that
//! `FAKECUDA_STATE` names. `fakecuda-state install FOLDER` makes a folder with the libraries' names in it.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is this program's job")]

use fakecuda::{install, state, truth};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => truth::read(&state::default_path(), state::machine_from_environment())
            .map(|truths| print!("{}", truth::text(&truths))),
        ["install", folder] => install::library().and_then(|library| install::install(&library, Path::new(folder))),
        _ => {
            eprintln!("usage: fakecuda-state [install FOLDER]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to look at the stand-in GPUs: {error}");
            ExitCode::FAILURE
        }
    }
}
