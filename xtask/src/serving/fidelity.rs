//! The live scheduler against the simulator: eleven models on eight GPUs that only take time, offered the same load.

use crate::server::{Ports, Server};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const SCENARIO: &str = "examples/03-eleven-a100-models/scenario.toml";
/// Requests a second: half of what the GPUs can take, nearly all of it, about all of it, and too much.
pub(super) const RATES: [u32; 4] = [2400, 4300, 4800, 6000];
const START_LIMIT: Duration = Duration::from_secs(10);
const WARMUP: &str = "2s";

/// What both made of it.
pub(super) struct Measured {
    /// Requests a second that the simulator answers in time.
    pub(super) simulated: f64,
    /// And the live server, by its own clock: the simulator knows no network either.
    pub(super) live: f64,
}

/// Both at this rate.
pub(super) fn run(workspace: &Workspace, folder: &Path, rate: u32, length: Duration) -> Result<Measured> {
    let (rate, seconds) = (rate.to_string(), format!("{}s", length.as_secs()));
    let scenario =
        std::fs::read_to_string(workspace.root.join(SCENARIO)).with_context(|| format!("read {SCENARIO}"))?;
    let simulated = workspace.weft(["sim", "run", SCENARIO, "--rate", &rate, "--json"]).folder(&workspace.root);
    let simulated: Value = serde_json::from_str(&simulated.read()?).context("read what weft sim printed")?;
    let simulated = simulated["good_rps"].as_f64().context("find good_rps in what weft sim printed")?;

    let ports = Ports::free();
    let config = folder.join("fidelity.toml");
    let (text, models) = configuration(&scenario, &folder.join("fidelity-state"));
    std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
    let config = config.to_string_lossy();
    let program = workspace.weft(["up", &config, "--http", &http, "--grpc", &grpc, "--metrics", &metrics]);
    let mut server = Server::start("fidelity", program, ports, folder)?;
    server.wait_until_ready(START_LIMIT)?;
    let load = |length: &str| {
        let url = format!("http://{http}");
        let named = models.iter().flat_map(|model| ["--model", model]);
        let words = ["load", "--url", &url, "--rate", &rate, "--duration", length, "--warmup", "0s", "--json"];
        workspace.weft(words.into_iter().chain(named)).read().map(drop)
    };
    load(WARMUP)?;
    let before = good(&server)?;
    load(&seconds)?;
    let live = (good(&server)? - before) / length.as_secs_f64();
    server.stop()?;
    Ok(Measured { simulated, live })
}

/// The scenario's models as a configuration, and their names.
fn configuration<'a>(scenario: &'a str, state: &Path) -> (String, Vec<&'a str>) {
    let models = scenario.find("[[model]]").map_or("", |start| &scenario[start..]);
    let names = models.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    let models = models.replace("[[model]]", "[[model]]\nkind = \"virtual\"\nmax_batch = 128");
    (format!("state = {state:?}\n[node]\nvirtual_gpus = 8\n{models}"), names)
}

/// How many requests of all models were answered in time so far.
fn good(server: &Server) -> Result<f64> {
    let page = server.metrics()?;
    let count = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
    let lines = page.lines().filter(|line| line.starts_with("weft_requests_total{") && line.contains("\"good\""));
    Ok(lines.filter_map(count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenarios_models_become_virtual_ones() {
        let scenario = "rate = 1\n[[model]]\nname = \"a\"\nslo = \"1ms\"\n\n[[model]]\nname = \"b\"\n";
        let (text, names) = configuration(scenario, Path::new("state"));
        assert_eq!(names, ["a", "b"]);
        assert!(text.contains("[[model]]\nkind = \"virtual\"\nmax_batch = 128\nname = \"a\"\nslo = \"1ms\""), "{text}");
        assert!(!text.contains("rate"));
    }
}
