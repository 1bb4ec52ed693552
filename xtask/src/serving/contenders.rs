//! Who is measured: weft, and the peers.

use super::OBJECTIVE;
use crate::peers::{self, Peer, QUEUES, Queue, Repository};
use crate::program::Program;
use crate::server::{Ports, Question};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fmt::Write;

/// One server with one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// weft with the echo model in Python.
    WeftPython,
    /// weft with the echo model as ONNX.
    WeftOnnx,
    /// Another server with the echo model in Python.
    Peer(Peer),
    /// weft with `magika`.
    WeftMagika,
    /// Triton with `magika` and a queue.
    Triton(Queue),
}

impl Contender {
    /// All, in the order of tables and of turns.
    pub(super) fn all() -> Vec<Contender> {
        let echo = [Contender::WeftPython, Contender::WeftOnnx].into_iter().chain(Peer::ALL.map(Contender::Peer));
        let magika = std::iter::once(Contender::WeftMagika).chain(QUEUES.map(Contender::Triton));
        echo.chain(magika).collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Contender::WeftPython => "weft-python".to_owned(),
            Contender::WeftOnnx => "weft-onnx".to_owned(),
            Contender::Peer(peer) => peer.name().to_owned(),
            Contender::WeftMagika => "weft-magika".to_owned(),
            Contender::Triton(queue) => format!("triton-magika, {}", queue.name),
        }
    }

    /// For people.
    pub(super) fn title(&self) -> String {
        match self {
            Contender::WeftPython => "weft, Python model".to_owned(),
            Contender::WeftOnnx => "weft, ONNX model".to_owned(),
            Contender::Peer(peer) => peer.title().to_owned(),
            Contender::WeftMagika => "weft".to_owned(),
            Contender::Triton(queue) => format!("Triton, {}", queue.name),
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Contender::WeftPython | Contender::WeftOnnx | Contender::WeftMagika)
    }

    pub(super) fn serves_magika(&self) -> bool {
        matches!(self, Contender::WeftMagika | Contender::Triton(_))
    }

    pub(super) fn serves_echo(&self) -> bool {
        !self.serves_magika()
    }

    /// Whether its latency is measured at Triton's rate.
    pub(super) fn is_steady(&self) -> bool {
        matches!(self, Contender::WeftPython | Contender::WeftOnnx | Contender::Peer(Peer::Triton))
    }

    /// What it is asked: the protocol where it speaks it, else its own JSON.
    pub(super) fn question(&self) -> Question {
        match self {
            Contender::WeftMagika | Contender::Triton(_) => magika_question(),
            Contender::WeftPython | Contender::WeftOnnx => echo_question(),
            Contender::Peer(Peer::Triton | Peer::Mlserver | Peer::Kserve) => echo_question(),
            Contender::Peer(peer) => {
                let path = if *peer == Peer::Ray { "/" } else { "/predict" };
                let body = format!("{{\"input\":[{}]}}", numbers());
                Question { path: path.to_owned(), body, answer_has: "15.5".to_owned() }
            }
        }
    }

    /// The command that serves.
    pub(super) fn program(&self, workspace: &Workspace, ports: &Ports) -> Result<Program> {
        match self {
            Contender::Peer(peer) => peer.serve_echo(workspace, ports),
            Contender::Triton(queue) => peers::serve_triton(workspace, &Repository::Magika(queue.clone()), ports),
            Contender::WeftPython => {
                serve_weft(workspace, "echo-python", &[("echo", "python", "bench/models/echo.py")], ports)
            }
            Contender::WeftOnnx => {
                let file = workspace.output("serving")?.join("echo.onnx");
                let file = file.to_str().context("name the echo model")?;
                let script = ["bench/models/echo_onnx.py", file];
                Program::new("python3").arguments(script).folder(&workspace.root).read()?;
                serve_weft(workspace, "echo-onnx", &[("echo", "onnx", file)], ports)
            }
            Contender::WeftMagika => {
                let file = peers::magika(workspace)?;
                serve_weft(workspace, "magika", &[("magika", "onnx", file.to_str().context("name magika")?)], ports)
            }
        }
    }
}

/// weft with these models: name, kind and file.
pub(crate) fn serve_weft(
    workspace: &Workspace,
    name: &str,
    models: &[(&str, &str, &str)],
    ports: &Ports,
) -> Result<Program> {
    let folder = workspace.output("serving")?;
    let state = folder.join(format!("{name}-state"));
    if state.exists() {
        // What an earlier run deployed is none of this one's business.
        std::fs::remove_dir_all(&state).with_context(|| format!("empty {}", state.display()))?;
    }
    // Other people's clients load, unload and register memory without a key, as they may with Triton.
    let open = "[server]\nadministration = \"open\"\n[shared_memory]\nallow = [\"/*\"]\n";
    let mut text = format!("state = {state:?}\n{open}{}", setup::worker_settings(workspace)?);
    for (model, kind, path) in models {
        // A path in a configuration is taken from the configuration's folder, and this one lies under target/.
        let path = workspace.root.join(path);
        let path = path.display();
        writeln!(
            text,
            "[[model]]\nname = \"{model}\"\nkind = \"{kind}\"\npath = \"{path}\"\nmax_batch = 8\nslo = \"{OBJECTIVE}\"\n"
        )
        .context("write a configuration")?;
    }
    let config = folder.join(format!("{name}.toml"));
    std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let [http, grpc, metrics] = [ports.http, ports.grpc, ports.metrics].map(|port| format!("127.0.0.1:{port}"));
    let config = config.to_str().context("name the configuration")?;
    Ok(workspace.weft(["up", config, "--http", &http, "--grpc", &grpc, "--metrics", &metrics]))
}

/// Sixteen floats to the echo model, as the protocol has it.
pub(crate) fn echo_question() -> Question {
    let body = format!(
        "{{\"inputs\":[{{\"name\":\"INPUT\",\"shape\":[1,16],\"datatype\":\"FP32\",\"data\":[{}]}}]}}",
        numbers()
    );
    Question { path: "/v2/models/echo/infer".to_owned(), body, answer_has: "15.5".to_owned() }
}

/// A file's first and last bytes, made up, to `magika`.
fn magika_question() -> Question {
    // Any bytes will do; the time does not depend on them. 256 stands for none.
    let bytes: Vec<String> = (0..2048u64).map(|index| (index * 2_654_435 % 257).to_string()).collect();
    let body = format!(
        "{{\"inputs\":[{{\"name\":\"bytes\",\"shape\":[1,2048],\"datatype\":\"INT32\",\"data\":[{}]}}]}}",
        bytes.join(",")
    );
    Question { path: "/v2/models/magika/infer".to_owned(), body, answer_has: "target_label".to_owned() }
}

fn numbers() -> String {
    let numbers = (0..15).map(|number| number.to_string()).chain(["15.5".to_owned()]);
    numbers.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_differ_and_questions_are_json() {
        let all = Contender::all();
        assert_eq!(all.iter().map(Contender::name).collect::<BTreeSet<_>>().len(), all.len());
        for contender in all {
            let body: serde_json::Value = serde_json::from_str(&contender.question().body).unwrap();
            assert!(body.is_object(), "{}", contender.name());
        }
    }
}
