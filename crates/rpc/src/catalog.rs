//! Which models there are, as gateways see them. Published by the scheduler whenever something about it changes.

use crate::{ModelInfo, ScalingView};
use config::env::HIDDEN;
use config::{ModelSpec, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// All model versions, by name and then by version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// In order.
    pub entries: Vec<Entry>,
    /// Whether a scheduler has said which models there are.
    #[serde(default = "known")]
    pub known: bool,
    /// Whether the scheduler has just begun to lead and nodes that have workers may be on their way: a model that is
    /// loading may have had workers all the time.
    #[serde(default)]
    pub settling: bool,
}

fn known() -> bool {
    true
}

/// One version of one model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its number with the scheduler.
    pub model: u32,
    /// What was asked for.
    pub spec: Arc<ModelSpec>,
    /// What its first worker found out; none before that.
    pub info: Option<Arc<ModelInfo>>,
    /// How it is.
    pub state: State,
    /// Workers that could take a batch.
    pub workers_ready: usize,
    /// Workers that it is to have now.
    pub workers_wanted: usize,
    /// Who asked for it.
    #[serde(default)]
    pub source: Source,
    /// What its warm-up showed, and how it is since.
    #[serde(default)]
    pub health: Health,
}

/// Who asked for a deployment, and so who may change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A command, such as `weft deploy`: it is in the store.
    #[default]
    Command,
    /// The configuration file, which is read at every start.
    File,
    /// The configuration file, which took the place of a command's deployment at this start.
    FileOverCommand,
}

impl Source {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Command => "command",
            Source::File | Source::FileOverCommand => "file",
        }
    }

    /// Whether the configuration file has the say.
    pub const fn is_file(self) -> bool {
        matches!(self, Source::File | Source::FileOverCommand)
    }
}

/// What is known of a model version beyond its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Batch sizes and how long they took in the warm-up of its first worker, in nanoseconds, sizes rising.
    pub measured: Vec<(usize, u64)>,
    /// Why none of its workers could take a batch right now, where it should have some.
    pub trouble: Option<String>,
    /// Whether it was ordered just now and is taken away again if it never works.
    pub on_trial: bool,
}

impl Entry {
    /// Whether it can be asked, and somebody would answer.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready && self.health.trouble.is_none()
    }

    /// Its state as people are told it: one that nobody would answer for right now is not ready, whatever it was before.
    pub fn shown(&self) -> State {
        match (&self.state, &self.health.trouble) {
            (State::Ready, Some(trouble)) => State::Unavailable(format!("no worker right now: {trouble}")),
            (state, _) => state.clone(),
        }
    }

    /// Whether somebody unloaded it, and nobody expects it to answer.
    pub fn is_unloaded(&self) -> bool {
        matches!(&self.state, State::Unavailable(reason) if reason == UNLOADED)
    }
}

/// Why a model that was unloaded is not available.
pub const UNLOADED: &str = "unloaded";

/// How a model version is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its first worker is on its way.
    Loading,
    /// It can be asked.
    Ready,
    /// It cannot be asked, and why.
    Unavailable(String),
}

/// Why a model that was asked for could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotFound {
    /// No model of that name.
    #[error("unknown model `{0}`")]
    Model(String),
    /// Which models there are is not known yet.
    #[error("which models there are is not known yet: no scheduler was reached so far")]
    NotKnownYet,
    /// The model is known and has no workers.
    #[error("model `{0}` is not loaded")]
    Unloaded(String),
    /// The model is there, this version is not.
    #[error("model `{model}` has no version `{version}`; there is {there}")]
    Version {
        /// The model.
        model: String,
        /// What was asked for.
        version: String,
        /// The versions there are, in words.
        there: String,
    },
}

impl Catalog {
    /// The catalog for gateways and whoever asks them: without the values of variables.
    pub fn without_secrets(&self) -> Catalog {
        let entry = |entry: &Entry| Entry { spec: without_secrets(&entry.spec), ..entry.clone() };
        Catalog { entries: self.entries.iter().map(entry).collect(), known: self.known, settling: self.settling }
    }

    /// All versions of a model, lowest first.
    pub fn versions(&self, name: &str) -> &[Entry] {
        let first = self.entries.partition_point(|entry| entry.spec.name.as_str() < name);
        let count = self.entries[first..].iter().take_while(|entry| entry.spec.name == name).count();
        &self.entries[first..first + count]
    }

    /// A version of a model. Without one, the highest that is ready, else the highest.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<&Entry, NotFound> {
        let versions = self.versions(name);
        let Some(highest) = versions.last() else {
            return Err(if self.known { NotFound::Model(name.to_string()) } else { NotFound::NotKnownYet });
        };
        let Some(wanted) = version.filter(|version| !version.is_empty()) else {
            return Ok(versions.iter().rev().find(|entry| entry.state == State::Ready).unwrap_or(highest));
        };
        let number = wanted.parse::<u32>().ok();
        versions.iter().find(|entry| Some(entry.spec.version) == number).ok_or_else(|| NotFound::Version {
            model: name.to_string(),
            version: wanted.to_string(),
            there: versions.iter().map(|entry| entry.spec.version.to_string()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// What an operator asks the scheduler to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Serve this; a new version takes over when it is ready.
    Deploy(Box<ModelSpec>),
    /// Serve it no more: one version, or all of them. Its deployment is forgotten.
    Undeploy {
        /// The model.
        name: String,
        /// One version of it, or all.
        version: Option<u32>,
    },
    /// Let it have so many workers from now on: one version, or all of them.
    Scale {
        /// The model.
        name: String,
        /// One version of it, or all.
        version: Option<u32>,
        /// How many.
        workers: Workers,
    },
    /// Start the workers of a known model.
    Load {
        /// The model.
        name: String,
    },
    /// End the workers of a model and remember its deployment.
    Unload {
        /// The model.
        name: String,
    },
}

/// Why an order could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum OrderError {
    /// There is no such model.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The order makes no sense, or the model could not be loaded: the text says why.
    #[error("{0}")]
    Invalid(String),
    /// It could not be written down.
    #[error("{0}")]
    Storage(String),
}

/// How workers and queues are, for people to look at. Published every second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overview {
    /// All workers, by number.
    pub workers: Vec<WorkerView>,
    /// Requests that wait, by model number.
    pub queues: Vec<(u32, usize)>,
    /// Nodes by number.
    pub nodes: Vec<NodeView>,
    /// Models whose number of workers follows their load.
    #[serde(default)]
    pub scaling: Vec<ScalingView>,
}

/// A node as people and gateways see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub node: u32,
    /// What people call it.
    pub name: String,
    /// Where gateways on other machines reach it; empty where they need not.
    pub address: String,
}

/// A worker as people see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number.
    pub worker: crate::WorkerId,
    /// The node it is on.
    pub node: String,
    /// What it has loaded, as `name:version`; `virtual GPU` for an emulated one.
    pub model: String,
    /// Whether it can take batches; else what it is doing.
    pub state: WorkerState,
    /// How long it has been busy since it was first started.
    #[serde(with = "config::model::span")]
    pub busy: policy::Span,
    /// Batches it ran.
    pub batches: u64,
    /// How often it was started again.
    pub restarts: u64,
    /// What it died of the last time.
    pub last_error: Option<String>,
    /// Why it is on that node; empty where its node brought it along.
    #[serde(default)]
    pub why: String,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerState {
    /// Loading its model.
    Starting,
    /// Taking batches.
    Ready,
    /// Ready when it was last heard of, which is too long ago: given nothing until it is heard again.
    Silent,
    /// Dead, about to be started again.
    Restarting,
    /// Finishing what it has.
    Stopping,
}

impl WorkerState {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            WorkerState::Starting => "starting",
            WorkerState::Ready => "ready",
            WorkerState::Silent => "silent",
            WorkerState::Restarting => "restarting",
            WorkerState::Stopping => "stopping",
        }
    }
}

/// A deployment for others to see: with the names of its variables, and without their values.
pub fn without_secrets(spec: &Arc<ModelSpec>) -> Arc<ModelSpec> {
    if spec.env.values().all(|value| value == HIDDEN) {
        return spec.clone();
    }
    let mut shown = ModelSpec::clone(spec);
    shown.env.values_mut().for_each(|value| *value = HIDDEN.into());
    Arc::new(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_and_names_are_not() {
        let text = r#"{"name": "a", "kind": "onnx", "path": "x", "env": {"TOKEN": "hunter2"}}"#;
        let spec: Arc<ModelSpec> = Arc::new(serde_json::from_str(text).unwrap());
        let shown = serde_json::to_string(&*without_secrets(&spec)).unwrap();
        assert!(shown.contains("TOKEN") && shown.contains(HIDDEN) && !shown.contains("hunter2"), "{shown}");
        assert_eq!(spec.env["TOKEN"], "hunter2");
    }
}
