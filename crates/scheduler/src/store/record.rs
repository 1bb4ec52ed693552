//! What is remembered of a deployment.

use config::ModelSpec;
use serde::{Deserialize, Serialize};

/// A deployment as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// What to serve.
    pub spec: ModelSpec,
    /// Whether its workers should run.
    pub loaded: bool,
}

/// One line of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The model; a name of our own where it cannot be read.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The deployment, or why it cannot be read.
    pub content: Result<Stored, String>,
}
