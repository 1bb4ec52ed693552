//! `weft setup`: a Python environment of our own with what workers need, and where to find it.

use crate::output::{Misuse, print};
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use clap::Args;
use config::Kind;
use indicatif::{ProgressBar, ProgressStyle};
use node::{Environment, Installed, Onnx};
use share_client::Gpus;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Install what workers need: Python packages and ONNX Runtime, into a folder of their own.
///
/// Creates a Python environment in the state folder and installs numpy and onnxruntime there with pip. Changes nothing
/// outside that folder. A second run is quick, and there is nothing to do where `pip install 'weft[onnx]'` installed both
/// beside Weft. Gives up after 30 minutes. With --gpu, installs onnxruntime-gpu instead, with the CUDA libraries that
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
    let wanted = arguments.gpu.then_some(Onnx::Gpu);
    let installed = node::installed(&std::env::current_exe().context("find this program")?);
    let is_wanted = |onnx: Onnx| wanted.is_none_or(|wanted| wanted == onnx);
    let beside = installed.clone().and_then(|Installed { python, onnxruntime, .. }| {
        let (onnxruntime, onnx) = onnxruntime.filter(|(_, onnx)| is_wanted(*onnx))?;
        Some(Environment { python, onnxruntime, onnx })
    });
    let own = node::find_environment(&state).filter(|own| is_wanted(own.onnx));
    let mut environment = match own.or(beside) {
        Some(environment) => environment,
        None => make(&state, wanted)?,
    };
    if let Some(python) = python(installed.as_ref(), Some(&environment)) {
        environment.python = python;
    }
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

/// Makes the environment in a state folder, or finds it there, and shows what is being done.
fn make(state: &Path, onnx: Option<Onnx>) -> Result<Environment> {
    // What is in another user's folder would be run.
    scheduler::private_folder(state)?;
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}").expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(100));
    let made = node::setup_with(state, onnx, &mut |doing| bar.set_message(doing.to_owned()));
    bar.finish_and_clear();
    made
}

/// Sets up what the models of the configuration need and this machine does not have. What cannot be had is said, and the
/// server starts all the same: it says so again of each model that is missing it.
pub(crate) fn prepare(settings: &Settings) {
    let config = match node_config(settings) {
        // What is wrong with the settings is said when they are used.
        Err(_) => return,
        Ok(config) => config,
    };
    let missing = settings.models.iter().any(|model| match &model.kind {
        Kind::Onnx { .. } => config.onnxruntime.is_none(),
        Kind::Python { .. } => settings.node.python.is_none() && !has_numpy(&config.python),
        Kind::Virtual { .. } => false,
    });
    if !missing {
        return;
    }
    tracing::info!(state = %settings.state.display(), "first use: installing what workers need, as `weft setup` does");
    if let Err(error) = make(&settings.state, None) {
        tracing::warn!("not all models can run: failed to {error:#}");
    }
}

/// Whether models in Python could run.
pub(crate) fn has_numpy(python: &Path) -> bool {
    let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('numpy') is None)";
    let run = Command::new(python).args(["-I", "-c", look]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
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

/// The Python of models, where the configuration names none: the one that Weft was installed into, unless only the one of
/// `weft setup` has numpy.
fn python(installed: Option<&Installed>, made: Option<&Environment>) -> Option<PathBuf> {
    let made = made.map(|made| made.python.clone());
    match installed {
        Some(installed) if installed.numpy || made.is_none() => Some(installed.python.clone()),
        _ => made,
    }
}

/// How the node of this process runs its workers. What is written in the configuration comes first. Without it, models in
/// Python run on the Python that Weft was installed into, with the packages that are there, or on that of `weft setup`; ONNX
/// Runtime is that of `weft setup`, which somebody asked for, or the one beside Weft.
pub(crate) fn node_config(settings: &Settings) -> Result<node::Config> {
    let program = std::env::current_exe().context("find this program")?;
    let made = node::find_environment(&settings.state);
    let installed = node::installed(&program);
    if let Some(path) = settings.node.onnxruntime.as_ref().filter(|path| !path.exists()) {
        return Err(Misuse(format!(
            "find ONNX Runtime: `onnxruntime` under [node] names {}, which does not exist; name the library, or leave the \
             setting out and run `weft setup`",
            path.display()
        )).into());
    }
    let variable = || std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let own = || made.as_ref().map(|made| made.onnxruntime.clone());
    let beside = || installed.as_ref().and_then(|installed| Some(installed.onnxruntime.as_ref()?.0.clone()));
    let onnxruntime = settings.node.onnxruntime.clone().or_else(variable).or_else(own).or_else(beside);
    let found = || python(installed.as_ref(), made.as_ref());
    let python = settings.node.python.clone().or_else(found).unwrap_or_else(|| "python3".into());
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
    fn models_run_on_a_python_with_numpy() {
        let made = Environment { python: "made".into(), onnxruntime: "library".into(), onnx: Onnx::Cpu };
        let installed = |numpy: bool| Installed { python: "installed".into(), numpy, onnxruntime: None };
        for (beside, setup, expected) in [
            (None, None, None),
            (None, Some(&made), Some("made")),
            (Some(true), Some(&made), Some("installed")),
            (Some(false), Some(&made), Some("made")),
            (Some(false), None, Some("installed")),
        ] {
            let found = python(beside.map(installed).as_ref(), setup);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{beside:?}, {setup:?}");
        }
    }

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
