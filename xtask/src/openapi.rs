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
/// Fails when an answer is a 5xx other than 503, or does not come. Everything else a server may say to nonsense is
/// allowed.
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
    let schemathesis = peers::schemathesis(workspace)?.folder(&workspace.root);
    let ports = Ports::free()?;
    let program = serve_weft(workspace, "openapi", &[("echo", "python", "bench/models/echo.py")], &ports)?;
    let mut server = Server::start("openapi", program, ports, &workspace.output("openapi")?)?;
    server.wait(&echo_question(), Duration::from_secs(60))?;
    let url = format!("http://127.0.0.1:{}", ports.http);
    let (examples, seed) = (arguments.examples.to_string(), arguments.seed.to_string());
    let words =
        ["run", "docs/api/openapi.json", "--url", &url, "--checks", "not_a_server_error", "--request-timeout", "10"];
    let words = words.into_iter().chain(["--max-examples", &examples, "--seed", &seed, "--no-color"]);
    let found = schemathesis.arguments(words).run();
    let alive = server.wait(&echo_question(), Duration::from_secs(10));
    server.stop()?;
    found.and(alive).map(drop)
}
