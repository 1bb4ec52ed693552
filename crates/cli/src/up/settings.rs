//! `weft.toml`: what to serve, where to listen, what to allow.
//!
//! What was typed becomes what it means once, here: paths are taken from the file's own folder, sizes and times have
//! units, unknown keys are refused with file and line.

use crate::output::{Misuse, reason};
use anyhow::Result;
use config::{Bytes, ModelSpec};
use policy::Span;
use policy::sharing::SharingConfig;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything that can be set.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// What people call this cluster.
    pub(crate) name: String,
    /// Where the database of deployments, journals and run-time files are.
    pub(crate) state: PathBuf,
    /// Whether one model that is not ready makes the server not ready.
    pub(crate) strict_readiness: bool,
    pub(crate) listen: Listen,
    pub(crate) server: Server,
    pub(crate) shared_memory: SharedMemory,
    pub(crate) scheduler: Scheduler,
    pub(crate) node: Node,
    pub(crate) limits: Limits,
    pub(crate) keys: Keys,
    pub(crate) tls: Option<Tls>,
    pub(crate) traces: Option<Traces>,
    pub(crate) cluster: Cluster,
    pub(crate) sharing: Sharing,
    /// What to serve from the start.
    #[serde(rename = "model")]
    pub(crate) models: Vec<ModelSpec>,
    /// The line on which each of them begins.
    #[serde(skip)]
    pub(crate) lines: Vec<usize>,
    /// The file that was read.
    #[serde(skip)]
    pub(super) file: Option<PathBuf>,
}

/// How GPUs are shared: parameters by their names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, toml::Value>")]
pub(crate) struct Sharing(pub(crate) SharingConfig);

impl TryFrom<BTreeMap<String, toml::Value>> for Sharing {
    type Error = String;

    fn try_from(table: BTreeMap<String, toml::Value>) -> Result<Sharing, String> {
        let mut config = SharingConfig::default();
        for (name, value) in &table {
            config.set(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))?;
        }
        config.check()?;
        Ok(Sharing(config))
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: "weft".into(),
            state: ".weft".into(),
            strict_readiness: true,
            listen: Listen::default(),
            server: Server::default(),
            shared_memory: SharedMemory::default(),
            scheduler: Scheduler::default(),
            node: Node::default(),
            limits: Limits::default(),
            keys: Keys::default(),
            tls: None,
            traces: None,
            cluster: Cluster::default(),
            sharing: Sharing::default(),
            models: Vec::new(),
            lines: Vec::new(),
            file: None,
        }
    }
}

/// Addresses, as Triton's users know them.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// Metrics, dashboard and admin.
    pub(crate) metrics: SocketAddr,
    /// Names that requests to the metrics port and those that change the server may be for, besides `localhost` and IP
    /// addresses.
    pub(crate) hosts: Vec<String>,
}

impl Default for Listen {
    fn default() -> Listen {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Listen { http: local(8000), grpc: local(8001), metrics: local(8002), hosts: Vec::new() }
    }
}

/// What clients may do on the ports that serve models.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// Who may load and unload models, register shared memory and change settings there.
    pub(crate) administration: Administration,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Administration {
    /// Whoever brings the admin key.
    #[default]
    Key,
    /// Whoever may ask models.
    Open,
    /// Nobody.
    Off,
}

/// Shared memory that clients may pass tensors in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SharedMemory {
    /// Keys that they may register, such as `/camera` or `/camera_*`. Empty: none.
    pub(crate) allow: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Scheduler {
    /// How requests are scheduled.
    pub(crate) policy: String,
    /// Whether every event and decision is written down, to be replayed by `weft sim replay`.
    pub(crate) journal: bool,
    /// Whether it is only said how models would be scaled.
    pub(crate) dry_run: bool,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler { policy: "weft".into(), journal: false, dry_run: false }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Node {
    /// The Python of models written in Python; `weft setup` makes one.
    pub(crate) python: Option<PathBuf>,
    /// ONNX Runtime's library; `weft setup` brings one.
    pub(crate) onnxruntime: Option<PathBuf>,
    /// GPUs to emulate for virtual models.
    pub(crate) virtual_gpus: usize,
    /// How long a worker may take to load its model.
    #[serde(deserialize_with = "config::model::span::optional::deserialize")]
    pub(crate) load_timeout: Option<Span>,
    /// How long a batch may take, one of the warm-up too. A worker that takes longer is started again.
    #[serde(deserialize_with = "config::model::span::optional::deserialize")]
    pub(crate) batch_timeout: Option<Span>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// The largest request.
    pub(crate) body: Option<Bytes>,
    /// The most memory that requests take together.
    pub(crate) memory: Option<Bytes>,
    /// The most connections.
    pub(crate) connections: Option<usize>,
}

/// SHA-256 of keys, in hexadecimal, as `printf KEY | sha256sum` prints it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Keys {
    /// Who may ask models. Empty: everybody.
    pub(crate) clients: Vec<String>,
    /// Who may change deployments. Empty: whoever has the key in `admin.key` in the state folder, which is made then.
    pub(crate) admin: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// The certificate and those that vouch for it, in PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key, in PEM.
    pub(crate) key: PathBuf,
}

/// Who is told of requests, by OpenTelemetry's protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traces {
    /// The collector, such as `http://127.0.0.1:4317`.
    pub(crate) endpoint: String,
    /// The part of requests, from 0 to 1, of those that bring no trace of their own.
    #[serde(default = "all")]
    pub(crate) part: f64,
}

fn all() -> f64 {
    1.0
}

/// Where the parts are when they are on different machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Where gateways and nodes find the scheduler; several with commas between, of which one leads.
    scheduler: Option<String>,
    /// Where the scheduler listens.
    pub(crate) listen: SocketAddr,
    /// What gateways and nodes must bring; WEFT_TOKEN where it is not here.
    token: Option<String>,
    /// Who vouches for the certificates of others, in PEM.
    pub(crate) authority: Option<PathBuf>,
    /// Where gateways reach this node, as host and port.
    pub(crate) address: Option<String>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8003));
        Cluster { scheduler: None, listen, token: None, authority: None, address: None }
    }
}

impl Settings {
    /// Reads a file. Paths in it are taken from its own folder.
    pub(crate) fn read(path: &Path) -> Result<Settings> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| Misuse(format!("read {shown}: {}", reason(&error))))?;
        let mut settings: Settings = toml::from_str(&text).map_err(|error| Misuse(format!("read {shown}: {error}")))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        settings.resolve(&std::path::absolute(folder)?);
        settings.lines = model_lines(&text);
        settings.file = Some(path.to_owned());
        settings.check().map_err(|problem| Misuse(format!("read {shown}: {problem}")))?;
        Ok(settings)
    }

    /// Reads the file that was named, else `weft.toml` in this folder where there is one, else nothing.
    pub(crate) fn find(named: Option<&Path>) -> Result<Settings> {
        let beside = Path::new("weft.toml");
        match named.or_else(|| beside.exists().then_some(beside)) {
            Some(path) => Settings::read(path),
            None => Settings::without_file(),
        }
    }

    /// How the scheduler is set up.
    pub(crate) fn scheduler_config(&self) -> scheduler::Config {
        scheduler::Config {
            policy: self.scheduler.policy.clone(),
            journal: self.scheduler.journal.then(|| self.state.join("journal")),
            models: self.models.clone(),
            dry_run: self.scheduler.dry_run,
            ..scheduler::Config::default()
        }
    }

    /// What gateways and nodes must bring to join.
    pub(crate) fn token(&self) -> Option<String> {
        self.cluster.token.clone().or_else(|| std::env::var("WEFT_TOKEN").ok()).filter(|token| !token.is_empty())
    }

    /// The same for parts of a cluster, which there is none of without a token.
    pub(crate) fn cluster_token(&self) -> Result<String> {
        let how = "make one with `head -c 32 /dev/urandom | base64`, and give it to every scheduler, gateway and node as \
                   the variable WEFT_TOKEN, or as `token` under [cluster]";
        self.token().ok_or_else(|| Misuse(format!("join a cluster without a token; {how}")).into())
    }

    /// Whether it was said where the scheduler is.
    pub(crate) fn has_scheduler(&self, typed: Option<&str>) -> bool {
        typed.is_some() || self.cluster.scheduler.is_some()
    }

    /// Where the schedulers are, as typed or as written, with commas between.
    pub(crate) fn scheduler_urls(&self, typed: Option<String>) -> Result<Vec<String>> {
        let found = typed.or_else(|| self.cluster.scheduler.clone()).unwrap_or_default();
        let urls: Vec<String> = found.split(',').map(str::trim).filter(|url| !url.is_empty()).map(Into::into).collect();
        if urls.is_empty() {
            return Err(Misuse("find the scheduler: say where it is with --scheduler URL".into()).into());
        }
        Ok(urls)
    }

    /// What goes for somebody who has no file.
    fn without_file() -> Result<Settings> {
        let mut settings = Settings::default();
        settings.resolve(&std::path::absolute(".")?);
        Ok(settings)
    }

    fn resolve(&mut self, folder: &Path) {
        self.state = folder.join(&self.state);
        let tls = self.tls.iter_mut().flat_map(|tls| [&mut tls.certificate, &mut tls.key]);
        let node =
            [&mut self.node.python, &mut self.node.onnxruntime, &mut self.cluster.authority].into_iter().flatten();
        let models = self.models.iter_mut().filter_map(|spec| match &mut spec.kind {
            config::Kind::Onnx { path } | config::Kind::Python { path, .. } => Some(path),
            config::Kind::Virtual { .. } => None,
        });
        for path in tls.chain(node).chain(models) {
            *path = folder.join(&*path);
        }
        for path in self.models.iter_mut().filter_map(|spec| spec.warmup.as_mut()) {
            *path = folder.join(&*path);
        }
    }

    fn check(&self) -> Result<(), String> {
        let live = ["weft", "deferred", "eager"];
        if !live.contains(&self.scheduler.policy.as_str()) {
            return Err(format!("policy `{}` cannot run live; {} can", self.scheduler.policy, live.join(", ")));
        }
        let mut seen = std::collections::BTreeSet::new();
        for spec in &self.models {
            // Once more, because their paths have changed.
            spec.check()?;
            if !seen.insert((&spec.name, spec.version)) {
                return Err(format!("model `{}` version {} is there twice", spec.name, spec.version));
            }
        }
        let virtual_models = self.models.iter().any(|spec| matches!(spec.kind, config::Kind::Virtual { .. }));
        if virtual_models && self.node.virtual_gpus == 0 {
            return Err("there are virtual models and no GPU to emulate; set `virtual_gpus` under [node]".into());
        }
        let timeouts = [("load_timeout", self.node.load_timeout), ("batch_timeout", self.node.batch_timeout)];
        if let Some((name, _)) = timeouts.iter().find(|(_, timeout)| *timeout == Some(Span::ZERO)) {
            return Err(format!("`{name}` under [node] is nothing; no model is that fast"));
        }
        if let Some(traces) = &self.traces
            && !(0.0..=1.0).contains(&traces.part)
        {
            return Err(format!("`part` under [traces] is {}; it goes from 0 to 1", traces.part));
        }
        if let Some(key) = self.keys.clients.iter().chain(&self.keys.admin).find(|key| !is_hash(key)) {
            return Err(format!("`{key}` is not a SHA-256 in hexadecimal; `printf KEY | sha256sum` prints a key's"));
        }
        let is_key = |key: &&String| {
            let name = key.strip_prefix('/').unwrap_or(key);
            !name.is_empty() && !name.contains('/') && !name.trim_end_matches('*').contains('*') && !name.contains("..")
        };
        if let Some(key) = self.shared_memory.allow.iter().find(|key| !is_key(key)) {
            return Err(format!("`{key}` under [shared_memory] is not a key; one looks like `/camera` or `/camera_*`"));
        }
        Ok(())
    }
}

/// The lines on which the models of a file begin, in their order.
fn model_lines(text: &str) -> Vec<usize> {
    #[derive(Deserialize)]
    struct Places {
        #[serde(default)]
        model: Vec<toml::Spanned<serde::de::IgnoredAny>>,
    }
    let places = toml::from_str::<Places>(text).map_or_else(|_| Vec::new(), |places| places.model);
    let line = |place: usize| text[..place].matches('\n').count() + 1;
    places.iter().map(|model| line(model.span().start)).collect()
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weft.toml");
        std::fs::write(&path, text).unwrap();
        Settings::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_are_taken_from_the_files_folder() {
        let settings = read("state = \"s\"\n[[model]]\nname = \"m\"\nkind = \"onnx\"\npath = \"m.onnx\"\n").unwrap();
        assert!(settings.state.is_absolute() && settings.state.ends_with("s"));
        let config::Kind::Onnx { path } = &settings.models[0].kind else { panic!("it is an ONNX model") };
        assert!(path.is_absolute() && path.ends_with("m.onnx"));
    }

    #[test]
    fn nonsense_is_refused_with_the_place() {
        let check = |text: &str, expected: &str| {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check("colour = 3\n", "unknown field `colour`");
        check("[listen]\nhttp = \"here\"\n", "invalid socket address");
        check("[scheduler]\npolicy = \"clockwork\"\n", "policy `clockwork` cannot run live");
        check("[node]\nload_timeout = \"0s\"\n", "`load_timeout` under [node] is nothing");
        check("[sharing]\nslcie_least = \"1ms\"\n", "`slcie_least` is not a parameter of sharing");
        check("[sharing]\ntick = \"9s\"\n", "`tick` cannot be `9s`: it is between 100us and 50ms");
        check("[sharing]\nlevels = 1.5\n", "`levels` cannot be `1.5`: expected a whole number");
        check("[sharing]\nretry_most = \"1s\"\n", "`retry_first` is more than `retry_most`");
        check("[keys]\nadmin = [\"secret\"]\n", "`secret` is not a SHA-256");
        check("[server]\nadministration = \"maybe\"\n", "unknown variant `maybe`");
        check("[shared_memory]\nallow = [\"/a/b\"]\n", "`/a/b` under [shared_memory] is not a key");
        check("[shared_memory]\nallow = [\"/a*b\"]\n", "is not a key");
        check("[[model]]\nname = \"m\"\nkind = \"onnx\"\n", "kind `onnx` needs `path`");
        let env = "[[model]]\nname = \"m\"\nkind = \"onnx\"\npath = \"m\"\nenv = { LD_PRELOAD = \"x.so\" }\n";
        check(env, "`env` may not set `LD_PRELOAD`");
        let twice = "[[model]]\nname = \"m\"\nkind = \"onnx\"\npath = \"x\"\n".repeat(2);
        check(&twice, "model `m` version 1 is there twice");
        let lonely = "[[model]]\nname = \"v\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", beta = \"1ms\" }\n";
        check(lonely, "no GPU to emulate");
    }
}
