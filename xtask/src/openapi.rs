//! A stranger's fuzzer against the description of our HTTP interface: schemathesis, from PyPI.

use crate::peers;
use crate::server::{Ports, Server};
use crate::serving::{echo_question, serve_weft};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::Result;
use std::time::Duration;

/// Send weft what schemathesis makes up from docs/api/openapi.json.
///
/// Fails when an answer is a 5xx or does not come. Everything else a server may say to nonsense is allowed.
///
/// Example: cargo xtask openapi --examples 200
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Cases for each operation.
    #[arg(long, default_value_t = 30)]
    examples: u32,
    /// Where chance starts from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn openapi(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    setup::build_weft(workspace)?;
    run(workspace, arguments.examples, arguments.seed)
}

/// The same, shorter; `weft` must have been built.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    run(workspace, 15, 1)
}

fn run(workspace: &Workspace, examples: u32, seed: u64) -> Result<()> {
    // It keeps what it found where it runs.
    let folder = workspace.output("openapi")?;
    let schemathesis = peers::schemathesis(workspace)?.folder(&folder);
    let ports = Ports::free();
    let program = serve_weft(workspace, "openapi", &[("echo", "python", "bench/models/echo.py")], &ports)?;
    let mut server = Server::start("openapi", program, ports, &folder)?;
    server.wait(&echo_question(), Duration::from_secs(60))?;
    let url = format!("http://127.0.0.1:{}", ports.http);
    let (examples, seed) = (examples.to_string(), seed.to_string());
    let description = workspace.root.join("docs/api/openapi.json").display().to_string();
    let words = ["run", &description, "--url", &url, "--checks", "not_a_server_error", "--request-timeout", "10"];
    let words = words.into_iter().chain(["--max-examples", &examples, "--seed", &seed, "--no-color"]);
    let found = schemathesis.arguments(words).run();
    // It may have taken the model away, and then there is nobody to ask.
    let alive = server.wait_until_ready(Duration::from_secs(10));
    server.stop()?;
    found.and(alive).map(drop)
}
