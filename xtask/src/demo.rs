//! The main job, from nothing: serve models, send them load, look at them.

use crate::server::{Ports, Server};
use crate::workspace::Workspace;
use crate::{peers, setup};
use anyhow::{Context, Result};
use std::io::IsTerminal;
use std::net::TcpListener;
use std::time::Duration;

/// Build Weft, serve three kinds of models, send them load and show what came of it.
///
/// Serves a real ONNX model (magika, from its PyPI wheel), a Python model and a virtual one on emulated GPUs,
/// prints the dashboard's address and a summary for each, and, in a terminal, goes on until Ctrl-C.
///
/// Example: cargo xtask demo
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Stop after the summary, even in a terminal.
    #[arg(long)]
    once: bool,
}

/// Requests to each model: name, rate, objective, further words.
const LOADS: [(&str, &str, &str, &[&str]); 3] = [
    ("magika", "20", "250ms", &["--shape", "bytes:1x2048"]),
    ("sentiment", "500", "100ms", &[]),
    ("resnet50", "2000", "50ms", &["--shape", "INPUT:1x4"]),
];

pub(crate) fn demo(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    eprintln!("== build (the first time, minutes)");
    setup::build_weft(workspace)?;
    let folder = workspace.output("demo")?;
    let state = folder.join("state");
    let state = state.to_str().context("write the state: its path is not text")?;
    eprintln!("\n== set up what workers need, in {state}");
    workspace.weft(["setup", "--state", state]).run()?;
    let magika = peers::magika(workspace)?;
    let sentiment = workspace.root.join("examples/09-serve/sentiment.py");
    let config = folder.join("weft.toml");
    let text = format!(
        "name = \"demo\"\nstate = \"state\"\n\n[node]\nvirtual_gpus = 4\n\n\
         [[model]]\nname = \"magika\"\nkind = \"onnx\"\npath = {magika:?}\nslo = \"250ms\"\nmax_batch = 4\n\n\
         [[model]]\nname = \"sentiment\"\nkind = \"python\"\npath = {sentiment:?}\nslo = \"100ms\"\n\n\
         [[model]]\nname = \"resnet50\"\nkind = \"virtual\"\nlatency = {{ alpha = \"1.053ms\", beta = \"5.072ms\" }}\n\
         slo = \"50ms\"\n"
    );
    std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let config = config.to_str().context("write the configuration: its path is not text")?;

    eprintln!("\n== serve");
    // Ctrl-C reaches the server as well; it answers what it has accepted, and this program waits for that.
    ctrlc::set_handler(|| {}).context("listen for Ctrl-C")?;
    let ports = ports();
    let addresses = [("--http", ports.http), ("--grpc", ports.grpc), ("--metrics", ports.metrics)];
    let addresses = addresses.map(|(name, port)| [name.to_owned(), format!("127.0.0.1:{port}")]).concat();
    let words = ["up", config].into_iter().chain(addresses.iter().map(String::as_str));
    let mut server = Server::start("weft", workspace.weft(words), ports, &folder)?;
    let took = server.wait_until_ready(Duration::from_secs(60))?;
    eprintln!("  ready after {:.2} s", took.as_secs_f64());
    eprintln!("  HTTP      http://127.0.0.1:{}", ports.http);
    eprintln!("  gRPC      127.0.0.1:{}", ports.grpc);
    eprintln!("  dashboard http://127.0.0.1:{}/ui", ports.metrics);

    let url = format!("http://127.0.0.1:{}", ports.http);
    for (model, rate, slo, more) in LOADS {
        eprintln!("\n== {model}: {rate} requests a second for 5 s");
        let words = ["load", "--url", &url, "--model", model, "--rate", rate, "--slo", slo, "--duration", "5s"];
        workspace.weft(words.into_iter().chain(more.iter().copied())).run()?;
    }
    if !arguments.once && std::io::stderr().is_terminal() {
        eprintln!("\nserving on; look at http://127.0.0.1:{}/ui, and stop it with Ctrl-C", ports.metrics);
        return server.wait_for_end();
    }
    server.stop()
}

/// The ports people know, where they are free.
fn ports() -> Ports {
    let known = Ports { http: 8000, grpc: 8001, metrics: 8002 };
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    if [known.http, known.grpc, known.metrics].into_iter().all(free) { known } else { Ports::free() }
}
