//! Which models there are, as gateways see them. Published by the scheduler whenever something about it changes.

use crate::{ModelInfo, ModelSpec, ScalingView, Workers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// All model versions, by name and then by version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// In order.
    pub entries: Vec<Entry>,
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
    /// All versions of a model, lowest first.
    pub fn versions(&self, name: &str) -> &[Entry] {
        let first = self.entries.partition_point(|entry| entry.spec.name.as_str() < name);
        let count = self.entries[first..].iter().take_while(|entry| entry.spec.name == name).count();
        &self.entries[first..first + count]
    }

    /// A version of a model. Without one, the highest that is ready, else the highest.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<&Entry, NotFound> {
        let versions = self.versions(name);
        let Some(highest) = versions.last() else { return Err(NotFound::Model(name.to_string())) };
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
    pub node: u16,
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
    #[serde(with = "crate::model::span")]
    pub busy: policy::Span,
    /// Batches it ran.
    pub batches: u64,
    /// How often it was started again.
    pub restarts: u64,
    /// What it died of the last time.
    pub last_error: Option<String>,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerState {
    /// Loading its model.
    Starting,
    /// Taking batches.
    Ready,
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
            WorkerState::Restarting => "restarting",
            WorkerState::Stopping => "stopping",
        }
    }
}
