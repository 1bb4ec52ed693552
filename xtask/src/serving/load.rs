//! `weft load`: requests that come when they come, whether or not earlier ones were answered.

use super::OBJECTIVE;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Duration;

/// What it counted.
#[derive(Debug, PartialEq)]
pub(super) struct Measured {
    /// Requests a second that were answered within the objective.
    pub(super) good_rps: f64,
    /// Of those that were answered.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// Sends one model requests at this rate, spaced by chance.
pub(super) fn run(workspace: &Workspace, port: u16, model: &str, rate: f64, length: Duration) -> Result<Measured> {
    send(workspace, port, model, rate, length, "poisson")
}

/// Sends one model requests at this rate, one after the other.
pub(super) fn lone(workspace: &Workspace, port: u16, model: &str, rate: f64, length: Duration) -> Result<Measured> {
    send(workspace, port, model, rate, length, "constant")
}

fn send(
    workspace: &Workspace,
    port: u16,
    model: &str,
    rate: f64,
    length: Duration,
    arrivals: &str,
) -> Result<Measured> {
    let (url, rate) = (format!("http://127.0.0.1:{port}"), format!("{rate:.2}"));
    let length = format!("{}s", length.as_secs());
    let arguments = ["load", "--url", &url, "--model", model, "--rate", &rate, "--arrivals", arrivals];
    let arguments = arguments.into_iter().chain(["--duration", &length, "--slo", OBJECTIVE, "--json"]);
    parse(&workspace.weft(arguments).read()?)
}

fn parse(printed: &str) -> Result<Measured> {
    let value: Value = serde_json::from_str(printed).context("read what weft load printed")?;
    let good_rps = value["good_rps"].as_f64().context("find good_rps in what weft load printed")?;
    let of_latency = |name: &str| value["latency_ms"][name].as_f64();
    Ok(Measured { good_rps, p50_ms: of_latency("p50"), p99_ms: of_latency("p99") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_all_models_are_meant() {
        let printed = r#"{"models":[{"good_rps":1.0}],"latency_ms":{"p50":2.5,"p99":7.5},"good_rps":3}"#;
        assert_eq!(parse(printed).unwrap(), Measured { good_rps: 3.0, p50_ms: Some(2.5), p99_ms: Some(7.5) });
        assert!(parse("{}").is_err());
    }
}
