//! `weft up` as people use it: started, asked, changed, killed and stopped, over real sockets.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{root, weft};
use tempfile::TempDir;
use weft_tests::free_port;

/// How long anything is waited for: longer than it takes on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

const DOUBLE: &str = r#"
import os, sys, time

class Double:
    inputs = [("x", "FP32", [-1, 4])]
    outputs = [("y", "FP32", [-1, 4])]

    def load(self):
        print("loaded and ready to double")

    def predict(self, inputs):
        x = inputs["x"]
        if (x == -1).any():
            raise ValueError("minus one is not for doubling")
        if (x <= -100).any():
            open("FOLDER/computed", "a").write(f"{x.min():.0f} ")
        if (x == -9).any():
            os.kill(os.getpid(), 9)
        if (x == -5).any():
            # Waits until it is let go on.
            open("FOLDER/asked", "w").close()
            while not os.path.exists("FOLDER/go"):
                time.sleep(0.01)
        return {"y": x * 2}
"#;

/// Python and ONNX Runtime of an environment that all tests share, so that it is installed once.
fn environment() -> &'static [String; 2] {
    static ENVIRONMENT: OnceLock<[String; 2]> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let folder = root().join("target/tmp/serve-state");
        let setup = Command::new(weft()).arg("setup").arg("--state").arg(&folder).output().expect("weft runs");
        assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
        let printed = String::from_utf8(setup.stdout).unwrap();
        let path = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string();
        [path("Python"), path("ONNX Runtime")]
    })
}

struct Server {
    process: Child,
    folder: TempDir,
    http: u16,
    metrics: u16,
}

impl Server {
    fn start(models: &str) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), models, &[])
    }

    fn start_in(folder: TempDir, models: &str, more: &[&str]) -> Server {
        let double = DOUBLE.replace("FOLDER", folder.path().to_str().unwrap());
        fs::write(folder.path().join("double.py"), double).unwrap();
        let [python, onnxruntime] = environment();
        let node = format!("[node]\npython = {python:?}\nonnxruntime = {onnxruntime:?}\nvirtual_gpus = 4\n");
        let config = node + models;
        let path = folder.path().join("weft.toml");
        fs::write(&path, config).unwrap();
        let [http, grpc, metrics] = [(); 3].map(|()| free_port());
        let mut command = Command::new(weft());
        command.arg("up").arg(&path).args(more);
        for (name, port) in [("--http", http), ("--grpc", grpc), ("--metrics", metrics)] {
            command.arg(name).arg(format!("127.0.0.1:{port}"));
        }
        let talk = fs::File::create(folder.path().join("stderr.txt")).unwrap();
        let process = command.stderr(Stdio::from(talk)).spawn().expect("weft runs");
        let server = Server { process, folder, http, metrics };
        server.wait("the server to be ready", |server| {
            server.try_ask(server.http, "GET", "/v2/health/ready", "").ok()?.ok(200)
        });
        server
    }

    /// Tries until something is there.
    fn wait<T>(&self, what: &str, mut ready: impl FnMut(&Server) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ready(self) {
                return found;
            }
            if Instant::now() > deadline {
                panic!("waited in vain for {what}; {}", self.talk());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What everybody said who writes into its folder.
    fn talk(&self) -> String {
        let files = fs::read_dir(self.folder.path()).into_iter().flatten().filter_map(Result::ok);
        let said = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|kind| kind == "txt"));
        let said =
            said.map(|path| format!("{} says:\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default()));
        said.collect()
    }

    fn try_ask(&self, port: u16, method: &str, path: &str, body: &str) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Answer::read(&text).ok_or_else(|| std::io::Error::other(format!("half an answer: {text:?}")))
    }

    /// The body of an answer that is text.
    fn try_ask_text(&self, port: u16, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_ask(self.http, method, path, body).expect("the server answers")
    }

    fn double(&self, model: &str, x: f32) -> Answer {
        let body = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": vec![x; 4]}]});
        self.ask("POST", &format!("/v2/models/{model}/infer"), &body.to_string())
    }

    /// Runs a command against this server; what it printed.
    fn command(&self, arguments: &[&str]) -> Result<String, String> {
        let url = format!("http://127.0.0.1:{}", self.metrics);
        let output = Command::new(weft())
            .args(arguments)
            .args(["--server", &url])
            .current_dir(self.folder.path())
            .output()
            .expect("weft runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Answer {
    fn read(text: &str) -> Option<Answer> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_lowercase(), body: serde_json::from_str(body).unwrap_or(Value::Null) })
    }

    fn ok(self, status: u16) -> Option<Answer> {
        (self.status == status).then_some(self)
    }

    fn first(&self) -> Option<f64> {
        self.body["outputs"][0]["data"][0].as_f64()
    }
}

fn python(slo: &str) -> String {
    format!("[[model]]\nname = \"double\"\nkind = \"python\"\npath = \"double.py\"\nslo = \"{slo}\"\n")
}

#[test]
fn a_python_model_answers_fails_and_recovers() {
    let server = Server::start(&python("5s"));
    assert_eq!(server.double("double", 21.0).first(), Some(42.0));
    let failed = server.double("double", -1.0);
    assert_eq!(failed.status, 500);
    let error = failed.body["error"].as_str().unwrap();
    assert!(error.contains("ValueError") && error.contains("minus one is not for doubling"), "{error}");
    assert_eq!(server.double("double", 1.0).first(), Some(2.0));
    // It kills its own process; the request is tried again until its time is up, others go on afterwards.
    let killed = server.double("double", -9.0);
    assert!([500, 503].contains(&killed.status), "{killed:?}");
    server.wait("the worker to be back", |server| server.double("double", 3.0).ok(200));
    let unknown = server.double("nobody", 1.0);
    assert_eq!((unknown.status, unknown.body["error"].as_str().is_some()), (404, true));
    let logs = server.command(&["logs", "double"]).unwrap();
    assert!(logs.contains("loaded and ready to double"), "{logs}");
}

#[test]
fn models_come_and_go_while_it_runs_and_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("double.py"), DOUBLE).unwrap();
    let file = folder.path().join("double.py").display().to_string();
    let server = Server::start_in(folder, "", &[]);
    assert_eq!(server.double("twice", 1.0).status, 404);
    let said = server.command(&["deploy", "twice", &file, "--slo", "60s"]).unwrap();
    assert!(
        said.starts_with("twice version 1 is ready: 1 request takes ") && said.ends_with(" (objective 60000 ms)\n"),
        "{said}"
    );
    assert_eq!(server.double("twice", 4.0).first(), Some(8.0));
    let missing = server.command(&["deploy", "twice", "/nowhere/model.onnx"]).unwrap_err();
    assert!(missing.contains("/nowhere/model.onnx"), "{missing}");
    assert_eq!(server.double("twice", 5.0).first(), Some(10.0), "the version before goes on");
    server.signal("-KILL");
    let mut server = server;
    server.process.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    drop(server);
    let server = Server::start_in(folder, "", &[]);
    server.wait("the model to be back", |server| server.double("twice", 6.0).ok(200));
    assert!(server.command(&["models"]).unwrap().contains("twice"));
    server.command(&["undeploy", "twice"]).unwrap();
    assert_eq!(server.double("twice", 1.0).status, 404);
}

#[test]
fn a_model_that_nobody_asks_has_no_worker_until_somebody_does() {
    let server = Server::start("");
    let file = server.folder.path().join("double.py").display().to_string();
    let elastic = ["--slo", "60s", "--workers", "0..2", "--keep-alive", "1s"];
    server.command(&[&["deploy", "double", &file], &elastic[..]].concat()).unwrap();
    let none = |server: &Server| server.command(&["models"]).unwrap().contains("0 of 0 (0..2)");
    server.wait("no worker to be left", |server| none(server).then_some(()));
    assert_eq!(server.double("double", 21.0).first(), Some(42.0), "it waited for a worker");
    let told = server.command(&["explain", "double", "--json"]).unwrap();
    assert!(told.contains("\"workers\":\"0..2\"") || told.contains("\"workers\": \"0..2\""), "{told}");
    server.wait("the decisions to be told", |server| {
        let told = server.command(&["explain", "double"]).unwrap();
        (told.contains("finishes and goes: no request for") && told.contains("there was no worker")).then_some(())
    });
    let wrong = server.command(&["set", "double", "--replicas", "4..2"]).unwrap_err();
    assert!(wrong.contains("at least 4 and at most 2"), "{wrong}");
    assert!(server.command(&["set", "nobody", "--replicas", "2"]).unwrap_err().contains("unknown model `nobody`"));
    assert_eq!(server.command(&["set", "double", "--replicas", "2"]).unwrap(), "double: 2 workers\n");
    let two = |server: &Server| server.command(&["models"]).unwrap().contains("2 of 2").then_some(());
    server.wait("two workers", two);
}

/// How many requests of clients that go away wait. A worker may be given its next batch while it runs one.
const GONE: usize = 20;

#[test]
fn requests_of_clients_that_went_away_are_not_computed() {
    let server = Server::start(&(python("60s") + "max_batch = 1\n"));
    let send = |x: f32| {
        let body = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": vec![x; 4]}]});
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", server.http)).unwrap();
        let length = body.len();
        write!(stream, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        stream
    };
    let file = |name: &str| server.folder.path().join(name);
    let metric = |server: &Server, line: &str| {
        let scraped = server.try_ask_text(server.metrics, "/metrics").ok()?;
        let found = scraped.lines().find(|found| found.starts_with(line))?.rsplit(' ').next()?.parse::<f64>().ok()?;
        Some(found as usize)
    };
    let runs = send(-5.0);
    server.wait("the first request to be computed", |_| file("asked").exists().then_some(()));
    let gone: Vec<_> = (0..GONE).map(|index| send(-100.0 - index as f32)).collect();
    let pending = "weft_requests_pending{model=\"double\"";
    server.wait("all to wait", |server| metric(server, pending).filter(|pending| *pending == GONE + 1));
    drop(gone);
    let withdrawn = "weft_requests_total{model=\"double\",version=\"1\",outcome=\"withdrawn\"";
    server.wait("all to be withdrawn", |server| metric(server, withdrawn).filter(|withdrawn| *withdrawn == GONE));
    fs::write(file("go"), "").unwrap();
    // Whoever came after them is served after them.
    assert_eq!(server.double("double", 1.0).first(), Some(2.0));
    let computed = fs::read_to_string(file("computed")).unwrap_or_default();
    assert!(computed.split_whitespace().count() <= 1, "{computed}");
    drop(runs);
}

#[test]
fn a_term_signal_answers_what_was_accepted() {
    let mut server = Server::start(&python("60s"));
    let http = server.http;
    let body =
        json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": vec![-5.0; 4]}]}).to_string();
    let asked = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", http)).unwrap();
        let length = body.len();
        write!(stream, "POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::read(&text).unwrap()
    });
    let file = |name: &str| server.folder.path().join(name);
    server.wait("the request to be computed", |_| file("asked").exists().then_some(()));
    server.signal("-TERM");
    server.wait("the server to take no more", |server| {
        let ready = server.try_ask(http, "GET", "/v2/health/ready", "");
        (!ready.is_ok_and(|answer| answer.status == 200)).then_some(())
    });
    fs::write(file("go"), "").unwrap();
    assert_eq!(asked.join().unwrap().first(), Some(-10.0));
    let status = server.process.wait().unwrap();
    assert!(status.success(), "{status}");
    let talk = fs::read_to_string(server.folder.path().join("stderr.txt")).unwrap();
    assert!(!talk.contains("WARN"), "its workers were not waited for:\n{talk}");
}

#[test]
fn what_was_decided_live_replays_to_the_same_decisions() {
    let model = |name: &str| {
        let latency = "{ alpha = \"1ms\", beta = \"3ms\" }";
        format!("[[model]]\nname = \"{name}\"\nkind = \"virtual\"\nlatency = {latency}\nslo = \"60s\"\nmax_batch = 8\n")
    };
    let server = Server::start_in(tempfile::tempdir().unwrap(), &(model("a") + &model("b")), &["--journal"]);
    let mut statuses = std::collections::BTreeMap::new();
    std::thread::scope(|scope| {
        // One of four has less time than its model takes.
        let ask = |index: usize| {
            let hasty = index.is_multiple_of(4);
            let parameters = if hasty { json!({"timeout": 2_000}) } else { json!({}) };
            let input = json!([{"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]);
            let body = json!({"inputs": input, "parameters": parameters}).to_string();
            let path = format!("/v2/models/{}/infer", if (index / 4).is_multiple_of(2) { "a" } else { "b" });
            (0..30).map(|_| (hasty, server.ask("POST", &path, &body).status)).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..16).map(|index| scope.spawn(move || ask(index))).collect();
        for answered in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            *statuses.entry(answered).or_insert(0) += 1;
        }
    });
    // What is not refused in time is given up.
    let refused = [503, 504].map(|status| statuses.remove(&(true, status)).unwrap_or(0));
    assert_eq!(refused.iter().sum::<i32>(), 120, "{statuses:?} {refused:?}");
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [((false, 200), 360)]);
    server.signal("-TERM");
    let mut server = server;
    server.process.wait().unwrap();
    let journal = server.folder.path().join(".weft/journal/virtual.journal");
    let replay = Command::new(weft()).args(["sim", "replay"]).arg(&journal).arg("--json").output().unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let told: Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert!(told["actions"].as_u64().unwrap() > 50, "{told}");
}

#[test]
fn a_request_that_cannot_make_it_is_refused_at_once_with_a_time_to_come_back() {
    // If it were run, or given up when its time is over, nobody would wait for the answer here.
    let model = "[[model]]\nname = \"slow\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", beta = \"800s\" }\nslo = \"1000s\"\n";
    let server = Server::start(model);
    let body = json!({
        "inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}],
        "parameters": {"timeout": 400_000_000},
    });
    let refused = server.ask("POST", "/v2/models/slow/infer", &body.to_string());
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
}

#[test]
fn parts_on_different_machines_work_together_and_a_node_may_die() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let [join, http, grpc, metrics, first, second] = [(); 6].map(|()| free_port());
    let config = path.join("weft.toml");
    let model =
        "[[model]]\nname = \"v\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", beta = \"5ms\" }\nslo = \"60s\"\n";
    fs::write(&config, format!("[cluster]\ntoken = \"secret\"\n[node]\nvirtual_gpus = 1\n{model}")).unwrap();
    let start = |arguments: &[String]| {
        let mut command = Command::new(weft());
        command.arg(&arguments[0]).arg(&config).args(&arguments[1..]);
        let last = arguments.last().map_or("", |word| word.rsplit(['/', ':']).next().unwrap_or_default());
        let talk = fs::File::create(path.join(format!("{}-{last}.txt", arguments[0]))).unwrap();
        Kept(Some(command.stderr(Stdio::from(talk)).spawn().expect("weft runs")))
    };
    let words = |text: String| text.split(' ').map(String::from).collect::<Vec<_>>();
    let _scheduler = start(&words(format!("scheduler --listen 127.0.0.1:{join}")));
    let url = format!("http://127.0.0.1:{join}");
    let listen = format!("--http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} --metrics 127.0.0.1:{metrics}");
    let gateway = words(format!("gateway --scheduler {url} {listen}"));
    let gateway = start(&gateway);
    let node = |port: u16| {
        let state = path.join(format!("node-{port}")).display().to_string();
        start(&words(format!("node --scheduler {url} --address 127.0.0.1:{port} --state {state}")))
    };
    let dying = node(first);
    let server = Server { process: gateway.take(), folder, http, metrics };
    let body = json!({"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]}]}).to_string();
    let infer = |server: &Server| server.try_ask(http, "POST", "/v2/models/v/infer", &body).ok()?.ok(200);
    assert_eq!(server.wait("an answer through three processes", infer).first(), Some(3.0));
    let _living = node(second);
    server.wait("the second node", |server| {
        let data = server.try_ask(metrics, "GET", "/ui/data?since=0", "").ok()?;
        (data.body["cluster"]["nodes"] == 2).then_some(())
    });
    drop(dying);
    for _ in 0..20 {
        server.wait("an answer from the node that is left", infer);
    }
}

#[test]
fn parts_on_different_machines_trust_certificates_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let [join, http, grpc, metrics, address] = [(); 5].map(|()| free_port());
    let write = |name: &str, text: &str| fs::write(path.join(name), text).unwrap();
    for name in ["own", "strangers"] {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
        write(&format!("{name}.pem"), &made.cert.pem());
        write(&format!("{name}.key"), &made.signing_key.serialize_pem());
    }
    let cluster = |authority: &str| {
        let scheduler = format!("scheduler = \"https://127.0.0.1:{join}\"");
        format!("[cluster]\ntoken = \"secret\"\n{scheduler}\nauthority = \"{authority}.pem\"\n")
    };
    let tls = "[tls]\ncertificate = \"own.pem\"\nkey = \"own.key\"\n";
    let model =
        "[[model]]\nname = \"v\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", beta = \"5ms\" }\nslo = \"60s\"\n";
    write("scheduler.toml", &format!("[node]\nvirtual_gpus = 1\n{tls}{}{model}", cluster("own")));
    write("node.toml", &format!("state = \"node\"\n[node]\nvirtual_gpus = 1\n{tls}{}", cluster("own")));
    write("gateway.toml", &cluster("own"));
    write("deceived.toml", &cluster("strangers"));
    let start = |part: &str, config: &str, more: &str| {
        let mut command = Command::new(weft());
        command.arg(part).arg(path.join(config)).args(more.split(' '));
        let talk = fs::File::create(path.join(format!("{config}.txt"))).unwrap();
        Kept(Some(command.stderr(Stdio::from(talk)).spawn().expect("weft runs")))
    };
    let _scheduler = start("scheduler", "scheduler.toml", &format!("--listen 127.0.0.1:{join}"));
    let _node = start("node", "node.toml", &format!("--address 127.0.0.1:{address}"));
    let listen = |[http, grpc, metrics]: [u16; 3]| {
        format!("--http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc} --metrics 127.0.0.1:{metrics}")
    };
    let gateway = start("gateway", "gateway.toml", &listen([http, grpc, metrics]));
    let server = Server { process: gateway.take(), folder, http, metrics };
    let body = json!({"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]}]}).to_string();
    let infer = |server: &Server| server.try_ask(http, "POST", "/v2/models/v/infer", &body).ok()?.ok(200);
    assert_eq!(server.wait("an answer over TLS", infer).first(), Some(3.0));

    // A gateway that trusts somebody else does not take this scheduler for its own.
    let ports = [(); 3].map(|()| free_port());
    let _deceived = start("gateway", "deceived.toml", &listen(ports));
    let said = || fs::read_to_string(path.join("deceived.toml.txt")).unwrap_or_default();
    server.wait("the gateway to object", |_| said().to_lowercase().contains("certificate").then_some(()));
    let through = server.try_ask(ports[0], "POST", "/v2/models/v/infer", &body);
    assert!(!through.is_ok_and(|answer| answer.status == 200));
}

/// A process that is killed when it goes out of sight.
struct Kept(Option<Child>);

impl Kept {
    fn take(mut self) -> Child {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
