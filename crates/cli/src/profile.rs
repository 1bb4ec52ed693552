//! `weft profile`: which batch and which part of a GPU suit a model, from measurements.

mod model;
mod private;
mod training;
mod file;
mod find;
mod show;
mod accuracy;

use crate::admin::Server;
use crate::output::Misuse;
use anyhow::Result;
use clap::{ArgGroup, Args, Subcommand};
use load::{Inputs, Shape, Url};
use policy::Span;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Find the batch and the part of a GPU that suit a model, with few measurements.
///
/// Measures a model that a running `weft up` serves, or one in a file, for which it starts a server. Finds the batch and
/// share that answer the most requests for each percent of the GPU while a batch meets the objective. Each measurement sends
/// batches of one size through the server one after the other, and decides what to measure next. Shares limit the workers'
/// time on the GPU; the profiler restores them at the end, and after Ctrl-C. Without a GPU it measures batches only. Prints
/// the result and writes a profile, which stays valid until the model, the GPU or the driver changes.
///
/// With --training, runs a program and finds the smallest shares that keep 80% (request) and 98% (limit) of its speed with
/// the whole GPU: in steps a second if the program reports them, else in kernels and graphs launched.
///
/// With --from-grid, searches existing measurements as it would search a GPU: a CSV file with a row for each batch and
/// share: batch, SM percent, latency in seconds, requests a second.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = ArgGroup::new("what").args(["subject", "training", "from_grid"]).required(true))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Name of a served model, or an .onnx or .py file
    #[arg(value_name = "MODEL")]
    subject: Option<String>,

    /// Profile the training program that follows after --
    #[arg(long, requires = "program")]
    training: bool,

    /// Longest latency of a batch, such as 40ms [default: the deployment's objective]
    #[arg(long, value_name = "TIME", required_unless_present_any = ["subject", "training"], conflicts_with = "training")]
    slo: Option<Span>,

    /// GPU to measure on: its number, its UUID or the beginning of it; with --save its name [default: the workers']
    #[arg(long, value_name = "N|UUID|NAME")]
    gpu: Option<String>,

    /// File for the profile [default: MODEL.profile.json]
    #[arg(short, long, value_name = "FILE", conflicts_with = "from_grid")]
    output: Option<PathBuf>,

    /// Measure everything again and replace the profile
    #[arg(long, conflicts_with = "from_grid")]
    again: bool,

    /// Approximate length of each measurement
    #[arg(long, value_name = "TIME", default_value = "2s", conflicts_with = "from_grid", value_parser = probe)]
    probe: Duration,

    /// Largest batch of a model in a file; 0: no batch dimension [default: 32]
    #[arg(long, value_name = "N", conflicts_with_all = ["training", "from_grid"])]
    max_batch: Option<usize>,

    /// Shape of an input that leaves dimensions open, batch included, like image:1x3x224x224; may be repeated
    #[arg(long = "shape", value_name = "INPUT:SHAPE", conflicts_with_all = ["training", "from_grid"])]
    shapes: Vec<Shape>,

    /// Content of the input tensors: zeros or random
    #[arg(long, value_name = "zeros|random", default_value = "zeros", value_parser = inputs)]
    inputs: Inputs,

    #[command(flatten)]
    server: Server,

    /// HTTP address of the server
    #[arg(long, default_value = "http://127.0.0.1:8000", conflicts_with_all = ["training", "from_grid"])]
    url: Url,

    /// Key that is sent with each request as a bearer token [default: none]
    #[arg(long, value_name = "KEY", conflicts_with_all = ["training", "from_grid"])]
    api_key: Option<String>,

    #[command(flatten)]
    grid: find::Arguments,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Training program and its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "training")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  weft profile sentiment --slo 40ms
  weft profile sentiment.py --slo 40ms -o sentiment.json
  weft profile --training -- python train.py
  weft profile show sentiment.json
  weft profile --from-grid examples/11-profile/resnet.csv --slo 40ms --json | jq .share
  weft profile accuracy examples/11-profile/resnet.csv";

#[derive(Debug, Subcommand)]
enum Command {
    Show(show::Arguments),
    Accuracy(accuracy::Arguments),
}

/// Does what was asked for.
pub(crate) fn main(arguments: Arguments) -> Result<()> {
    match &arguments.command {
        Some(Command::Show(arguments)) => return show::main(arguments),
        Some(Command::Accuracy(arguments)) => return accuracy::main(arguments),
        None => {}
    }
    let (gpu, output, again) = (arguments.gpu.as_deref(), arguments.output.as_deref(), arguments.again);
    let (probe, json) = (arguments.probe, arguments.json);
    if arguments.training {
        let words = &arguments.program;
        return training::main(&training::Asked { words, gpu, output, again, probe, json });
    }
    let Some(model) = &arguments.subject else {
        let Some(slo) = arguments.slo else { return Err(Misuse("find a point: give --slo".to_owned()).into()) };
        return find::main(&arguments.grid, &find::Asked { slo, gpu, json });
    };
    model::main(&model::Asked {
        model,
        slo: arguments.slo,
        gpu,
        output,
        again,
        probe,
        max_batch: arguments.max_batch,
        shapes: &arguments.shapes,
        inputs: &arguments.inputs,
        server: &arguments.server,
        url: &arguments.url,
        api_key: arguments.api_key.as_deref(),
        json,
    })
}

/// How long a point is measured.
fn probe(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let allowed = Span::from_millis(100)..=Span::from_secs(600);
    match allowed.contains(&span) {
        true => Ok(Duration::from_nanos(span.nanos())),
        false => Err("expected 100ms to 10 minutes".into()),
    }
}

fn inputs(text: &str) -> Result<Inputs, String> {
    match text {
        "zeros" => Ok(Inputs::Zeros),
        "random" => Ok(Inputs::Random),
        _ => Err("expected zeros or random".into()),
    }
}
