//! A live cluster on this machine: one scheduler, two gateways, three nodes. Every part is a process with a state folder,
//! a configuration and ports of its own, which it has again after each start.

use super::fault::{GATEWAYS, NODES, Part};
use super::gauges::Gauges;
use super::load::MODELS;
use crate::program::Program;
use crate::server::{Ports, Server};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Worker processes of the echo model, over all nodes.
pub(super) const WORKERS: usize = 6;
/// What the administrator's key is, and its SHA-256.
const KEY: &str = "cluster-faults";
const KEY_HASH: &str = "3486b4f397d4b29f32d0f290a03d00bcb989331ae692ba95f77e775304745f3e";
/// How long the first start of everything may take.
const START: Duration = Duration::from_secs(60);

/// It is gone when this goes out of scope.
pub(super) struct Cluster<'a> {
    workspace: &'a Workspace,
    weft: PathBuf,
    folder: PathBuf,
    ports: BTreeMap<Part, Ports>,
    parts: BTreeMap<Part, Server>,
    /// In the order in which they are started.
    order: Vec<Part>,
    /// Processes started so far, so that each has a log of its own.
    lives: usize,
}

impl<'a> Cluster<'a> {
    /// Starts all parts in an empty folder and waits until every model has every worker.
    pub(super) fn start(workspace: &'a Workspace, weft: &Path, folder: &Path, order: Vec<Part>) -> Result<Cluster<'a>> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| format!("empty {}", folder.display()))?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let ports: BTreeMap<Part, Ports> = order.iter().map(|part| (*part, Ports::free())).collect();
        let settings = setup::worker_settings_of(workspace, weft)?;
        let echo = workspace.root.join("bench/models/echo.py");
        for part in ports.keys() {
            let text = configuration(*part, &ports, &settings, &echo);
            let path = folder.join(format!("{part}.toml"));
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        let (weft, folder) = (weft.to_owned(), folder.to_owned());
        let parts = BTreeMap::new();
        let mut cluster = Cluster { workspace, weft, folder, ports, parts, order: order.clone(), lives: 0 };
        for part in order {
            cluster.start_part(part)?;
        }
        let all = |gauges: &Gauges| gauges.nodes as usize == NODES && gauges.workers as usize >= WORKERS;
        if !cluster.wait(START, all)? {
            let (shown, ended) = (cluster.shown(), cluster.ended()?);
            bail!("start {NODES} nodes and {WORKERS} workers: see the logs in {shown}; ended by themselves: {ended:?}");
        }
        for gateway in 0..GATEWAYS {
            let server = cluster.parts.get_mut(&Part::Gateway(gateway)).context("find a gateway")?;
            MODELS.iter().try_for_each(|model| server.wait_until_asked(model.name, START))?;
        }
        Ok(cluster)
    }

    pub(super) fn start_part(&mut self, part: Part) -> Result<()> {
        let ports = self.ports[&part];
        let config = self.folder.join(format!("{part}.toml")).display().to_string();
        let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
        let words = match part {
            Part::Scheduler | Part::Standby => match self.order.contains(&Part::Standby) {
                true => vec!["scheduler", &config, "--listen", &http, "--standby"],
                false => vec!["scheduler", &config, "--listen", &http],
            },
            Part::Gateway(_) => vec!["gateway", &config, "--http", &http, "--grpc", &grpc, "--metrics", &metrics],
            Part::Node(_) => vec!["node", &config, "--address", &http, "--listen", &http],
        };
        self.lives += 1;
        let name = format!("{part}-life-{:03}", self.lives);
        let program = Program::new(&self.weft).arguments(words).folder(&self.workspace.root);
        self.parts.insert(part, Server::start(&name, program, ports, &self.folder)?);
        Ok(())
    }

    /// All parts, in the order in which they were started.
    pub(super) fn order(&self) -> Vec<Part> {
        self.order.clone()
    }

    /// Where gateways listen.
    pub(super) fn gateways(&self) -> [Ports; GATEWAYS] {
        std::array::from_fn(|gateway| self.ports[&Part::Gateway(gateway)])
    }

    pub(super) fn part(&mut self, part: Part) -> Result<&mut Server> {
        self.parts.get_mut(&part).with_context(|| format!("find {part}"))
    }

    /// Waits until every gateway knows every node; whether that was so in time.
    pub(super) fn wait_until_joined(&mut self, limit: Duration) -> Result<bool> {
        self.wait(limit, |gauges| gauges.nodes as usize == NODES)
    }

    /// Waits until every gateway shows something; whether all did in time, with every part running.
    fn wait(&mut self, limit: Duration, shows: impl Fn(&Gauges) -> bool) -> Result<bool> {
        let start = Instant::now();
        while !self.gateways().iter().all(|ports| Gauges::of(ports.metrics).as_ref().is_some_and(&shows)) {
            if start.elapsed() > limit || !self.ended()?.is_empty() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(true)
    }

    /// Parts whose process ended by itself.
    pub(super) fn ended(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for (part, server) in &mut self.parts {
            if server.ends_within(Duration::ZERO)?.is_some() {
                ended.push(part.to_string());
            }
        }
        Ok(ended)
    }

    /// Requests that gateways hold in flight, all together; `None` when one of them does not say.
    pub(super) fn in_flight(&self) -> Option<u64> {
        self.gateways().iter().map(|ports| Some(Gauges::of(ports.metrics)?.in_flight)).sum()
    }

    /// Workers that `weft models` counts, by gateway.
    pub(super) fn models(&self) -> Result<Vec<usize>> {
        let ask = |ports: &Ports| {
            let url = format!("http://127.0.0.1:{}", ports.metrics);
            let program = Program::new(&self.weft).arguments(["models", "--json", "--server", &url]);
            let printed = program.variable("WEFT_ADMIN_KEY", KEY).folder(&self.workspace.root).read()?;
            let value: Value = serde_json::from_str(&printed).context("read what weft models printed")?;
            let echo = value["models"].as_array().into_iter().flatten().find(|model| model["name"] == MODELS[0].name);
            Ok(echo.and_then(|echo| echo["workers_ready"].as_u64()).unwrap_or(0) as usize)
        };
        self.gateways().iter().map(ask).collect()
    }

    /// Worker processes of each node.
    pub(super) fn workers_by_node(&self) -> Vec<usize> {
        let nodes = self.parts.iter().filter(|(part, _)| matches!(part, Part::Node(_)));
        nodes.map(|(_, server)| server.children("python")).collect()
    }

    fn shown(&self) -> String {
        self.workspace.relative(&self.folder).to_string()
    }
}

impl Drop for Cluster<'_> {
    /// Kills everything: after a fault, some of it may never end by itself.
    fn drop(&mut self) {
        std::mem::take(&mut self.parts).into_values().for_each(Server::kill);
    }
}

/// What a part reads. Only schedulers are told what to serve; two of them share a state folder.
fn configuration(part: Part, ports: &BTreeMap<Part, Ports>, worker_settings: &str, echo: &Path) -> String {
    let [echo_ms, virtual_ms] = MODELS.each_ref().map(|model| model.objective.as_millis());
    let is_scheduler = matches!(part, Part::Scheduler | Part::Standby);
    let state = if is_scheduler { Part::Scheduler } else { part };
    let url = |part: &Part| ports.get(part).map(|ports| format!("http://127.0.0.1:{}", ports.http));
    let schedulers: Vec<String> = [Part::Scheduler, Part::Standby].iter().filter_map(url).collect();
    let mut text = format!(
        "state = \"state-{state}\"\n[cluster]\ntoken = \"faults\"\nscheduler = \"{}\"\n\
         [keys]\nadmin = [\"{KEY_HASH}\"]\n{worker_settings}virtual_gpus = 2\n",
        schedulers.join(",")
    );
    if is_scheduler {
        // A virtual batch takes long enough that a gateway has some under way whenever it is told to end.
        text += &format!(
            "[[model]]\nname = \"echo\"\nkind = \"python\"\npath = {echo:?}\nmax_batch = 8\nworkers = {WORKERS}\n\
             slo = \"{echo_ms}ms\"\n\
             [[model]]\nname = \"virtual\"\nkind = \"virtual\"\nlatency = {{ alpha = \"1ms\", beta = \"80ms\" }}\n\
             max_batch = 16\nslo = \"{virtual_ms}ms\"\n"
        );
    }
    text
}
