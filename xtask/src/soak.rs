//! Load for a long time, while workers and nodes are killed: is every request answered, does memory stay flat?

use crate::server::{Ports, Server};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Send load for an hour while a worker is killed every 10 s and a node every minute.
///
/// A scheduler, a gateway and two nodes on this machine, a Python model and a virtual one. Fails when a request got no
/// answer, when most were not answered in time, or when memory grew. Nothing is written but target/soak.
///
/// Example: cargo xtask soak --minutes 2
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
}

const KILL_WORKER: Duration = Duration::from_secs(10);
const KILL_NODE: Duration = Duration::from_secs(60);
/// A node is back this long after it was killed.
const NODE_BACK: Duration = Duration::from_secs(3);
/// Requests a second, over both models.
const RATE: &str = "200";
/// The least part of requests that must be answered in time, killings included.
const GOOD: f64 = 0.9;

pub(crate) fn soak(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    setup::build_weft(workspace)?;
    run(workspace, Duration::from_secs(arguments.minutes * 60))
}

/// The same for so long; `weft` must have been built.
pub(crate) fn run(workspace: &Workspace, length: Duration) -> Result<()> {
    let folder = workspace.output("soak")?;
    let mut cluster = Cluster::start(workspace, &folder)?;
    let report = folder.join("load.json");
    let url = format!("http://127.0.0.1:{}", cluster.gateway.ports.http);
    let seconds = format!("{}s", length.as_secs());
    let words = ["load", "--url", &url, "--model", "echo", "--model", "virtual", "--rate", RATE, "--slo", "1s"];
    let words = words.into_iter().chain(["--shape", "INPUT:1x16", "--duration", &seconds, "--json"]);
    let mut load = workspace.weft(words).start(&report)?;
    let killed = cluster.disturb(length)?;
    let status = load.wait().context("wait for the load")?;
    ensure!(status.success(), "send load: {status}; see {}", report.display());
    let grown = cluster.grown();
    cluster.stop()?;
    judge(&std::fs::read_to_string(&report).context("read the report of the load")?)?;
    for (name, before, after) in grown {
        eprintln!("  {name}: {} MB a quarter in, {} MB at the end", before >> 20, after >> 20);
        ensure!(after < before + before / 4 + (16 << 20), "keep the memory of the {name} flat");
    }
    eprintln!("  {} workers and {} nodes were killed", killed.0, killed.1);
    Ok(())
}

/// Every request was answered, and most in time.
fn judge(report: &str) -> Result<()> {
    // What the generator says while it runs stands before its result.
    let start = report.find('{').context("find the report of the load")?;
    let value: Value = serde_json::from_str(&report[start..]).context("read the report of the load")?;
    let number = |name: &str| value[name].as_f64().with_context(|| format!("find {name} in the report of the load"));
    let (sent, good, errors) = (number("sent")?, number("good")?, number("error_rps")?);
    eprintln!("  {sent} requests, {good} answered in time, refused: {}", value["refusals"]);
    ensure!(errors == 0.0, "get an answer to every request; without one: {}", value["failures"]);
    ensure!(good >= sent * GOOD, "answer {}% in time: {good} of {sent}", GOOD * 100.0);
    Ok(())
}

struct Cluster<'a> {
    workspace: &'a Workspace,
    folder: &'a Path,
    scheduler: Server,
    gateway: Server,
    nodes: [Option<Server>; 2],
    node_ports: [Ports; 2],
    early: Option<(u64, u64)>,
}

impl<'a> Cluster<'a> {
    fn start(workspace: &'a Workspace, folder: &'a Path) -> Result<Cluster<'a>> {
        let [join, front] = [Ports::free(), Ports::free()];
        let node_ports = [Ports::free(), Ports::free()];
        let echo = workspace.root.join("bench/models/echo.py");
        let text = format!(
            "state = \"state\"\n[cluster]\ntoken = \"soak\"\nscheduler = \"http://127.0.0.1:{}\"\n\
             {}virtual_gpus = 2\n\
             [[model]]\nname = \"echo\"\nkind = \"python\"\npath = {echo:?}\nmax_batch = 8\nworkers = 4\nslo = \"1s\"\n\
             [[model]]\nname = \"virtual\"\nkind = \"virtual\"\nlatency = {{ alpha = \"1ms\", beta = \"5ms\" }}\nslo = \"1s\"\n",
            join.http,
            setup::worker_settings(workspace)?
        );
        let config = folder.join("weft.toml");
        std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let database = folder.join("state/deployments.txt");
        if database.exists() {
            std::fs::remove_file(&database).context("begin with nothing deployed")?;
        }
        let config = config.display().to_string();
        let listen = format!("127.0.0.1:{}", join.http);
        let program = workspace.weft(["scheduler", &config, "--listen", &listen]);
        let scheduler = Server::start("scheduler", program, join, folder)?;
        let addresses = [front.http, front.grpc, front.metrics].map(|port| format!("127.0.0.1:{port}"));
        let [http, grpc, metrics] = addresses.each_ref().map(String::as_str);
        let program = workspace.weft(["gateway", &config, "--http", http, "--grpc", grpc, "--metrics", metrics]);
        let gateway = Server::start("gateway", program, front, folder)?;
        let nodes = [None, None];
        let mut cluster = Cluster { workspace, folder, scheduler, gateway, nodes, node_ports, early: None };
        cluster.start_node(0)?;
        cluster.start_node(1)?;
        cluster.gateway.wait_until_asked("echo", Duration::from_secs(60))?;
        cluster.gateway.wait_until_asked("virtual", Duration::from_secs(60))?;
        Ok(cluster)
    }

    fn start_node(&mut self, index: usize) -> Result<()> {
        let ports = self.node_ports[index];
        let config = self.folder.join("weft.toml").display().to_string();
        let address = format!("127.0.0.1:{}", ports.http);
        // Each keeps its files apart, as on machines of their own.
        let state = self.folder.join(format!("node-{index}")).display().to_string();
        let program = self.workspace.weft(["node", &config, "--address", &address, "--state", &state]);
        self.nodes[index] = Some(Server::start(&format!("node-{index}"), program, ports, self.folder)?);
        Ok(())
    }

    /// Kills workers and nodes for so long; how many of each.
    fn disturb(&mut self, length: Duration) -> Result<(usize, usize)> {
        let start = Instant::now();
        let (mut workers, mut nodes) = (0, 0);
        let (mut next_worker, mut next_node) = (KILL_WORKER, KILL_NODE);
        let mut back: Option<(Duration, usize)> = None;
        while start.elapsed() < length {
            std::thread::sleep(Duration::from_millis(200));
            let now = start.elapsed();
            if now >= next_worker {
                next_worker += KILL_WORKER;
                // Nodes in turn, but a node may have no worker at the moment.
                let mut living: Vec<&Server> = self.nodes.iter().flatten().collect();
                let first = workers % living.len().max(1);
                living.rotate_left(first);
                workers += usize::from(living.iter().any(|node| node.kill_child("weft.worker")));
            }
            if now >= next_node && now + NODE_BACK * 3 < length {
                next_node += KILL_NODE;
                let index = nodes % 2;
                if let Some(node) = self.nodes[index].take() {
                    node.kill();
                    nodes += 1;
                    back = Some((now + NODE_BACK, index));
                }
            }
            if let Some((at, index)) = back
                && now >= at
            {
                back = None;
                self.start_node(index)?;
            }
            if self.early.is_none() && now >= length / 4 {
                self.early = Some((self.scheduler.memory().resident, self.gateway.memory().resident));
            }
        }
        Ok((workers, nodes))
    }

    /// Memory of the processes that live through it all, a quarter in and now.
    fn grown(&self) -> [(&'static str, u64, u64); 2] {
        let (scheduler, gateway) = self.early.unwrap_or_default();
        [
            ("scheduler", scheduler, self.scheduler.memory().resident),
            ("gateway", gateway, self.gateway.memory().resident),
        ]
    }

    fn stop(self) -> Result<()> {
        self.gateway.stop()?;
        for node in self.nodes.into_iter().flatten() {
            node.stop()?;
        }
        self.scheduler.stop()
    }
}
