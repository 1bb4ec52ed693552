//! A worker with an ONNX model: `weft worker onnx --model FILE --library LIBRARY`.
//!
//! Inputs are used where they lie in shared memory; outputs are copied once, from where ONNX Runtime put them.
//!
//! What a file says about its tensors decides whether there is a batch dimension: there is one when the first dimension
//! of every input is open and so is that of every output whose shape is known. A fixed first dimension on either side
//! means that a request is run as it is (`max_batch` 0), however many the deployment would allow. That an open
//! dimension really is the batch shows in the node's warm-up, which runs a batch of two.

use super::control::{Control, Output};
use super::elements;
use crate::protocol::{Kind, Place, Setup};
use anyhow::{Context, Result, anyhow, bail, ensure};
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Outlet, ValueType};
use rpc::{ModelInfo, TensorSpec};
use rustix::process::{Signal, set_parent_process_death_signal};
use shm::Segment;
use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

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
    let session = Session::builder(&environment)
        .map_err(to_anyhow)?
        .with_intra_threads(setup.threads)
        .map_err(to_anyhow)?
        .with_inter_threads(1)
        .map_err(to_anyhow)?
        // Other workers have a use for the cores while this one waits.
        .with_intra_op_spinning(false)
        .map_err(to_anyhow)?
        .commit_from_file(model)
        .map_err(to_anyhow)
        .with_context(|| format!("load {}", model.display()))?;
    let inputs: Vec<TensorSpec> = session.inputs().iter().map(declare).collect::<Result<_>>()?;
    let outputs: Vec<TensorSpec> = session.outputs().iter().map(declare).collect::<Result<_>>()?;
    let open = |spec: &TensorSpec| spec.shape.first().is_some_and(|dimension| *dimension < 0);
    // A shape that is not known looks like that of a scalar.
    let batched = inputs.iter().all(open) && outputs.iter().all(|output| output.shape.is_empty() || open(output));
    let max_batch = if batched { setup.max_batch } else { 0 };
    Ok((session, ModelInfo { inputs, outputs, max_batch }))
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
    loop {
        let Some((memory, places)) = control.receive()? else { return Ok(()) };
        let inputs = inputs(memory, &places);
        let outputs = inputs.and_then(|inputs| session.run(inputs).map_err(to_anyhow));
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
