//! `weft deploy`, `undeploy`, `models`, `explain`, `logs`: talk to a running Weft.

use crate::access;
use crate::output::{Misuse, print, print_json};
use crate::share::Whereabouts;
use anyhow::{Context, Result};
use clap::Args;
use config::Workers;
use report::columns::{align, row};
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may refuse connections because it is only starting.
const PATIENCE: Duration = Duration::from_secs(3);
/// Where a server's metrics port is, where nobody says otherwise.
const USUAL: &str = "http://127.0.0.1:8002";
const USUAL_PORT: u16 = 8002;
/// Certificates that the system trusts, where systems keep them.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How to reach a running Weft.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// URL of the server's metrics port [default: the server of this folder, else http://127.0.0.1:8002]
    #[arg(long, value_name = "URL", env = "WEFT_ADMIN")]
    server: Option<String>,
    /// Admin key; the user that runs the server needs none on its machine
    #[arg(long, value_name = "KEY", env = "WEFT_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
    /// State folder of the server [default: the one of `weft up` in this folder]
    #[arg(long, value_name = "FOLDER", env = "WEFT_STATE")]
    state: Option<PathBuf>,
    /// CA certificates in PEM that sign the server's [default: the certificate in weft.toml, else the system's]
    #[arg(long, value_name = "FILE", env = "WEFT_CA")]
    ca: Option<PathBuf>,
}

impl Server {
    /// One on this machine, with its state folder.
    pub(crate) fn at(url: String, state: PathBuf) -> Server {
        Server { server: Some(url), key: None, state: Some(state), ca: None }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        self.server.as_deref().unwrap_or(USUAL)
    }

    /// Asks for something; what came back, or the server's own words on why not.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let text = body.map_or_else(String::new, Value::to_string);
        let until = Instant::now() + PATIENCE;
        let (status, text) = loop {
            // A server that was started in the same breath is given time to listen.
            match self.attempt(method, path, &text)? {
                Attempt::Answered(status, text) => break (status, text),
                Attempt::Absent(problem) if Instant::now() >= until => return Err(Misuse(problem).into()),
                Attempt::Absent(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        match ((200..300).contains(&status), value["error"].as_str()) {
            (true, _) => Ok(value),
            (false, Some(error)) => Err(Misuse(error.to_string()).into()),
            (false, None) => Err(Misuse(format!("ask {}: it answered {status}: {text}", self.url())).into()),
        }
    }

    fn attempt(&self, method: &str, path: &str, body: &str) -> Result<Attempt> {
        let own = Own::find(self.state.as_deref());
        let target: ureq::http::Uri = self.url().parse().with_context(|| format!("understand {}", self.url()))?;
        if self.key.is_none()
            && is_here(target.host().unwrap_or_default())
            && let Some(stream) =
                access::connect(&own.state, self.server.as_ref().map(|_| target.port_u16().unwrap_or(80)), USUAL_PORT)?
        {
            let (status, text) = exchange(stream, method, path, body).context("ask the server by its socket")?;
            return Ok(Attempt::Answered(status, text));
        }
        let is_tls = target.scheme_str() == Some("https");
        // A key from a file goes to nobody who did not prove to be the server.
        let key = self.key.clone().or_else(|| is_tls.then(|| access::existing_key(&own.state)).flatten());
        let Some(key) = key else { return self.explain(&target) };
        let roots = if is_tls { self.roots(&own)? } else { Vec::new() };
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(provider);
        let agent =
            ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls.build()).build().new_agent();
        let url = format!("{}/admin/{path}", self.url().trim_end_matches('/'));
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(&url)
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(body.to_owned())
            .with_context(|| format!("ask {url}"))?;
        match agent.run(request) {
            Ok(mut response) => {
                let status = response.status().as_u16();
                let text = response.body_mut().read_to_string().with_context(|| format!("read the answer of {url}"))?;
                Ok(Attempt::Answered(status, text))
            }
            Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                Ok(Attempt::Absent(self.unreached(&error)))
            }
            Err(error) => Err(Misuse(self.unreached(&error)).into()),
        }
    }

    /// Without a key there is nothing to ask a server for; but is there one?
    fn explain(&self, target: &ureq::http::Uri) -> Result<Attempt> {
        let usual = if target.scheme_str() == Some("https") { 443 } else { 80 };
        let (host, port) = (target.host().unwrap_or_default(), target.port_u16().unwrap_or(usual));
        match std::net::TcpStream::connect((host.trim_matches(['[', ']']), port)) {
            // Its port is there before its socket when a server was started in the same breath.
            Ok(_) => Ok(Attempt::Absent(format!(
                "reach {} without its admin key: run this in the folder where the server was started, name its state \
                 folder with --state, or set WEFT_ADMIN_KEY to what the file admin.key in that folder holds",
                self.url()
            ))),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Attempt::Absent(self.unreached(&error))),
            Err(error) => Err(Misuse(self.unreached(&error)).into()),
        }
    }

    fn unreached(&self, error: &dyn std::fmt::Display) -> String {
        format!("reach {}: {error}; is `weft up` running there?", self.url())
    }

    /// Who vouches for the server.
    fn roots(&self, own: &Own) -> Result<Vec<ureq::tls::Certificate<'static>>> {
        let system = || SYSTEM_CERTIFICATES.iter().map(PathBuf::from).find(|path| path.exists());
        let named = self.ca.clone().or_else(|| own.certificate.clone()).or_else(system);
        let path = named.ok_or_else(|| Misuse("trust a certificate: say whose with --ca FILE".into()))?;
        let text = std::fs::read(&path).map_err(|error| Misuse(format!("read {}: {error}", path.display())))?;
        let items = ureq::tls::parse_pem(&text).filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        });
        let roots: Vec<_> = items.collect();
        if roots.is_empty() {
            return Err(Misuse(format!("find a certificate in {}: there is none", path.display())).into());
        }
        Ok(roots)
    }
}

/// What became of asking once.
enum Attempt {
    Answered(u16, String),
    /// Nobody listens; why, in words.
    Absent(String),
}

/// What this folder says of its own server.
struct Own {
    state: PathBuf,
    certificate: Option<PathBuf>,
}

impl Own {
    /// As `weft up` would find it; a file that makes no sense says nothing.
    fn find(state: Option<&Path>) -> Own {
        let text = std::fs::read_to_string("weft.toml").unwrap_or_default();
        let written: toml::Table = toml::from_str(&text).unwrap_or_default();
        let named = |value: Option<&toml::Value>| value.and_then(toml::Value::as_str).map(PathBuf::from);
        let tls = written.get("tls").and_then(|tls| tls.get("certificate"));
        let authority = written.get("cluster").and_then(|cluster| cluster.get("authority"));
        let state = state.map(Path::to_owned).or_else(|| named(written.get("state")));
        Own { state: state.unwrap_or_else(|| ".weft".into()), certificate: named(tls).or_else(|| named(authority)) }
    }
}

/// Whether a host is this machine by its name.
fn is_here(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

/// Asks a server by a socket of this machine: the status and the body of its answer.
fn exchange(mut stream: UnixStream, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let length = body.len();
    let head = format!(
        "{method} /admin/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).context("send")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("read: it ended early")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("read: it makes no sense")?;
    Ok((status, body.to_owned()))
}

/// Deploy a model, or a new version of it.
///
/// Waits until the model has answered a warm-up request within its objective, and prints how long that took, or why the
/// model is not ready. An existing version is replaced without a failed request: the old one answers until the new one is
/// ready.
#[derive(Debug, Args)]
#[command(after_help = DEPLOY_EXAMPLES)]
pub(crate) struct Deploy {
    /// Name of the model for clients
    name: String,
    /// Model file: .onnx, or .py with a class that has `predict`
    file: Option<PathBuf>,
    /// Version
    #[arg(long, default_value_t = 1)]
    version: u32,
    /// Objective: longest latency from arrival to answer
    #[arg(long, default_value = "100ms")]
    slo: String,
    /// Largest batch; 0: no batch dimension [default: found from the model]
    #[arg(long)]
    max_batch: Option<usize>,
    /// Number of worker processes: fixed, or a range within which it follows the load, such as 0..8 [default: 1]
    #[arg(long, value_name = "N|MIN..MAX")]
    workers: Option<Workers>,
    /// Time without requests after which the last worker ends [default: learned from past pauses]
    #[arg(long, value_name = "TIME")]
    keep_alive: Option<String>,
    /// Threads of each worker
    #[arg(long)]
    threads: Option<usize>,
    /// Device of an ONNX model: `auto` uses a GPU if there is one, `gpu` fails without one [default: auto]
    #[arg(long, value_name = "auto|gpu|cpu")]
    device: Option<String>,
    /// Class in a Python file that has more than one
    #[arg(long)]
    class: Option<String>,
    /// Emulated model instead of a file: time for each request and for each batch, such as `1ms,5ms`
    #[arg(long, value_name = "ALPHA,BETA", conflicts_with = "file")]
    r#virtual: Option<String>,
    /// Warm-up request, JSON as clients send it [default: zeros]
    #[arg(long, value_name = "FILE", conflicts_with = "virtual")]
    warmup: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

const DEPLOY_EXAMPLES: &str = "\
Examples:
  weft deploy magika model.onnx --slo 100ms --max-batch 8
  weft deploy sentiment sentiment.py --workers 2
  weft deploy detector detector.onnx --slo 250ms --warmup request.json
  weft deploy sentiment sentiment.py --workers 0..8 --keep-alive 300s
  weft deploy resnet50 --virtual 1.053ms,5.072ms --slo 25ms";

impl Deploy {
    pub(crate) fn main(self) -> Result<()> {
        let answer = self.spec().and_then(|spec| self.server.ask("POST", "models", Some(&spec)));
        let answer = answer.map_err(|error| Misuse(format!("deploy {}: {error:#}", self.name)))?;
        match self.json {
            true => print_json(&answer),
            false => print(&format!("{} version {} is ready{}\n", self.name, self.version, warmed_up(&answer))),
        }
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
            ("device", self.device.as_ref().map(|value| json!(value))),
        ];
        for (key, value) in options.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            set(key, value);
        }
        if let Some(class) = &self.class {
            set("class", json!(class));
        }
        if let Some(file) = &self.warmup {
            set("warmup", json!(std::path::absolute(file)?));
        }
        match (&self.file, &self.r#virtual) {
            (Some(file), _) => {
                let kind = match file.extension().and_then(|extension| extension.to_str()) {
                    Some("onnx") => "onnx",
                    Some("py") => "python",
                    _ => {
                        return Err(Misuse(format!(
                            "read {}: its name ends neither in .onnx nor in .py",
                            file.display()
                        ))
                        .into());
                    }
                };
                set("kind", json!(kind));
                set("path", json!(std::path::absolute(file)?));
            }
            (None, Some(line)) => {
                let wrong = || Misuse(format!("read --virtual {line}: write two times, as in `1ms,5ms`"));
                let (alpha, beta) = line.split_once(',').ok_or_else(wrong)?;
                set("kind", json!("virtual"));
                set("latency", json!({ "alpha": alpha, "beta": beta }));
            }
            (None, None) => return Err(Misuse("find the model: give a file, or --virtual".into()).into()),
        }
        Ok(Value::Object(spec))
    }
}

/// What the warm-up of a model said, in words; nothing where it is not known.
fn warmed_up(model: &Value) -> String {
    let took = |point: &Value| Some((point["batch"].as_u64()?, point["ms"].as_f64()?));
    let points: Vec<(u64, f64)> = model["measured"].as_array().into_iter().flatten().filter_map(took).collect();
    let (Some((_, one)), Some((most, all))) = (points.first(), points.last()) else { return String::new() };
    let more = if *most > 1 { format!(", {most} take {}", milliseconds(*all)) } else { String::new() };
    let objective = milliseconds(model["slo_ms"].as_f64().unwrap_or_default());
    let device = model["device"].as_str().map_or_else(String::new, |device| format!(", on {device}"));
    format!(": 1 request takes {}{more} (objective {objective}){device}", milliseconds(*one))
}

/// A time as people say it: two digits of what is short, no more than is known of what is long.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 0.995 => format!("{ms:.2} ms"),
        ms if ms < 9.95 && ms.fract() > 0.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// Stop serving a model: one version of it, or all.
///
/// The server answers accepted requests first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft undeploy magika\n  weft undeploy magika --version 1")]
pub(crate) struct Undeploy {
    /// Name of the model
    name: String,
    /// Version [default: all]
    #[arg(long)]
    version: Option<u32>,
    #[command(flatten)]
    server: Server,
}

impl Undeploy {
    pub(crate) fn main(self) -> Result<()> {
        let version = self.version.map_or_else(String::new, |version| format!("?version={version}"));
        let answer = self.server.ask("DELETE", &format!("models/{}{version}", self.name), None);
        answer.map_err(|error| Misuse(format!("undeploy {}: {error:#}", self.name)))?;
        let version = self.version.map_or_else(String::new, |version| format!(" version {version}"));
        print(&format!("{}{version} is not served any more\n", self.name))
    }
}

/// List the models of a running server with their state.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft models\n  weft models --json")]
pub(crate) struct Models {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Models {
    pub(crate) fn main(self) -> Result<()> {
        let answer = self.server.ask("GET", "models", None);
        let answer = answer.map_err(|error| Misuse(format!("list the models: {error:#}")))?;
        if self.json {
            return print_json(&answer);
        }
        if answer["scheduler"] == false {
            let note = "weft: the gateway does not reach its scheduler: this is what it knew before";
            let _ = writeln!(std::io::stderr(), "{note}");
        }
        let mut rows = vec![row([
            "model",
            "version",
            "kind",
            "state",
            "device",
            "workers",
            "slo ms",
            "max batch",
            "source",
            "why",
        ])];
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
                device(model),
                if text("kind") == "virtual" { "-".into() } else { workers },
                number("slo_ms"),
                number("max_batch"),
                source(model),
                why(model),
            ]);
        }
        print(&align(&rows))
    }
}

/// What a model runs on: `gpu (CUDA)`, `cpu`, or a dash where only the model knows.
fn device(model: &Value) -> String {
    match (model["device"].as_str(), model["provider"].as_str()) {
        (Some(device), Some(provider)) if device != "cpu" => format!("{device} ({provider})"),
        (Some(device), _) => device.to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// Why a model is not available, or not on the GPU.
fn why(model: &Value) -> String {
    match (model["reason"].as_str().unwrap_or_default(), model["device_reason"].as_str()) {
        ("", Some(reason)) => format!("not on the GPU: {reason}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Who asked for a model, in words.
fn source(model: &Value) -> String {
    let over = if model["overrides_command"] == true { ", over a command" } else { "" };
    format!("{}{over}", model["source"].as_str().unwrap_or("command"))
}

/// Explain why a model has its workers, or why a program runs on its GPU.
///
/// For a model: how many workers it may have, needs and has, where they run, the expected load, and the last decisions.
/// For a program or a worker under a share: its GPU and why, the share that it requested, is granted and uses. For a job
/// that waits: what it waits for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft explain sentiment\n  weft explain trainer\n  weft explain sentiment --json")]
pub(crate) struct Explain {
    /// Name of a model, a program in `weft top`, or a job
    name: String,
    /// Print JSON
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
            Err(error) if whereabouts.is_empty() => {
                return Err(Misuse(format!("explain {}: {error:#}", self.name)).into());
            }
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
        "{name} version {}: {ready} of {wanted} workers ready, allowed {}; {} requests wait\n",
        version["version"],
        text(&version["workers"]),
        version["waiting"],
    );
    for worker in version["placed"].as_array().into_iter().flatten() {
        let (number, node, state) = (&worker["worker"], text(&worker["node"]), text(&worker["state"]));
        told += &format!("  worker {number} on {node}: {state}, {} batches\n", worker["batches"]);
        if let Some(why) = worker["why"].as_str().filter(|why| !why.is_empty()) {
            told += &format!("    on this node because {why}\n");
        }
    }
    let scaling = &version["scaling"];
    match (scaling.is_null(), version["workers"].is_number()) {
        (true, true) => return told + "  the number of workers is fixed\n",
        (true, false) => return told + "  the number it needs is unknown until its first worker is ready\n",
        (false, _) => {}
    }
    told += &format!(
        "  {} requests/s arrive, {} expected by the time a new worker could be ready; one worker serves {}\n",
        rate(&scaling["arriving"]),
        rate(&scaling["expected"]),
        rate(&scaling["worker_does"]),
    );
    told += &format!(
        "  a start takes {}; the last worker ends after {} without requests\n",
        text(&scaling["cold_start"]),
        text(&scaling["keep_alive"]),
    );
    let would = if scaling["dry_run"] == true { " (a dry run: nothing was done)" } else { "" };
    let decisions = scaling["decisions"].as_array().map_or(&[][..], Vec::as_slice);
    if !decisions.is_empty() {
        told += &format!("  decisions{would}:\n");
    }
    for decision in decisions {
        told += &format!("    {} ago: {}\n", text(&decision["ago"]), text(&decision["text"]));
    }
    told
}

/// Show the output of a model's workers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weft logs sentiment --lines 50")]
pub(crate) struct Logs {
    /// Name of the model
    name: String,
    /// Number of lines of each worker
    #[arg(long, default_value_t = 100)]
    lines: usize,
    #[command(flatten)]
    server: Server,
}

impl Logs {
    pub(crate) fn main(self) -> Result<()> {
        let answer = self.server.ask("GET", &format!("logs/{}?lines={}", self.name, self.lines), None);
        let answer = answer.map_err(|error| Misuse(format!("read the log of {}: {error:#}", self.name)))?;
        let lines = answer["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        print(&lines.map(|line| format!("{line}\n")).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_says_what_its_warm_up_said() {
        let measured = json!([{ "batch": 1, "ms": 7.92 }, { "batch": 2, "ms": 12.0 }, { "batch": 4, "ms": 21.4 }]);
        let mut model = json!({ "slo_ms": 250.0, "measured": measured });
        assert_eq!(warmed_up(&model), ": 1 request takes 7.9 ms, 4 take 21 ms (objective 250 ms)");
        model["device"] = json!("CPU");
        model["measured"] = json!([{ "batch": 1, "ms": 0.137 }]);
        assert_eq!(warmed_up(&model), ": 1 request takes 0.14 ms (objective 250 ms), on CPU");
        assert_eq!(warmed_up(&json!({})), "");
    }
}
