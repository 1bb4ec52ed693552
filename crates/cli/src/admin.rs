//! `weft deploy`, `undeploy`, `models`, `explain`, `logs`: talk to a running Weft.

use crate::output::{Misuse, print, print_json};
use crate::share::Whereabouts;
use crate::table::{align, row};
use anyhow::{Context, Result};
use clap::Args;
use rpc::Workers;
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use ureq::http::{Request, Response};

/// How long a server may refuse connections because it is only starting.
const PATIENCE: Duration = Duration::from_secs(3);

/// How to reach a running Weft.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Where its metrics port is.
    #[arg(long, value_name = "URL", env = "WEFT_ADMIN", default_value = "http://127.0.0.1:8002")]
    server: String,
    /// The admin key, where one is set.
    #[arg(long, value_name = "KEY", env = "WEFT_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl Server {
    /// One without a key.
    pub(crate) fn at(url: String) -> Server {
        Server { server: url, key: None }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.server
    }

    /// Asks for something; what came back, or the server's own words on why not.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("{}/admin/{path}", self.server.trim_end_matches('/'));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut request = Request::builder().method(method).uri(&url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let text = body.map_or_else(String::new, Value::to_string);
        let request = request.body(text).with_context(|| format!("ask {url}"))?;
        let mut response = self.send(&agent, &request)?;
        let text = response.body_mut().read_to_string().with_context(|| format!("read the answer of {url}"))?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        match (response.status().is_success(), value["error"].as_str()) {
            (true, _) => Ok(value),
            (false, Some(error)) => Err(Misuse(error.to_string()).into()),
            (false, None) => Err(Misuse(format!("{url} answered {}: {text}", response.status())).into()),
        }
    }

    /// Sends a request; a server that was started in the same breath is given time to listen.
    fn send(&self, agent: &ureq::Agent, request: &Request<String>) -> Result<Response<ureq::Body>, Misuse> {
        let patience = Instant::now() + PATIENCE;
        loop {
            match agent.run(request.clone()) {
                Err(ureq::Error::Io(error))
                    if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < patience =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                outcome => {
                    return outcome.map_err(|error| {
                        Misuse(format!("reach {}: {error}; is `weft up` running there?", self.server))
                    });
                }
            }
        }
    }
}

/// Serve a model, or a new version of it, from now on.
///
/// Waits until the model is ready and says why if it cannot be. A version that is there already is replaced without a
/// failed request: the old one answers until the new one is ready.
#[derive(Debug, Args)]
#[command(after_help = DEPLOY_EXAMPLES)]
pub(crate) struct Deploy {
    /// What clients will call it.
    name: String,
    /// The model: an .onnx file, or a .py file with a class that has `predict`.
    file: Option<PathBuf>,
    /// Which version it is.
    #[arg(long, default_value_t = 1)]
    version: u32,
    /// From arrival to answer.
    #[arg(long, default_value = "100ms")]
    slo: String,
    /// The most requests in a batch; 0 for a model without a batch dimension.
    #[arg(long)]
    max_batch: Option<usize>,
    /// How many worker processes: a number, or from some to some as the load asks for, such as 0..8.
    #[arg(long, value_name = "N|MIN..MAX")]
    workers: Option<Workers>,
    /// How long the last worker stays while nobody asks; without, as past pauses suggest.
    #[arg(long, value_name = "TIME")]
    keep_alive: Option<String>,
    /// Threads of a worker.
    #[arg(long)]
    threads: Option<usize>,
    /// The class in a Python file, where there is more than one.
    #[arg(long)]
    class: Option<String>,
    /// Instead of a file: a model that only takes time, for each request and for each batch, such as `1ms,5ms`.
    #[arg(long, value_name = "ALPHA,BETA", conflicts_with = "file")]
    r#virtual: Option<String>,
    #[command(flatten)]
    server: Server,
}

const DEPLOY_EXAMPLES: &str = "\
Examples:
  weft deploy magika model.onnx --slo 100ms --max-batch 8
  weft deploy sentiment sentiment.py --workers 2
  weft deploy sentiment sentiment.py --workers 0..8 --keep-alive 300s
  weft deploy resnet50 --virtual 1.053ms,5.072ms --slo 25ms";

impl Deploy {
    pub(crate) fn main(self) -> Result<()> {
        let spec = self.spec()?;
        self.server.ask("POST", "models", Some(&spec))?;
        print(&format!("{} version {} is ready\n", self.name, self.version))
    }

    fn spec(&self) -> Result<Value> {
        let mut spec = Map::new();
        let mut set = |key: &str, value: Value| drop(spec.insert(key.into(), value));
        set("name", json!(self.name));
        set("version", json!(self.version));
        set("slo", json!(self.slo));
        let options = [
            ("max_batch", self.max_batch.map(|value| json!(value))),
            ("workers", self.workers.map(|value| json!(value))),
            ("keep_alive", self.keep_alive.as_ref().map(|value| json!(value))),
            ("threads", self.threads.map(|value| json!(value))),
        ];
        for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            set(key, value);
        }
        if let Some(class) = &self.class {
            set("class", json!(class));
        }
        match (&self.file, &self.r#virtual) {
            (Some(file), _) => {
                let kind = match file.extension().and_then(|extension| extension.to_str()) {
                    Some("onnx") => "onnx",
                    Some("py") => "python",
                    _ => return Err(Misuse(format!("tell what {} is: .onnx and .py are known", file.display())).into()),
                };
                set("kind", json!(kind));
                set("path", json!(std::path::absolute(file)?));
            }
            (None, Some(line)) => {
                let wrong = || Misuse(format!("read `--virtual {line}`: write it like `1ms,5ms`"));
                let (alpha, beta) = line.split_once(',').ok_or_else(wrong)?;
                set("kind", json!("virtual"));
                set("latency", json!({ "alpha": alpha, "beta": beta }));
            }
            (None, None) => return Err(Misuse("deploy nothing: name a file, or use --virtual".into()).into()),
        }
        Ok(Value::Object(spec))
    }
}

/// Stop serving a model: one version of it, or all.
///
/// Requests it has accepted are answered first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft undeploy magika\n  weft undeploy magika --version 1")]
pub(crate) struct Undeploy {
    /// What clients call it.
    name: String,
    /// Only this version.
    #[arg(long)]
    version: Option<u32>,
    #[command(flatten)]
    server: Server,
}

impl Undeploy {
    pub(crate) fn main(self) -> Result<()> {
        let version = self.version.map_or_else(String::new, |version| format!("?version={version}"));
        self.server.ask("DELETE", &format!("models/{}{version}", self.name), None)?;
        print(&format!("{} is not served any more\n", self.name))
    }
}

/// List the models of a running Weft and how they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft models\n  weft models --json")]
pub(crate) struct Models {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Models {
    pub(crate) fn main(self) -> Result<()> {
        let answer = self.server.ask("GET", "models", None)?;
        if self.json {
            return print_json(&answer);
        }
        let mut rows = vec![row(["model", "version", "kind", "state", "workers", "slo ms", "max batch", "why"])];
        for model in answer["models"].as_array().into_iter().flatten() {
            let workers = match model["spec"]["workers"].as_str() {
                Some(bounds) => format!("{} of {} ({bounds})", model["workers_ready"], model["workers_wanted"]),
                None => format!("{} of {}", model["workers_ready"], model["workers_wanted"]),
            };
            let text = |key: &str| model[key].as_str().unwrap_or_default().to_string();
            let number = |key: &str| model[key].to_string();
            rows.push(vec![
                text("name"),
                number("version"),
                text("kind"),
                text("state"),
                if text("kind") == "virtual" { "-".into() } else { workers },
                number("slo_ms"),
                number("max_batch"),
                text("reason"),
            ]);
        }
        print(&align(&rows))
    }
}

/// Tell why a model has the workers it has, or why a program is where it is.
///
/// Of a model: how many workers it may have, needs and has, where they are, what is expected of the load, and what was
/// decided last. Of a program under a share, and of a model's workers that have one: on which GPU it is and why, what it
/// was promised, is given and uses. Of a job that waits: for what.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft explain sentiment\n  weft explain trainer\n  weft explain sentiment --json")]
pub(crate) struct Explain {
    /// What clients, `weft top` or `weft jobs` call it.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Explain {
    pub(crate) fn main(self) -> Result<()> {
        let whereabouts = Whereabouts::of(&self.name);
        let mut answer = match self.server.ask("GET", &format!("models/{}/scaling", self.name), None) {
            Ok(answer) => answer,
            Err(error) if whereabouts.is_empty() => return Err(error),
            Err(_) => json!({}),
        };
        if self.json {
            answer["programs"] = whereabouts.json();
            return print_json(&answer);
        }
        let versions = answer["versions"].as_array().into_iter().flatten();
        let versions: Vec<String> = versions.map(|version| explanation(&self.name, version)).collect();
        print(&(versions.join("\n") + &whereabouts.words()))
    }
}

/// One version, in words.
fn explanation(name: &str, version: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let rate = |value: &Value| format!("{:.1}", value.as_f64().unwrap_or_default());
    let (ready, wanted) = (&version["workers_ready"], &version["workers_wanted"]);
    let mut told = format!(
        "{name} version {}: {ready} of {wanted} workers ready; it may have {}; {} requests wait\n",
        version["version"],
        text(&version["workers"]),
        version["waiting"],
    );
    for worker in version["placed"].as_array().into_iter().flatten() {
        let (number, node, state) = (&worker["worker"], text(&worker["node"]), text(&worker["state"]));
        told += &format!("  worker {number} on {node}: {state}, {} batches\n", worker["batches"]);
    }
    let scaling = &version["scaling"];
    match (scaling.is_null(), version["workers"].is_number()) {
        (true, true) => return told + "  so many were asked for, and that does not change\n",
        (true, false) => return told + "  how many it needs is not known before its first worker is ready\n",
        (false, _) => {}
    }
    told += &format!(
        "  {} requests/s come, {} are expected by the time a worker could be there; one worker does {}\n",
        rate(&scaling["arriving"]),
        rate(&scaling["expected"]),
        rate(&scaling["worker_does"]),
    );
    told += &format!(
        "  a start takes {}; the last worker stays for {} while nobody asks\n",
        text(&scaling["cold_start"]),
        text(&scaling["keep_alive"]),
    );
    let would = if scaling["dry_run"] == true { " (a dry run: nothing of it was done)" } else { "" };
    let decisions = scaling["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    if !decisions.is_empty() {
        told += &format!("  decided{would}:\n");
    }
    for decision in decisions {
        told += &format!("    {} ago: {}\n", text(&decision["ago"]), text(&decision["text"]));
    }
    told
}

/// Show what the workers of a model printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft logs sentiment --lines 50")]
pub(crate) struct Logs {
    /// The model.
    name: String,
    /// How many lines of each worker.
    #[arg(long, default_value_t = 100)]
    lines: usize,
    #[command(flatten)]
    server: Server,
}

impl Logs {
    pub(crate) fn main(self) -> Result<()> {
        let answer = self.server.ask("GET", &format!("logs/{}?lines={}", self.name, self.lines), None)?;
        let lines = answer["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        print(&lines.map(|line| format!("{line}\n")).collect::<String>())
    }
}
