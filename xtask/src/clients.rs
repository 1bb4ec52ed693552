//! Other people's clients against a server: NVIDIA's `tritonclient` and `perf_analyzer`.

use crate::peers::{self, Peer, Repository};
use crate::program::Program;
use crate::server::{Ports, Question, Server};
use crate::serving::{echo_question, serve_weft};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Run NVIDIA's tritonclient and perf_analyzer against weft, or against Triton itself.
///
/// Every call of the client, HTTP and gRPC, and perf_analyzer in twelve modes, with the models echo and types from
/// bench/. What weft answers is compared with tests/clients/triton.json, which is what Triton answered.
///
/// Example: cargo xtask clients triton
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Which server to start and ask.
    #[arg(default_value = "weft")]
    server: Which,
    /// Write tests/clients/triton.json anew; only with triton.
    #[arg(long)]
    record: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Weft,
    Triton,
}

const RECORDED: &str = "tests/clients/triton.json";

/// Asks weft, which must have been built, and compares.
pub(crate) fn ask_weft(workspace: &Workspace) -> Result<()> {
    clients(workspace, &Arguments { server: Which::Weft, record: false })
}

pub(crate) fn clients(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let triton = arguments.server == Which::Triton;
    if arguments.record && !triton {
        bail!("record what weft answers: only Triton's answers are recorded");
    }
    let ports = Ports::free();
    let (name, program) = if triton {
        Peer::Triton.set_up(workspace)?;
        ("triton", peers::serve_triton(workspace, &Repository::Conformance, &ports)?)
    } else {
        setup::build_weft(workspace)?;
        let models = [("echo", "python", "bench/models/echo.py"), ("types", "python", "bench/models/types.py")];
        ("weft", serve_weft(workspace, "conformance", &models, &ports)?)
    };
    let mut server = Server::start(name, program, ports, &workspace.output("clients")?)?;
    server.wait(&echo_question(), Duration::from_secs(60))?;
    // The echo model may be ready before the other is.
    server.wait(&Question { answer_has: "types".to_owned(), ..index_question() }, Duration::from_secs(60))?;
    let conformance = conformance(workspace, arguments, &ports);
    let perf_analyzer = perf_analyzer(workspace, &ports);
    server.stop()?;
    conformance.and(perf_analyzer)
}

fn index_question() -> Question {
    Question { path: "/v2/repository/index".to_owned(), body: "{\"ready\":true}".to_owned(), answer_has: String::new() }
}

fn conformance(workspace: &Workspace, arguments: &Arguments, ports: &Ports) -> Result<()> {
    let out = workspace.output("clients")?.join("conformance.json");
    let out = out.to_string_lossy().into_owned();
    let (http, grpc) = addresses(ports);
    let python = peers::client_python(workspace)?.folder(&workspace.root);
    let arguments =
        if arguments.record { ["--out", RECORDED].to_vec() } else { ["--out", &out, "--compare", RECORDED].to_vec() };
    let script = ["tests/clients/conformance.py", "--http", &http, "--grpc", &grpc];
    python.arguments(script.into_iter().chain(arguments)).run().map(drop)
}

fn perf_analyzer(workspace: &Workspace, ports: &Ports) -> Result<()> {
    let found = peers::perf_analyzer(workspace)?;
    let (http, grpc) = addresses(ports);
    let program = found.program.to_str().context("name perf_analyzer")?;
    let libraries = found.libraries.to_str().context("name perf_analyzer's libraries")?;
    let python: Program = peers::client_python(workspace)?.folder(&workspace.root);
    let script = ["tests/clients/perf_analyzer.py", "--program", program, "--libraries", libraries];
    python.arguments(script.into_iter().chain(["--http", &http, "--grpc", &grpc])).run().map(drop)
}

fn addresses(ports: &Ports) -> (String, String) {
    (format!("127.0.0.1:{}", ports.http), format!("127.0.0.1:{}", ports.grpc))
}
