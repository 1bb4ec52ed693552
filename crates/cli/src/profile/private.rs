//! A server for one model that nobody serves yet. It ends with this process, however that ends.

use crate::admin::Server;
use crate::output::Misuse;
use crate::up::settings::Settings;
use anyhow::{Context, Result};
use harness::Process;
use load::Url;
use serde_json::{Map, Value, json};
use share_client::Gpus;
use std::net::TcpListener;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Somebody else may take a port between our looking and its listening.
const ATTEMPTS: usize = 3;

pub(super) struct Private {
    process: Process,
    _input: ChildStdin,
    pub(super) admin: Server,
    pub(super) http: Url,
    /// Last, so that it goes when nobody uses it.
    _folder: TempDir,
}

impl Private {
    /// Starts one without a model.
    pub(super) fn start() -> Result<Private> {
        // Where Python and ONNX Runtime are is as for `weft up` in this folder.
        let node = crate::setup::node_config(&Settings::find(None)?)?;
        let mut config = Map::new();
        config.insert("python".into(), json!(node.python));
        if let Some(onnxruntime) = &node.onnxruntime {
            config.insert("onnxruntime".into(), json!(onnxruntime));
        }
        let text = toml::to_string(&json!({ "node": config })).context("write a configuration")?;
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match Private::attempt(&text)? {
                Ok(private) => return Ok(private),
                Err(problem) if attempts == 0 => return Err(Misuse(format!("start a server: {problem}")).into()),
                Err(_) => {}
            }
        }
    }

    fn attempt(config: &str) -> Result<Result<Private, String>> {
        let folder = tempfile::Builder::new().prefix("weft-profile-").tempdir().context("make a temporary folder")?;
        let path = folder.path().join("weft.toml");
        std::fs::write(&path, config).context("write a configuration")?;
        // All three are held before the first is let go: no two are the same.
        let ports = [free()?, free()?, free()?];
        let [http, grpc, metrics] = ports.map(|(_held, port)| format!("127.0.0.1:{port}"));
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.arg("up").arg(&path).arg("--with-parent").arg("--state").arg(folder.path().join("state"));
        command.args(["--http", &http, "--grpc", &grpc, "--metrics", &metrics]);
        let (process, input, output) = Process::start(command).context("start a server")?;
        process.keep(output);
        let http = format!("http://{http}").parse().expect("an address and a port are a URL");
        let admin = Server::at(format!("http://{metrics}"), folder.path().join("state"));
        let mut private = Private { process, _input: input, admin, http, _folder: folder };
        let until = Instant::now() + PATIENCE;
        loop {
            if private.admin.ask("GET", "models", None).is_ok() {
                return Ok(Ok(private));
            }
            if let Some(status) = private.process.ended() {
                return Ok(Err(format!("it ended ({status}); {}", private.process.last_words())));
            }
            if Instant::now() > until {
                return Ok(Err(format!("it does not answer; {}", private.process.last_words())));
            }
        }
    }

    /// Has it serve the model in a file, under a share of a GPU where there is one.
    pub(super) fn deploy(&self, name: &str, file: &Path, asked: &Asked<'_>) -> Result<()> {
        let kind = if file.extension().is_some_and(|extension| extension == "onnx") { "onnx" } else { "python" };
        let path = std::path::absolute(file).context("find the model")?;
        let mut spec = json!({ "name": name, "kind": kind, "path": path, "slo": "60s" });
        let mut set = |key: &str, value: Option<Value>| {
            if let (Some(value), Some(spec)) = (value, spec.as_object_mut()) {
                spec.insert(key.into(), value);
            }
        };
        set("max_batch", asked.max_batch.map(|batch| json!(batch)));
        let share = match asked.gpu {
            Some(gpu) => Some(json!({ "gpu": gpu })),
            None => (!Gpus::find().gpus.is_empty()).then(|| json!({})),
        };
        set("share", share);
        self.admin.ask("POST", "models", Some(&spec)).with_context(|| format!("load {}", file.display()))?;
        Ok(())
    }
}

/// How a model in a file is to be served.
pub(super) struct Asked<'a> {
    pub(super) max_batch: Option<usize>,
    pub(super) gpu: Option<&'a str>,
}

impl Drop for Private {
    fn drop(&mut self) {
        self.process.ask_to_end();
        self.process.wait(Instant::now() + PATIENCE);
    }
}

/// A port that nobody uses, and what keeps it so.
fn free() -> Result<(TcpListener, u16)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    let port = listener.local_addr().context("find a free port")?.port();
    Ok((listener, port))
}
