//! wrk: connections that each wait for an answer before they ask again.

use crate::program::Program;
use crate::server::Question;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

pub(super) const CONNECTIONS: u32 = 8;

/// What it counted.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct Measured {
    /// Answered with 2xx or 3xx.
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Other answers, and connections that broke or waited too long.
    pub(super) failed: u64,
}

/// What it prints in the end, as JSON. wrk counts in microseconds.
const DONE: &str = r#"
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"failed":%d}\n',
    summary.requests - e.status, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Asks the same question for so long.
pub(super) fn run(folder: &Path, name: &str, port: u16, question: &Question, length: Duration) -> Result<Measured> {
    let script = folder.join(format!("{}.lua", name.replace([' ', ',', '/'], "-")));
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = [==[{}]==]\n{DONE}",
        question.body
    );
    std::fs::write(&script, text).with_context(|| format!("write {}", script.display()))?;
    let script = script.to_string_lossy().into_owned();
    let (connections, length) = (format!("-c{CONNECTIONS}"), format!("-d{}s", length.as_secs()));
    let url = format!("http://127.0.0.1:{port}{}", question.path);
    let wrk = ["-t1", &connections, &length, "--timeout", "10s", "-s", &script, &url];
    let printed = Program::new("wrk").arguments(wrk).read()?;
    parse(&printed)
}

fn parse(printed: &str) -> Result<Measured> {
    let line = printed.lines().rfind(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("find what wrk measured in: {printed}"))?;
    serde_json::from_str(line).with_context(|| format!("read what wrk measured: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts() {
        let printed =
            "Running 2s test\n\n{\"requests\":10,\"seconds\":2.5,\"p50_ms\":1,\"p99_ms\":2.25,\"failed\":0}\n";
        let wanted = Measured { requests: 10, seconds: 2.5, p50_ms: 1.0, p99_ms: 2.25, failed: 0 };
        assert_eq!(parse(printed).unwrap(), wanted);
        assert!(parse("unable to connect").is_err());
    }
}
