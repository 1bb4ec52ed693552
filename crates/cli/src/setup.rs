//! `weft setup`: a Python environment of our own with what workers need, and where to find it.

use crate::output::{Misuse, print};
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;

/// Install what workers need: Python packages and ONNX Runtime, into a folder of their own.
///
/// Makes a Python environment under the state folder and installs numpy and onnxruntime there with pip. Nothing
/// outside that folder changes. Running it again is quick.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The state folder, as in `weft up`.
    #[arg(long, value_name = "FOLDER", default_value = ".weft")]
    state: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  weft setup
  weft setup --state /var/lib/weft";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let environment = node::setup(&std::path::absolute(&arguments.state)?)?;
    print(&format!(
        "Python        {}\nONNX Runtime  {}\n",
        environment.python.display(),
        environment.onnxruntime.display()
    ))
}

/// How the node of this process runs its workers.
pub(crate) fn node_config(settings: &Settings) -> Result<node::Config> {
    let found = node::find_environment(&settings.state);
    let variable = || std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let own = found.as_ref().map(|environment| environment.onnxruntime.clone());
    let onnxruntime = settings.node.onnxruntime.clone().or_else(variable).or(own);
    if let Some(path) = settings.node.onnxruntime.as_ref().filter(|path| !path.exists()) {
        return Err(Misuse(format!("`onnxruntime` under [node] names {}, which is not there", path.display())).into());
    }
    let python = settings.node.python.clone().or(found.map(|environment| environment.python));
    let python = python.unwrap_or_else(|| "python3".into());
    let program = std::env::current_exe().context("find this program")?;
    let config = node::Config::new(python, program, settings.state.join("run"));
    let library = crate::share::library::find().ok();
    Ok(node::Config { onnxruntime, library, ..config })
}
