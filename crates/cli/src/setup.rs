//! `weft setup`: a Python environment of our own with what workers need, and where to find it.

use crate::output::{Misuse, print};
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use clap::Args;
use node::Onnx;
use share_client::Gpus;
use std::path::{Path, PathBuf};

/// Install what workers need: Python packages and ONNX Runtime, into a folder of their own.
///
/// Creates a Python environment in the state folder and installs numpy and onnxruntime there with pip. Changes nothing
/// outside that folder. A second run is quick. With --gpu, installs onnxruntime-gpu instead, with the CUDA libraries that
/// it needs (some 2 GB), so that ONNX models run on NVIDIA GPUs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// State folder, as in `weft up`
    #[arg(long, value_name = "FOLDER", default_value = ".weft")]
    state: PathBuf,
    /// Install ONNX Runtime for NVIDIA GPUs [default: for the CPU; an existing environment stays as it is]
    #[arg(long)]
    gpu: bool,
}

const EXAMPLES: &str = "\
Examples:
  weft setup
  weft setup --gpu
  weft setup --state /var/lib/weft";

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    crate::logging::start();
    let state = std::path::absolute(&arguments.state)?;
    // What is in another user's folder would be run.
    scheduler::private_folder(&state)?;
    let environment = node::setup_with(&state, arguments.gpu.then_some(Onnx::Gpu))?;
    let gpu = has_gpu();
    print(&format!(
        "Python        {}\nONNX Runtime  {}\nONNX models   {}\n",
        environment.python.display(),
        environment.onnxruntime.display(),
        run_on(environment.onnx, gpu)
    ))?;
    if let Some(advice) = advice(environment.onnx, gpu, &arguments.state) {
        tracing::warn!("{advice}");
    }
    Ok(())
}

/// Whether this machine has an NVIDIA GPU: NVML knows, and the device file is there where NVML is not installed.
fn has_gpu() -> bool {
    !Gpus::find().gpus.is_empty() || Path::new("/dev/nvidia0").exists()
}

/// Where ONNX models will run.
fn run_on(onnx: Onnx, gpu: bool) -> &'static str {
    match (onnx, gpu) {
        (Onnx::Gpu, true) => "run on the GPU",
        (Onnx::Gpu, false) | (Onnx::Cpu, _) => "run on the CPU",
    }
}

/// What somebody may want to know who expects another device.
fn advice(onnx: Onnx, gpu: bool, state: &Path) -> Option<String> {
    match (onnx, gpu) {
        (Onnx::Cpu, true) => Some(format!(
            "this machine has an NVIDIA GPU, and ONNX models will run on the CPU all the same; to change that: weft \
             setup --gpu --state {}",
            state.display()
        )),
        (Onnx::Gpu, false) => {
            Some("this machine has no NVIDIA GPU that the driver knows, so ONNX models will run on the CPU".to_owned())
        }
        (Onnx::Gpu, true) | (Onnx::Cpu, false) => None,
    }
}

/// How the node of this process runs its workers.
pub(crate) fn node_config(settings: &Settings) -> Result<node::Config> {
    let found = node::find_environment(&settings.state);
    let variable = || std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let own = found.as_ref().map(|environment| environment.onnxruntime.clone());
    let onnxruntime = settings.node.onnxruntime.clone().or_else(variable).or(own);
    if let Some(path) = settings.node.onnxruntime.as_ref().filter(|path| !path.exists()) {
        return Err(Misuse(format!(
            "find ONNX Runtime: `onnxruntime` under [node] names {}, which does not exist; name the library, or leave the \
             setting out and run `weft setup`",
            path.display()
        )).into());
    }
    let python = settings.node.python.clone().or(found.map(|environment| environment.python));
    let python = python.unwrap_or_else(|| "python3".into());
    let program = std::env::current_exe().context("find this program")?;
    let mut config = node::Config::new(python, program, settings.state.join("run"));
    let duration = |span: policy::Span| std::time::Duration::from_nanos(span.nanos());
    config.load_timeout = settings.node.load_timeout.map_or(config.load_timeout, duration);
    config.batch_timeout = settings.node.batch_timeout.map_or(config.batch_timeout, duration);
    let library = crate::share::library::find().ok();
    Ok(node::Config { onnxruntime, library, ..config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_onnx_models_will_not_use_is_pointed_out() {
        let advice = |onnx, gpu| advice(onnx, gpu, Path::new(".weft"));
        let said = advice(Onnx::Cpu, true).unwrap();
        assert!(said.contains("will run on the CPU") && said.contains("weft setup --gpu --state .weft"), "{said}");
        assert!(advice(Onnx::Gpu, false).unwrap().contains("no NVIDIA GPU"));
        assert_eq!((advice(Onnx::Cpu, false), advice(Onnx::Gpu, true)), (None, None));
        assert_eq!((run_on(Onnx::Cpu, true), run_on(Onnx::Gpu, true)), ("run on the CPU", "run on the GPU"));
    }
}
