//! `weft demo`: models under load and a training beside them, with nothing to write and nothing left behind.
//!
//! The server, the training and the load are commands that a user could type, each a process that does not outlive this
//! one. Their files are in a temporary folder. Where there is no GPU, a stand-in takes its place: a library under the name
//! of the driver's, which keeps time as a GPU would and computes nothing.

mod model;
mod machine;
mod show;

use crate::output::{Exit, print};
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use clap::Args;
use harness::{INTERRUPTED, Interrupt, Process};
use machine::{Gpu, Ports};
use model::{MAGIKA, Model, RESNET, SENTIMENT, VISION};
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::time::{Duration, Instant};

/// Serve models under load, with a training beside them, and show the dashboard's address.
///
/// Needs no file and no GPU: without one, a stand-in takes its place. Serves an emulated model and models in Python, one of
/// them with a share of the GPU, and runs a best-effort training on the same GPU. Prints how many requests were answered
/// in time. Everything stops with Ctrl-C and nothing stays behind.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Stop after the first table
    #[arg(long)]
    once: bool,
    /// State folder with what `weft setup` installed [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Serve this as well: the ONNX file of magika, which detects types of files
    #[arg(long, value_name = "FILE")]
    magika: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  weft demo
  weft demo --once";

/// How long the server may take to load its models.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to answer what it accepted, once it is asked to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long the load is measured, and how long it goes on before it is begun again.
const MEASURED: Duration = Duration::from_secs(5);
const ROUND: Duration = Duration::from_secs(60);

pub(crate) fn main(arguments: Arguments) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    // Dropped last: what runs in it has ended by then.
    let folder = tempfile::Builder::new().prefix("weft-demo-").tempdir().context("make a temporary folder")?;
    let gpu = Gpu::find(folder.path())?;
    let ports = Ports::find()?;
    let mut models = models(&arguments, &gpu);
    let config = write_files(folder.path(), &arguments, &models)?;
    let settings = Settings::read(&config)?;
    crate::logging::start();
    // Ctrl-C in a terminal reaches pip as well, which ends then.
    crate::setup::prepare(&settings);
    if interrupt.is_set() {
        return Ok(());
    }
    let python = Some(crate::setup::node_config(&settings)?.python).filter(|python| crate::setup::has_numpy(python));
    if python.is_none() {
        say("there is no Python with numpy, so only the emulated model is served, and nothing trains");
        models.retain(|model| model.name == RESNET.name);
        write_files(folder.path(), &arguments, &models)?;
    }

    let demo = Demo { folder: folder.path().to_owned(), gpu, ports, interrupt };
    let outcome = demo.run(&config, python.as_deref(), &models, arguments.once);
    match outcome {
        // Whoever stops what would go on for ever got what they wanted.
        Err(error) if error.is::<Exit>() && demo.interrupt.is_set() => Ok(()),
        outcome => outcome,
    }
}

fn models(arguments: &Arguments, gpu: &Gpu) -> Vec<Model> {
    let mut models = vec![RESNET, SENTIMENT];
    models.extend(gpu.is_there().then_some(VISION));
    models.extend(arguments.magika.is_some().then_some(MAGIKA));
    models
}

/// Writes what is served, and gives the configuration's path.
fn write_files(folder: &Path, arguments: &Arguments, models: &[Model]) -> Result<PathBuf> {
    let state = arguments.state.as_ref().map_or_else(|| Ok(folder.join("state")), std::path::absolute)?;
    let mut text = format!("name = \"demo\"\nstate = {state:?}\n\n[node]\nvirtual_gpus = 4\n");
    for Model { name, slo_ms, .. } in models {
        text += &format!("\n[[model]]\nname = {name:?}\nslo = \"{slo_ms}ms\"\n");
        text += &match *name {
            "resnet50" => "kind = \"virtual\"\nlatency = { alpha = \"1.053ms\", beta = \"5.072ms\" }\n".to_owned(),
            "vision" => "kind = \"python\"\npath = \"vision.py\"\nmax_batch = 8\n\
                         share = { class = \"latency\", request = \"30%\", memory = \"4GiB\" }\n"
                .to_owned(),
            "magika" => {
                let path = std::path::absolute(arguments.magika.as_deref().unwrap_or(Path::new("")))?;
                format!("kind = \"onnx\"\npath = {path:?}\nmax_batch = 4\n")
            }
            _ => format!("kind = \"python\"\npath = \"{name}.py\"\n"),
        };
    }
    let files = [
        ("weft.toml", text.as_str()),
        ("sentiment.py", include_str!("../../../examples/09-serve/sentiment.py")),
        ("vision.py", include_str!("demo/vision.py")),
        ("training.py", include_str!("demo/training.py")),
        ("demo_gpu.py", include_str!("demo/demo_gpu.py")),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(folder.join("weft.toml"))
}

struct Demo {
    folder: PathBuf,
    gpu: Gpu,
    ports: Ports,
    interrupt: Interrupt,
}

impl Demo {
    fn run(&self, config: &Path, python: Option<&Path>, models: &[Model], once: bool) -> Result<()> {
        say(&format!("GPU        {}", self.gpu.what()));
        let mut server = self.start_server(config)?;
        say(&format!("HTTP       http://{}", self.ports.http));
        say(&format!("gRPC       {}", self.ports.grpc));
        say(&format!("dashboard  http://{}/ui", self.ports.metrics));
        // After the server, whose daemon it must find; ended before it.
        let python = python.filter(|_| self.gpu.is_there());
        let training = python.map(|python| self.start_training(python)).transpose()?;
        let outcome = self.load(models, once, &mut server);
        say("stopping");
        drop(training);
        server.ask_to_end();
        server.wait(Instant::now() + END_PATIENCE);
        outcome
    }

    fn load(&self, models: &[Model], once: bool, server: &mut Process) -> Result<()> {
        let loads = models.iter().map(|model| self.start_load(model, MEASURED)).collect::<Result<Vec<_>>>()?;
        say(&format!("measuring for {} s", MEASURED.as_secs()));
        let reports = loads.into_iter().map(|load| self.finish(load, server)).collect::<Result<Vec<_>>>()?;
        print(&show::models(models, &reports))?;
        if let Some(status) = self.gpu.status()? {
            print(&show::tenants(&status))?;
        }
        if let Some((model, _)) = models.iter().zip(&reports).find(|(_, report)| report["good"].as_u64() == Some(0)) {
            anyhow::bail!("answer requests to {} in time: none was", model.name);
        }
        if once {
            return Ok(());
        }
        say(&format!("the load goes on: look at http://{}/ui, and stop with Ctrl-C", self.ports.metrics));
        loop {
            let loads = models.iter().map(|model| self.start_load(model, ROUND)).collect::<Result<Vec<_>>>()?;
            for load in loads {
                self.finish(load, server)?;
            }
        }
    }

    /// `weft` with these words and with the GPU of this demo. It ends with this process.
    fn weft<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(words).current_dir(&self.folder).envs(self.gpu.variables());
        Ok(command)
    }

    fn start_server(&self, config: &Path) -> Result<Process> {
        let addresses = [self.ports.http, self.ports.grpc, self.ports.metrics].map(|address| address.to_string());
        let [http, grpc, metrics] = addresses.each_ref().map(String::as_str);
        let words = ["up", "--with-parent", "--http", http, "--grpc", grpc, "--metrics", metrics];
        let mut command = self.weft(words)?;
        command.arg(config);
        let (mut server, _, output) = Process::start(command).context("start the server")?;
        server.keep(output);
        let until = Instant::now() + START_PATIENCE;
        while !machine::is_ready(self.ports.http) {
            self.alive(&mut server)?;
            if Instant::now() > until {
                let seconds = START_PATIENCE.as_secs();
                anyhow::bail!("load the demo's models within {seconds} s; the server: {}", server.last_words());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn start_training(&self, python: &Path) -> Result<Process> {
        // Without a daemon `weft run` would start one that stays for a while.
        self.gpu.status()?.context("share the GPU: the server's daemon does not answer")?;
        let words = ["run", "--with-parent", "--class", "best-effort", "--name", "training", "--memory", "12GiB", "--"];
        let mut command = self.weft(words)?;
        command.arg(python).arg(self.folder.join("training.py"));
        let (training, _, output) = Process::start(command).context("start the training")?;
        training.keep(output);
        Ok(training)
    }

    fn start_load(&self, model: &Model, duration: Duration) -> Result<(Process, ChildStdout)> {
        let (url, rate) = (format!("http://{}", self.ports.http), model.rate.to_string());
        let (slo, duration) = (format!("{}ms", model.slo_ms), format!("{}s", duration.as_secs()));
        let mut command = self.weft(["load", "--json", "--url", &url, "--model", model.name])?;
        command.args(["--rate", &rate, "--slo", &slo, "--duration", &duration]);
        command.args(model.shape.iter().flat_map(|shape| ["--shape", shape]));
        let (load, _, output) = Process::start(command).context("start the load")?;
        Ok((load, output))
    }

    /// Waits for the report of a load.
    fn finish(
        &self,
        (mut load, mut output): (Process, ChildStdout),
        server: &mut Process,
    ) -> Result<serde_json::Value> {
        while load.ended().is_none() {
            self.alive(server)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut text = String::new();
        output.read_to_string(&mut text).context("read what the load showed")?;
        serde_json::from_str(&text).with_context(|| format!("send load to the server: {}", load.last_words()))
    }

    /// Whether there is any sense in going on.
    fn alive(&self, server: &mut Process) -> Result<()> {
        if self.interrupt.is_set() {
            return Err(Exit { code: INTERRUPTED, text: "go on: stopped".into() }.into());
        }
        if let Some(status) = server.ended() {
            anyhow::bail!("serve the demo's models: the server ended with {status}; {}", server.last_words());
        }
        Ok(())
    }
}

/// Says what goes on, to a person.
fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // A terminal shows ^C where it was typed.
    let start = if text == "stopping" && stderr.is_terminal() { "\r" } else { "" };
    // There may be nobody to tell.
    let _ = writeln!(stderr, "{start}{text}");
}
