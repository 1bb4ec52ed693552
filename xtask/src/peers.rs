//! Other people's servers and clients, to compare with: installed from PyPI and Debian by name, each in an
//! environment of its own under `target/peers/NAME`.
//!
//! Setting up what is there already takes no time. What cannot be installed is said loudly and left out: a comparison
//! with fewer peers is still one.

mod environment;
mod triton;
mod tools;

use crate::program::{Program, seconds};
use crate::server::Ports;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use environment::Environment;
use std::path::PathBuf;
use std::time::Instant;

pub(crate) use tools::{debian, magika, perf_analyzer};
pub(crate) use triton::{QUEUES, Queue, Repository};

/// Set up other servers and clients to compare with, from PyPI and Debian, under target/peers.
///
/// Takes minutes and 3 GB the first time and nothing after that. A peer that cannot be installed is named and left out.
///
/// Example: cargo xtask peers triton client
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only these. [default: all]
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
}

const NAMES: [&str; 8] = ["triton", "client", "mlserver", "kserve", "ray", "bentoml", "litserve", "schemathesis"];

/// A server to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Triton,
    Mlserver,
    Kserve,
    Ray,
    Bentoml,
    Litserve,
}

impl Peer {
    pub(crate) const ALL: [Peer; 6] =
        [Peer::Triton, Peer::Mlserver, Peer::Kserve, Peer::Ray, Peer::Bentoml, Peer::Litserve];

    pub(crate) fn name(self) -> &'static str {
        self.environment().name
    }

    /// Its name and version as people write them.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Peer::Triton => "Triton 2.51, Python backend",
            Peer::Mlserver => "MLServer 1.7.1",
            Peer::Kserve => "KServe 0.21",
            Peer::Ray => "Ray Serve 2.60",
            Peer::Bentoml => "BentoML 1.4.39",
            Peer::Litserve => "LitServe 0.2.19",
        }
    }

    fn environment(self) -> &'static Environment {
        match self {
            Peer::Triton => &environment::TRITON,
            Peer::Mlserver => &environment::MLSERVER,
            Peer::Kserve => &environment::KSERVE,
            Peer::Ray => &environment::RAY,
            Peer::Bentoml => &environment::BENTOML,
            Peer::Litserve => &environment::LITSERVE,
        }
    }

    /// Installs it, or does nothing when it is there.
    pub(crate) fn set_up(self, workspace: &Workspace) -> Result<()> {
        self.environment().set_up(workspace)?;
        if self == Peer::Triton { triton::backend(workspace).map(drop) } else { Ok(()) }
    }

    /// Serves the echo model.
    pub(crate) fn serve_echo(self, workspace: &Workspace, ports: &Ports) -> Result<Program> {
        let environment = self.environment();
        let files = workspace.root.join("bench/peers").join(environment.name);
        let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| port.to_string());
        let run = |program: &str| -> Result<Program> { Ok(environment.program(workspace, program)?.folder(&files)) };
        match self {
            Peer::Triton => triton::serve(workspace, &Repository::Echo, ports),
            Peer::Mlserver => {
                let variables = [("HOST", "127.0.0.1"), ("DEBUG", "false"), ("HTTP_PORT", &http), ("GRPC_PORT", &grpc)];
                let program = run("mlserver")?.arguments(["start", "."]).variable("MLSERVER_METRICS_PORT", &metrics);
                let with = |program: Program, (name, value)| program.variable(&format!("MLSERVER_{name}"), value);
                Ok(variables.into_iter().fold(program, with))
            }
            Peer::Kserve => Ok(run("python")?.arguments(["echo.py", "--http_port", &http, "--grpc_port", &grpc])),
            Peer::Ray => Ok(run("python")?.arguments(["echo.py", &http]).variable("RAY_USAGE_STATS_ENABLED", "0")),
            Peer::Bentoml => {
                let arguments = ["serve", "echo:Echo", "--host", "127.0.0.1", "--port", &http];
                Ok(run("bentoml")?.arguments(arguments).variable("BENTOML_DO_NOT_TRACK", "1"))
            }
            Peer::Litserve => Ok(run("python")?.arguments(["echo.py", &http])),
        }
    }
}

/// Triton with one of its model repositories. It must have been set up.
pub(crate) fn serve_triton(workspace: &Workspace, repository: &Repository, ports: &Ports) -> Result<Program> {
    triton::serve(workspace, repository, ports)
}

/// Python with NVIDIA's clients, installed when missing.
pub(crate) fn client_python(workspace: &Workspace) -> Result<Program> {
    environment::CLIENT.set_up(workspace)?;
    environment::CLIENT.program(workspace, "python")
}

/// The fuzzer of described interfaces.
pub(crate) fn schemathesis(workspace: &Workspace) -> Result<Program> {
    environment::SCHEMATHESIS.set_up(workspace)?;
    environment::SCHEMATHESIS.program(workspace, "schemathesis")
}

/// The folder with `cargo-zigbuild`, and with the Zig that it links with.
pub(crate) fn zigbuild(workspace: &Workspace) -> Result<PathBuf> {
    environment::ZIGBUILD.set_up(workspace)?;
    Ok(environment::ZIGBUILD.path(workspace)?.join("bin"))
}

/// Debian's load generator, installed when missing.
pub(crate) fn wrk() -> Result<()> {
    tools::debian("wrk", || Program::new("wrk").arguments(["-v"]).try_quietly().is_ok())
}

pub(crate) fn peers(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|asked| asked == name);
    let mut missing = Vec::new();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        let start = Instant::now();
        let result = match Peer::ALL.into_iter().find(|peer| peer.name() == name) {
            Some(peer) => peer.set_up(workspace),
            None if name == "client" => perf_analyzer(workspace).map(drop),
            None => environment::SCHEMATHESIS.set_up(workspace),
        };
        match result {
            Ok(()) => eprintln!("  ready   {name} ({})", seconds(start.elapsed())),
            Err(error) => {
                say_missing(name, &error);
                missing.push(name);
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { bail!("set up {}: see above", missing.join(", ")) }
}

/// Says that a peer is left out, so that nobody overlooks it.
pub(crate) fn say_missing(name: &str, error: &anyhow::Error) {
    eprintln!("\n  **** {name} COULD NOT BE SET UP AND IS LEFT OUT: {error:#} ****\n");
}

/// Where a peer's environment lies.
fn folder(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    Ok(workspace.output("peers")?.join(name))
}
