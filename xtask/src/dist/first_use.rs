//! What somebody meets who installs Weft: the wheel goes into an empty environment, and a model of their own answers.
//!
//! Commands run outside of the repository, with nothing on the path but the environment: no Cargo, no compiler, no other
//! Python. They see no variable of whoever started the check.

use super::build;
use super::files::write;
use super::pack::Pack;
use crate::program::{Program, seconds};
use crate::server::{Ports, Server};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// Install the wheel of the release build into an empty environment, serve a model with it, and run the demo.
///
/// Says how long it took from `pip install` to the first answer. Also tries it without NVML, /dev/shm and numpy.
///
/// Example: cargo xtask first-use
/// Example: cargo xtask first-use --wheel target/packages/weft-0.1.0-py3-none-manylinux_2_28_x86_64.whl
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Install this wheel instead, such as the one that `cargo xtask dist` made.
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
}

/// What is said of the time from the first command to the first answer.
const GOAL: Duration = Duration::from_secs(60);
/// How long anything is waited for: longer than it takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

const MODEL: &str = "\
import weft


class Double(weft.Model):
    inputs = [weft.Tensor('x', 'FP32', [-1, 2])]
    outputs = [weft.Tensor('y', 'FP32', [-1, 2])]

    def predict(self, inputs):
        return {'y': inputs['x'] * 2}
";
const REQUEST: &str = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -4]}]}"#;

pub(crate) fn first_use(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    match &arguments.wheel {
        None => check(workspace),
        Some(wheel) => use_wheel(&std::path::absolute(wheel).context("find the wheel")?),
    }
}

/// Installs the wheel of the release build and uses it.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let wheel = Pack::begin(workspace, &build::release(workspace)?, "first-use")?.wheel()?;
    use_wheel(&wheel)
}

fn use_wheel(wheel: &Path) -> Result<()> {
    let wheel = wheel.to_str().context("name the wheel: its path is not text")?;
    let folder = tempfile::tempdir().context("make a folder outside of the repository")?;
    let shared = objects();

    let start = Instant::now();
    let user = User::install(folder.path().join("user"), &[wheel])?;
    let installed = start.elapsed();
    user.serve_a_model()?;
    let took = start.elapsed();
    eprintln!(
        "  from `pip install` to the first answer: {} ({} of it pip), the goal is {}",
        seconds(took),
        seconds(installed),
        seconds(GOAL)
    );
    ensure!(user.python(["-m", "weft", "--version"]).read()?.starts_with("weft "), "run python -m weft");
    user.finish_the_demo()?;
    user.interrupt_the_demo()?;
    user.lack_nvml()?;
    user.lack_shared_memory()?;
    User::install(folder.path().join("bare"), &["--no-deps", wheel])?.lack_numpy()?;

    let left: Vec<String> = objects().difference(&shared).cloned().collect();
    ensure!(left.is_empty(), "leave nothing in /dev/shm; these were not there before: {}", left.join(", "));
    Ok(())
}

/// What is in the machine's shared memory, as far as it is ours.
fn objects() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("weft") || name.contains("fakecuda")).collect()
}

/// Somebody with an environment and a folder of their own.
struct User {
    home: PathBuf,
}

impl User {
    /// Makes an environment and has `pip` install this.
    fn install(home: PathBuf, packages: &[&str]) -> Result<User> {
        let user = User { home };
        for folder in ["project", "tmp"] {
            let folder = user.home.join(folder);
            std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let environment = user.environment().to_string_lossy().into_owned();
        Program::new("python3").arguments(["-m", "venv", &environment]).run()?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        // With the user's settings: they say where packages come from.
        let pip = Program::new(user.environment().join("bin/python")).folder(&user.home);
        pip.arguments(install.into_iter().chain(packages.iter().copied())).run()?;
        Ok(user)
    }

    fn environment(&self) -> PathBuf {
        self.home.join("environment")
    }

    fn project(&self) -> PathBuf {
        self.home.join("project")
    }

    /// A program of the environment, with nothing else to be found.
    fn program<'a>(&self, name: &str, words: impl IntoIterator<Item = &'a str>) -> Program {
        let programs = self.environment().join("bin");
        let program = Program::new(programs.join(name)).arguments(words).folder(&self.project()).without_all();
        let program = program.variable("PATH", &programs).variable("HOME", &self.home);
        program.variable("TMPDIR", self.home.join("tmp")).variable("WEFT_SOCKET", self.home.join("node.sock"))
    }

    fn weft<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Program {
        self.program("weft", words)
    }

    fn python<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Program {
        self.program("python", words)
    }

    fn start_server(&self) -> Result<Server> {
        let ports = Ports::free();
        let addresses = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
        let [http, grpc, metrics] = addresses.each_ref().map(String::as_str);
        let up = self.weft(["up", "--http", http, "--grpc", grpc, "--metrics", metrics]);
        let mut server = Server::start("weft", up, ports, &self.home)?;
        server.wait_until_ready(PATIENCE)?;
        Ok(server)
    }

    /// A model in a file, served and asked.
    fn serve_a_model(&self) -> Result<()> {
        write(&self.project().join("double.py"), MODEL)?;
        let server = self.start_server()?;
        self.weft(["deploy", "double", "double.py", "--slo", "1s"]).run()?;
        let (status, answer) = server.post("/v2/models/double/infer", REQUEST)?;
        ensure!(status == 200 && answer.contains("[3.0,-8.0]"), "ask the model: {status} {answer}");
        server.stop()?;
        self.nothing_runs()
    }

    fn finish_the_demo(&self) -> Result<()> {
        let (status, printed) = self.weft(["demo", "--once"]).try_quietly()?;
        ensure!(status == Some(0), "run weft demo --once: exit status {status:?}\n{printed}");
        for expected in ["a stand-in", "resnet50", "sentiment", "vision", "training", "best-effort", "/ui"] {
            // A machine with a GPU shows that.
            let is_there = printed.contains(expected) || (expected == "a stand-in" && has_gpu());
            ensure!(is_there, "find {expected} in what weft demo printed:\n{printed}");
        }
        eprintln!("{}", printed.lines().map(|line| format!("  | {line}\n")).collect::<String>().trim_end());
        self.nothing_stays()
    }

    /// Ctrl-C while the load goes on.
    fn interrupt_the_demo(&self) -> Result<()> {
        let log = self.home.join("demo.log");
        let mut demo = Ended(self.weft(["demo"]).start(&log)?);
        let until = Instant::now() + PATIENCE;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        while !said().contains("Ctrl-C") {
            ensure!(
                demo.0.try_wait().context("look after the demo")?.is_none(),
                "run weft demo: it ended:\n{}",
                said()
            );
            ensure!(Instant::now() < until, "run weft demo: no load after {}:\n{}", seconds(PATIENCE), said());
            std::thread::sleep(Duration::from_millis(50));
        }
        Program::new("kill").arguments(["-INT", &demo.0.id().to_string()]).read()?;
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match demo.0.try_wait().context("look after the demo")? {
                Some(status) => break status,
                None if Instant::now() > until => bail!("stop weft demo: it still runs after {}", seconds(PATIENCE)),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        ensure!(status.success(), "stop weft demo with Ctrl-C: {status}:\n{}", said());
        self.nothing_stays()
    }

    /// Without NVIDIA's library there is no GPU to share, and that is said.
    fn lack_nvml(&self) -> Result<()> {
        let doctor = self.weft(["doctor"]).variable("WEFT_NVML", "/not/there/libnvidia-ml.so.1");
        says(doctor, "NVML (/not/there/libnvidia-ml.so.1) is not installed, so there is no GPU")
    }

    /// Without `/dev/shm` models are served all the same: what Weft shares has no name there.
    fn lack_shared_memory(&self) -> Result<()> {
        let script = "mount -t tmpfs -o ro,mode=000,size=4k none /dev/shm && exec \"$@\"";
        let within = |words: &[&str]| {
            let isolated = ["--mount", "--map-root-user", "sh", "-c", script, "sh"];
            Program::new("unshare").arguments(isolated.into_iter().chain(words.iter().copied())).folder(&self.home)
        };
        if !within(&["true"]).works() {
            eprintln!("\n  **** NOT TRIED WITHOUT /dev/shm: THIS USER MAY NOT MOUNT ANYTHING (unshare --mount) ****\n");
            return Ok(());
        }
        let weft = self.environment().join("bin/weft").to_string_lossy().into_owned();
        let tmp = self.home.join("tmp");
        let (status, printed) = within(&[&weft, "demo", "--once"]).variable("TMPDIR", tmp).try_quietly()?;
        ensure!(status == Some(0), "run weft demo without /dev/shm: exit status {status:?}\n{printed}");
        self.nothing_stays()
    }

    /// A model in Python cannot run, and `deploy` says what to do.
    fn lack_numpy(&self) -> Result<()> {
        write(&self.project().join("double.py"), MODEL)?;
        let server = self.start_server()?;
        let told =
            says(self.weft(["deploy", "double", "double.py"]), "has no numpy, which models in Python need; install it");
        write(&self.project().join("network.onnx"), "")?;
        let onnx = says(self.weft(["deploy", "network", "network.onnx"]), "run `weft setup`");
        server.stop()?;
        told.and(onnx)
    }

    fn nothing_stays(&self) -> Result<()> {
        let left = std::fs::read_dir(self.home.join("tmp")).context("list the temporary files")?;
        let left: Vec<PathBuf> = left.flatten().map(|entry| entry.path()).collect();
        ensure!(left.is_empty(), "leave no temporary files: {left:?}");
        ensure!(!self.home.join("node.sock").exists(), "leave no daemon's socket");
        self.nothing_runs()
    }

    /// No process runs a program of the environment.
    fn nothing_runs(&self) -> Result<()> {
        let running = || -> Vec<String> {
            let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
            let words = processes.filter_map(|path| std::fs::read(path.join("cmdline")).ok());
            let lines = words.map(|words| String::from_utf8_lossy(&words).replace('\0', " "));
            lines.filter(|line| line.contains(&*self.home.to_string_lossy())).collect()
        };
        // A process that was killed may take a moment.
        let until = Instant::now() + Duration::from_secs(10);
        while !running().is_empty() {
            ensure!(Instant::now() < until, "leave no processes: {:#?}", running());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A program that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_gpu() -> bool {
    Path::new("/dev/nvidia0").exists()
}

/// Runs what must fail with a sentence.
fn says(program: Program, sentence: &str) -> Result<()> {
    let shown = program.shown().to_owned();
    let (status, printed) = program.try_quietly()?;
    ensure!(status.is_some_and(|status| status != 0), "fail: `{shown}` ended with {status:?}\n{printed}");
    ensure!(printed.contains(sentence), "find \"{sentence}\" in what `{shown}` said:\n{printed}");
    eprintln!("  says    {}", printed.lines().last().unwrap_or_default());
    Ok(())
}
