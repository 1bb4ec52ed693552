//! A worker with an ONNX model: `weft worker onnx --model FILE --library LIBRARY`.
//!
//! Inputs are used where they lie in shared memory; outputs are copied once, from where ONNX Runtime put them.
//!
//! What a file says about its tensors decides whether there is a batch dimension: there is one when the first dimension
//! of every input is open and so is that of every output whose shape is known. A fixed first dimension on either side
//! means that a request is run as it is (`max_batch` 0), however many the deployment would allow. That an open
//! dimension really is the batch shows in the node's warm-up, which runs a batch of two.
//!
//! Where the worker sees a GPU, ONNX Runtime is asked to use it; `providers.rs` says how. What it did is in the
//! model's `runs_on`.

use super::control::{Control, Output};
use super::elements;
use super::providers::{Choice, Placement, Provider, choose, explain};
use crate::protocol::{Kind, Place, Setup};
use anyhow::{Context, Result, anyhow, bail, ensure};
use config::{Device, TensorSpec};
use ort::environment::Environment;
use ort::logging::{LogLevel, LoggerFunction};
use ort::session::{RunOptions, Session, SessionInputValue};
use ort::value::{DynValue, Outlet, ValueType};
use rpc::{ModelInfo, RunsOn};
use rustix::process::{Signal, set_parent_process_death_signal};
use shm::Segment;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs the worker until its node has no more use for it. `arguments` are those after `worker onnx`.
pub fn onnx(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    // The closed socket ends the worker too, but only between batches.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (model, library) = read_arguments(arguments)?;
    let Some((mut control, setup)) = Control::take()? else { return Ok(()) };
    let (mut session, info) = match load(&model, &library, &setup) {
        Ok(loaded) => loaded,
        Err(error) => {
            control.say(Kind::Failed, &format!("{error:#}"))?;
            return Err(error);
        }
    };
    // Most of the library is touched once, when it registers its operators.
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    shm::give_back(&name);
    control.hello(&info)?;
    serve(&mut control, &mut session, &info)
}

fn read_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<(PathBuf, PathBuf)> {
    let (mut model, mut library) = (None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().map(PathBuf::from);
        match argument.to_str() {
            Some("--model") => model = value,
            Some("--library") => library = value,
            _ => bail!("read the worker's arguments: {} is not one of --model, --library", argument.display()),
        }
    }
    model.zip(library).context("read the worker's arguments: --model and --library are needed")
}

fn load(model: &Path, library: &Path, setup: &Setup) -> Result<(Session, ModelInfo)> {
    let builder = ort::init_from(library).map_err(|error| {
        anyhow!("load ONNX Runtime: {error}. Run `weft setup`, or set `onnxruntime` to its library")
    })?;
    let environment = builder.with_telemetry(false).build().map_err(to_anyhow)?;
    ensure!(model.exists(), "read {}: there is no such file", model.display());
    let offered = Provider::offered().map_err(to_anyhow).context("ask ONNX Runtime for its execution providers")?;
    let choice = choose(&offered, setup.device, setup.gpu).map_err(anyhow::Error::msg)?;
    let (session, runs_on) = open(&environment, model, setup, choice)?;
    let inputs: Vec<TensorSpec> = session.inputs().iter().map(declare).collect::<Result<_>>()?;
    let outputs: Vec<TensorSpec> = session.outputs().iter().map(declare).collect::<Result<_>>()?;
    let open = |spec: &TensorSpec| spec.shape.first().is_some_and(|dimension| *dimension < 0);
    // A shape that is not known looks like that of a scalar.
    let batched = inputs.iter().all(open) && outputs.iter().all(|output| output.shape.is_empty() || open(output));
    let max_batch = if batched { setup.max_batch } else { 0 };
    Ok((session, ModelInfo { inputs, outputs, max_batch, runs_on: Some(runs_on) }))
}

/// Makes a session with the first providers that can be used, and says what it runs on.
fn open(environment: &Environment, model: &Path, setup: &Setup, choice: Choice) -> Result<(Session, RunsOn)> {
    let mut failed: Vec<(Provider, String)> = Vec::new();
    for providers in &choice.attempts {
        let first = providers[0];
        match open_with(environment, model, setup, providers) {
            Ok((session, placement)) => {
                let runs_on = placement.runs_on(providers, choice.reason.or_else(|| explain(&failed)));
                if setup.device == Device::Gpu && runs_on.device != "gpu" {
                    bail!("run it on a GPU: none of its operators can run there; deploy it with `device = \"cpu\"`");
                }
                return Ok((session, runs_on));
            }
            Err(error) if first == Provider::Cpu => return Err(error),
            Err(error) => failed.push((first, format!("{error:#}"))),
        }
    }
    bail!("run it on a GPU: {}", explain(&failed).unwrap_or_default())
}

/// Makes a session with these providers, and says which of them has how many of the model's operators.
fn open_with(
    environment: &Environment,
    model: &Path,
    setup: &Setup,
    providers: &[Provider],
) -> Result<(Session, Placement)> {
    let placement = Arc::new(Mutex::new(Some(Placement::default())));
    let mut builder = Session::builder(environment)
        .map_err(to_anyhow)?
        .with_intra_threads(setup.threads)
        .map_err(to_anyhow)?
        .with_inter_threads(1)
        .map_err(to_anyhow)?
        // Other workers have a use for the cores while this one waits.
        .with_intra_op_spinning(false)
        .map_err(to_anyhow)?
        // Where operators are placed is said at this level alone. Runs have one of their own.
        .with_log_level(LogLevel::Verbose)
        .map_err(to_anyhow)?
        .with_logger(logger(placement.clone()))
        .map_err(to_anyhow)?;
    for provider in providers {
        provider.register(setup.gpu.unwrap_or_default(), &mut builder).map_err(to_anyhow)?;
    }
    let session = builder.commit_from_file(model).map_err(to_anyhow);
    let session = session.with_context(|| format!("load {}", model.display()))?;
    let placement = placement.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((session, placement.unwrap_or_default()))
}

/// Reads where operators are placed until that is taken, and prints errors.
fn logger(placement: Arc<Mutex<Option<Placement>>>) -> LoggerFunction {
    Arc::new(move |level, _, _, _, message| {
        if level >= LogLevel::Error {
            // A worker whose standard error is closed has nobody to tell.
            let _ = writeln!(std::io::stderr(), "ONNX Runtime: {message}");
        } else if let Some(placement) = &mut *placement.lock().unwrap_or_else(PoisonError::into_inner) {
            placement.read(message);
        }
    })
}

fn declare(outlet: &Outlet) -> Result<TensorSpec> {
    let name = outlet.name();
    match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => {
            let datatype =
                elements::datatype(*ty).with_context(|| format!("serve `{name}`: there is no type for {ty}"))?;
            Ok(TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() })
        }
        other => bail!("serve `{name}`: it is a {other}, and only tensors can be served"),
    }
}

fn serve(control: &mut Control, session: &mut Session, info: &ModelInfo) -> Result<()> {
    let mut quietly = RunOptions::new().map_err(to_anyhow)?;
    quietly.set_log_level(LogLevel::Error).map_err(to_anyhow)?;
    loop {
        let Some((memory, places)) = control.receive()? else { return Ok(()) };
        let inputs = inputs(memory, &places);
        let outputs = inputs.and_then(|inputs| session.run_with_options(inputs, &quietly).map_err(to_anyhow));
        drop(places);
        let said = outputs.and_then(|outputs| {
            let values: Vec<_> = outputs.values().collect();
            let output = |(value, spec)| read_output(value, spec);
            let outputs: Vec<Output<'_>> =
                values.iter().map(Deref::deref).zip(&info.outputs).map(output).collect::<Result<_>>()?;
            control.answer(&outputs)
        });
        if let Err(error) = said {
            control.say(Kind::Refuse, &format!("{error:#}"))?;
        }
    }
}

fn read_output<'a>(value: &'a DynValue, spec: &'a TensorSpec) -> Result<Output<'a>> {
    let (shape, data) =
        elements::output(value, spec.datatype).with_context(|| format!("read output `{}`", spec.name))?;
    Ok(Output { name: &spec.name, datatype: spec.datatype, shape, data })
}

type Inputs<'a> = Vec<(Cow<'a, str>, SessionInputValue<'a>)>;

fn inputs<'a>(memory: &'a Segment, places: &'a [Place<'a>]) -> Result<Inputs<'a>> {
    let input = |place: &'a Place<'a>| {
        let data = memory.bytes(place.offset..place.offset + place.bytes)?;
        let value = elements::input(place.datatype, &place.shape, data)
            .with_context(|| format!("read input `{}`", place.name))?;
        Ok((Cow::Borrowed(place.name), value))
    };
    places.iter().map(input).collect()
}

/// Errors of ONNX Runtime as text: some carry what they recover from, which must not travel.
fn to_anyhow<T>(error: ort::Error<T>) -> anyhow::Error {
    anyhow!("{error}")
}
