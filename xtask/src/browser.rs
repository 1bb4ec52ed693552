//! The dashboard in a real browser: Debian's Chromium, driven by Playwright.

use crate::peers;
use crate::program::Program;
use crate::server::{Ports, Server};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::time::Duration;

/// Look at the dashboard with Chromium: against the mock and against a server under load; and let a page of another site
/// try to get at the server.
///
/// Installs Chromium (apt) and playwright-core (npm, under target/browser) when missing. Screenshots are left in
/// target/browser.
///
/// Example: cargo xtask browser
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {}

const PLAYWRIGHT: &str = "playwright-core@1.64.1";

pub(crate) fn browser(workspace: &Workspace, _: &Arguments) -> Result<()> {
    setup::build_weft(workspace)?;
    check(workspace)
}

/// Runs the checks; `weft` must have been built.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let folder = workspace.output("browser")?;
    let has = |program: &str| Program::new(program).arguments(["--version"]).works();
    peers::debian("chromium", || has("chromium"))?;
    peers::debian("npm", || has("npm"))?;
    let modules = folder.join("node_modules");
    if !modules.join("playwright-core").is_dir() {
        let prefix = folder.to_str().context("install playwright: its path is not text")?;
        Program::new("npm").arguments(["install", "--silent", "--no-save", "--prefix", prefix, PLAYWRIGHT]).run()?;
    }
    let look = |url: &str, pictures: &str| {
        let pictures = folder.join(pictures).display().to_string();
        let node = Program::new("node").arguments(["tests/ui/check.mjs", url, &pictures]).folder(&workspace.root);
        node.variable("WEFT_UI_MODULES", &modules).run()
    };

    let ports = Ports::free();
    let port = ports.http.to_string();
    let mock = Program::new("python3").arguments(["tests/ui/mock.py", "--port", &port]).folder(&workspace.root);
    let mock = Server::start("mock", mock, ports, &folder)?;
    std::thread::sleep(Duration::from_secs(1));
    look(&format!("http://127.0.0.1:{port}/ui"), "mock")?;
    mock.stop()?;

    let config = folder.join("weft.toml");
    let model = |name: &str| {
        let latency = "{ alpha = \"1ms\", beta = \"5ms\" }";
        format!("[[model]]\nname = \"{name}\"\nkind = \"virtual\"\nlatency = {latency}\nslo = \"40ms\"\n")
    };
    let text = format!("[node]\nvirtual_gpus = 2\n{}{}", model("steady"), model("busy"));
    std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let ports = Ports::free();
    let addresses = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
    let [http, grpc, metrics] = addresses.each_ref().map(String::as_str);
    let config = config.display().to_string();
    let up = workspace.weft(["up", &config, "--http", http, "--grpc", grpc, "--metrics", metrics]);
    let mut server = Server::start("weft", up, ports, &folder)?;
    server.wait_until_ready(Duration::from_secs(30))?;
    let url = format!("http://{http}");
    let words = ["load", "--url", &url, "--model", "steady", "--model", "busy=4", "--rate", "900", "--slo", "40ms"];
    let words = words.into_iter().chain(["--shape", "INPUT:1x4", "--duration", "300s"]);
    let mut load = workspace.weft(words).start(&folder.join("load.log"))?;
    let looked = look(&format!("http://{metrics}/ui"), "weft").and_then(|_| {
        let log = folder.join("weft.log").display().to_string();
        let words = ["tests/ui/cross_site.mjs", &format!("http://{metrics}"), &url, &log];
        let node = Program::new("node").arguments(words).folder(&workspace.root);
        node.variable("WEFT_UI_MODULES", &modules).run()
    });
    let _ = load.kill();
    let _ = load.wait();
    server.stop()?;
    looked.map(drop)
}
