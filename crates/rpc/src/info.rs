//! What a worker found out about its model.

use config::TensorSpec;
use serde::{Deserialize, Serialize};

/// What a model runs on in fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsOn {
    /// `gpu` or `cpu`.
    pub device: String,
    /// ONNX Runtime's execution providers that run its operators, the one with the most first.
    pub provider: String,
    /// Why it is not on a GPU, where it might have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a worker found out about its model when it loaded it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// What clients expect.
    pub inputs: Vec<TensorSpec>,
    /// What they get.
    pub outputs: Vec<TensorSpec>,
    /// The most requests that may share a batch; 0 when there is no batch dimension.
    pub max_batch: usize,
    /// What it runs on, where its worker knows. A Python model decides that by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_on: Option<RunsOn>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_peers_read_what_does_not_say_what_it_runs_on() {
        let info: ModelInfo = serde_json::from_str(r#"{"inputs": [], "outputs": [], "max_batch": 4}"#).unwrap();
        assert_eq!(info.runs_on, None);
        assert!(!serde_json::to_string(&info).unwrap().contains("runs_on"));
    }
}
