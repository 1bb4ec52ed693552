//! A cluster of processes that meets what it should not: other versions, impostors, messages of two gigabytes, clients
//! that never read, and a clock that goes back.

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rpc::Incarnation;
use rpc::cluster::{self, PROTOCOL, PROTOCOL_KEY, proto};
use std::convert::Infallible;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{root, weft};
use tempfile::TempDir;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use weft_tests::{ask, free_port};

const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "secret";
/// In the header of a message: its length.
const TWO_GIGABYTES: [u8; 5] = [0, 0x80, 0, 0, 0];

/// A scheduler, a gateway and a node with emulated GPUs.
struct Cluster {
    folder: TempDir,
    scheduler: u16,
    /// Where the second scheduler is, in a cluster that has one.
    standby: Option<u16>,
    node: u16,
    http: u16,
    grpc: u16,
    parts: Vec<(&'static str, Child)>,
    /// What every part is started with.
    environment: Vec<(String, String)>,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::with(tempfile::tempdir().unwrap(), Vec::new())
    }

    fn with(folder: TempDir, environment: Vec<(String, String)>) -> Cluster {
        let [scheduler, node, http, grpc] = [(); 4].map(|()| free_port());
        let standby = None;
        let mut cluster = Cluster { folder, scheduler, standby, node, http, grpc, parts: Vec::new(), environment };
        for part in ["scheduler", "node", "gateway"] {
            cluster.start_part(part);
        }
        cluster.wait("the first answer", || cluster.infer() == 200);
        cluster
    }

    /// With a second scheduler, which is on standby.
    fn with_standby() -> Cluster {
        let [scheduler, standby, node, http, grpc] = [(); 5].map(|()| free_port());
        let (folder, standby) = (tempfile::tempdir().unwrap(), Some(standby));
        let (parts, environment) = (Vec::new(), Vec::new());
        let mut cluster = Cluster { folder, scheduler, standby, node, http, grpc, parts, environment };
        for part in ["scheduler", "node", "gateway"] {
            cluster.start_part(part);
        }
        cluster.wait("the first answer", || cluster.infer() == 200);
        cluster.start_standby("standby");
        cluster
    }

    /// Starts a scheduler while the other one leads, and waits until it is on standby.
    fn start_standby(&mut self, part: &'static str) {
        let waited = |cluster: &Cluster| cluster.log().matches("on standby: ").count();
        let before = waited(self);
        self.start_part(part);
        self.wait("it to be on standby", || waited(self) > before);
    }

    fn kill(&mut self, part: &str) {
        let at = self.parts.iter().position(|(name, _)| *name == part).unwrap();
        let (_, mut process) = self.parts.remove(at);
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn start_part(&mut self, part: &'static str) {
        let config = self.folder.path().join(format!("{part}.toml"));
        let is_scheduler = ["scheduler", "standby"].contains(&part);
        let state = if is_scheduler { "scheduler" } else { part };
        let urls = [Some(self.scheduler), self.standby].into_iter().flatten();
        let url = urls.map(|port| format!("http://127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        let mut text = format!("state = \"state-{state}\"\n[cluster]\ntoken = {TOKEN:?}\nscheduler = {url:?}\n");
        text += "[node]\nvirtual_gpus = 2\n";
        if is_scheduler {
            text += "[[model]]\nname = \"m\"\nkind = \"virtual\"\nlatency = { alpha = \"1ms\", beta = \"2ms\" }\nslo = \"2s\"\n";
        }
        fs::write(&config, text).unwrap();
        let at = |port: u16| format!("127.0.0.1:{port}");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(weft());
        command
            .arg(if is_scheduler { "scheduler" } else { part })
            .arg(&config)
            .current_dir(self.folder.path())
            .stderr(Stdio::from(log));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        match part {
            "scheduler" if self.standby.is_none() => command.args(["--listen", &at(self.scheduler)]),
            "scheduler" => command.args(["--listen", &at(self.scheduler), "--standby"]),
            "standby" => command.args(["--listen", &at(self.standby.unwrap()), "--standby"]),
            "node" => command.args(["--address", &at(self.node)]),
            _ => command.args(["--http", &at(self.http), "--grpc", &at(self.grpc), "--metrics", &at(free_port())]),
        };
        self.parts.push((part, command.spawn().expect("weft runs")));
    }

    fn end(&mut self, part: &str) {
        let at = self.parts.iter().position(|(name, _)| *name == part).unwrap();
        let (_, mut process) = self.parts.remove(at);
        assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
        assert!(process.wait().unwrap().success(), "{}", self.log());
    }

    /// The most memory that a part ever had, in MiB.
    fn most_mib(&self, part: &str) -> u64 {
        let (_, process) = self.parts.iter().find(|(name, _)| *name == part).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn infer(&self) -> u16 {
        let body = r#"{"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}"#;
        ask(self.http, "POST /v2/models/m/infer", "Content-Type: application/json\r\n", body).0
    }

    fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain for {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a hundred requests in a row are answered.
    fn assert_serves(&self) {
        for _ in 0..100 {
            assert_eq!(self.infer(), 200, "{}", self.log());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, process) in &mut self.parts {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A stream of messages with an introduction.
fn introduced<T: Send + 'static>(messages: Vec<T>, version: Option<u32>) -> Request<ReceiverStream<T>> {
    let (send, receive) = tokio::sync::mpsc::channel(messages.len().max(1));
    messages.into_iter().for_each(|message| assert!(send.try_send(message).is_ok()));
    // Whoever is let in stays for as long as the test does.
    std::mem::forget(send);
    let mut request = Request::new(ReceiverStream::new(receive));
    cluster::introduce(&mut request, Some(TOKEN)).unwrap();
    request.metadata_mut().remove(PROTOCOL_KEY);
    if let Some(version) = version {
        request.metadata_mut().insert(PROTOCOL_KEY, version.into());
    }
    request
}

fn hello(address: &str, incarnation: u64) -> proto::FromNode {
    cluster::from_hello(rpc::NodeHello {
        name: "impostor".into(),
        incarnation: Incarnation(incarnation),
        virtual_gpus: 4,
        address: address.into(),
        ..rpc::NodeHello::default()
    })
}

/// Joins as a node; why the stream ended, or nothing if it did not within a second.
async fn join(scheduler: u16, hello: proto::FromNode) -> Option<Status> {
    let url = format!("http://127.0.0.1:{scheduler}");
    let mut client = proto::scheduler_client::SchedulerClient::connect(url).await.unwrap();
    let mut stream = match client.node(introduced(vec![hello], Some(PROTOCOL))).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return Some(status),
    };
    let end = async {
        while stream.next().await.transpose()?.is_some() {}
        Err::<(), Status>(Status::ok("ended"))
    };
    tokio::time::timeout(Duration::from_secs(1), end).await.ok().and_then(Result::err)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn older_and_newer_versions_are_sent_away_with_a_sentence() {
    let cluster = Cluster::start();
    run(async {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let scheduler = proto::scheduler_client::SchedulerClient::connect(url(cluster.scheduler)).await.unwrap();
        let node = proto::node_client::NodeClient::connect(url(cluster.node)).await.unwrap();
        for version in [None, Some(1), Some(PROTOCOL + 1)] {
            let (mut scheduler, mut node) = (scheduler.clone(), node.clone());
            let refused = [
                scheduler.gateway(introduced(Vec::new(), version)).await.map(drop).unwrap_err(),
                scheduler.node(introduced(vec![hello("127.0.0.1:1", 1)], version)).await.map(drop).unwrap_err(),
                node.run(introduced(Vec::new(), version)).await.map(drop).unwrap_err(),
            ];
            for status in refused {
                assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                assert!(status.message().contains("run the same version of weft on all machines"), "{status}");
            }
        }
    });
    cluster.assert_serves();
    let said = cluster.log().matches("is sent away: this").count();
    assert_eq!(said, 9, "{}", cluster.log());
}

/// A scheduler of another version, as gateways and nodes see it: it refuses whoever comes.
struct Newer;

#[tonic::async_trait]
impl proto::scheduler_server::Scheduler for Newer {
    type GatewayStream = ReceiverStream<Result<proto::ToGateway, Status>>;
    type NodeStream = ReceiverStream<Result<proto::ToNode, Status>>;

    async fn gateway(
        &self,
        request: Request<tonic::Streaming<proto::FromGateway>>,
    ) -> Result<tonic::Response<Self::GatewayStream>, Status> {
        Err(refuse(&request))
    }

    async fn node(
        &self,
        request: Request<tonic::Streaming<proto::FromNode>>,
    ) -> Result<tonic::Response<Self::NodeStream>, Status> {
        Err(refuse(&request))
    }
}

fn refuse<T>(request: &Request<T>) -> Status {
    let said = request.metadata().get(PROTOCOL_KEY).map(|version| version.to_str().unwrap().to_owned());
    assert_eq!(said, Some(PROTOCOL.to_string()), "whoever comes says what it speaks");
    Status::failed_precondition("the other side speaks version 99 of the cluster protocol")
}

#[test]
fn under_a_scheduler_of_another_version_a_gateway_says_so_and_refuses_with_503() {
    let port = free_port();
    std::thread::spawn(move || {
        let service = proto::scheduler_server::SchedulerServer::new(Newer);
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        run(tonic::transport::Server::builder().add_service(service).serve(address)).unwrap();
    });
    let [node, http, grpc] = [(); 3].map(|()| free_port());
    let folder = tempfile::tempdir().unwrap();
    let (parts, environment) = (Vec::new(), Vec::new());
    let mut cluster = Cluster { folder, scheduler: port, standby: None, node, http, grpc, parts, environment };
    cluster.start_part("gateway");
    cluster.start_part("node");
    cluster.wait("both to say why", || cluster.log().matches("speaks version 99").count() >= 2);
    assert_eq!(cluster.infer(), 503, "{}", cluster.log());
    let (ready, why) = ask(cluster.http, "GET /v2/health/ready", "", "");
    assert!(ready != 200, "{why}");
}

#[test]
fn a_node_that_claims_to_be_another_takes_nothing_from_it() {
    let cluster = Cluster::start();
    let own = format!("127.0.0.1:{}", cluster.node);
    // At its address, under another identity.
    let refused = run(join(cluster.scheduler, hello(&own, 7))).expect("it is sent away");
    assert!(refused.message().contains("give this one an address of its own"), "{refused}");
    cluster.assert_serves();
    // Two that take themselves for the same start of a node, at two addresses: the first stays.
    let elsewhere = format!("127.0.0.1:{}", free_port());
    run(async {
        let empty = |address: &str| {
            let rpc::NodeHello { .. } = rpc::NodeHello::default();
            cluster::from_hello(rpc::NodeHello {
                name: "twin".into(),
                incarnation: Incarnation(42),
                address: address.into(),
                ..rpc::NodeHello::default()
            })
        };
        let first = join(cluster.scheduler, empty(&elsewhere));
        let second = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            join(cluster.scheduler, empty("127.0.0.1:9")).await
        };
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_none(), "the first one stays: {first:?}");
        let second = second.expect("the second one is sent away");
        assert!(second.message().contains("is this one already"), "{second}");
    });
    cluster.assert_serves();
    // At an address where nobody is, or where somebody else is: what it was given is run elsewhere in time.
    let nowhere = format!("127.0.0.1:{}", free_port());
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| run(join(cluster.scheduler, hello(&nowhere, 8))));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            answers.push((cluster.infer(), asked.elapsed()));
        }
    });
    let late = answers.iter().filter(|(_, took)| *took > Duration::from_millis(2_250)).count();
    assert!(late == 0 && answers.iter().all(|(status, _)| [200, 503, 504].contains(status)), "{answers:?}");
    cluster.wait("it to be forgotten", || cluster.infer() == 200);
    cluster.assert_serves();
}

/// Sends the beginning of a message that claims to have two gigabytes, and keeps the stream open. The status that it was
/// answered with.
fn claim(port: u16, path: &str, more: &[(&str, &str)]) -> Option<String> {
    let mut beginning = TWO_GIGABYTES.to_vec();
    beginning.extend([0; 65_536]);
    let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(beginning)));
    let body = StreamBody::new(tokio_stream::once(frame).chain(tokio_stream::pending()));
    let mut request = hyper::Request::post(format!("http://127.0.0.1:{port}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    run(async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let whole = async {
            let answer = client.send_request(request.body(body).unwrap()).await?;
            let header = answer.headers().clone();
            Ok::<_, hyper::Error>((header, answer.into_body().collect().await?.trailers().cloned()))
        };
        let answer = tokio::time::timeout(PATIENCE, whole).await.expect("it is answered");
        let (header, trailers) = answer.expect("by a status, not by a broken stream");
        let status = header.get("grpc-status").or_else(|| trailers.as_ref()?.get("grpc-status"))?;
        Some(status.to_str().unwrap().to_owned())
    })
}

#[test]
fn a_message_of_two_gigabytes_is_refused_before_it_is_read() {
    let cluster = Cluster::start();
    let length = "Content-Length: 2147483648\r\nContent-Type: application/json\r\n";
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.http)).unwrap();
    write!(stream, "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}\r\n{{").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let said = claim(cluster.grpc, "/inference.GRPCInferenceService/ModelInfer", &[]);
    assert!(matches!(said.as_deref(), Some("11" | "8")), "{said:?}");
    let (token, version) = (format!("Bearer {TOKEN}"), PROTOCOL.to_string());
    let member = [("authorization", token.as_str()), (PROTOCOL_KEY, version.as_str())];
    for (port, path) in [
        (cluster.scheduler, "/weft.cluster.Scheduler/Gateway"),
        (cluster.scheduler, "/weft.cluster.Scheduler/Node"),
        (cluster.node, "/weft.cluster.Node/Run"),
    ] {
        assert!(claim(port, path, &member).is_some(), "{path} ends");
    }
    for part in ["scheduler", "gateway", "node"] {
        assert!(cluster.most_mib(part) < 500, "{part} had {} MiB", cluster.most_mib(part));
    }
    cluster.assert_serves();
}

#[test]
fn clients_that_never_read_keep_nobody_from_being_answered() {
    let cluster = Cluster::start();
    let body = r#"{"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}"#;
    let length = body.len();
    let request =
        format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n{body}");
    let silent: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", cluster.http)).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As many requests one after the other as it takes before the server reads no more.
            for _ in 0..20_000 {
                match stream.write(request.as_bytes()) {
                    Ok(written) if written == request.len() => {}
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            stream
        })
        .collect();
    cluster.wait("an answer", || cluster.infer() == 200);
    assert!(cluster.most_mib("gateway") < 500, "{} MiB", cluster.most_mib("gateway"));
    drop(silent);
    cluster.wait("an answer", || cluster.infer() == 200);
    cluster.assert_serves();
}

#[test]
fn a_clock_that_goes_back_an_hour_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (library, back) = (folder.path().join("clock.so"), folder.path().join("back"));
    let mut compile = Command::new("gcc");
    compile
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(root().join("tests/programs/clock.c"))
        .arg("-ldl");
    assert!(compile.status().expect("gcc runs").success());
    let text = |path: &Path| path.display().to_string();
    let environment = vec![("LD_PRELOAD".into(), text(&library)), ("CLOCK_BACK".into(), text(&back))];
    let mut cluster = Cluster::with(folder, environment);
    cluster.assert_serves();
    fs::write(&back, "").unwrap();
    cluster.assert_serves();
    // Whoever starts an hour before it ended is not taken for the one from then, nor the other way round.
    for part in ["node", "scheduler", "gateway"] {
        cluster.end(part);
        cluster.start_part(part);
        cluster.wait("an answer", || cluster.infer() == 200);
    }
    fs::remove_file(&back).unwrap();
    cluster.assert_serves();
}

/// Asks without pause, from several threads, until `work` is over; how many were answered with 200, and what else came.
fn under_load(cluster: &mut Cluster, work: impl FnOnce(&mut Cluster)) -> (usize, Vec<(u16, String)>) {
    let (http, over) = (cluster.http, AtomicBool::new(false));
    let body = r#"{"inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}"#;
    std::thread::scope(|scope| {
        let asking = || {
            let (mut good, mut others) = (0, Vec::new());
            while !over.load(Relaxed) {
                match ask(http, "POST /v2/models/m/infer", "Content-Type: application/json\r\n", body) {
                    (200, _) => good += 1,
                    other => others.push(other),
                }
            }
            (good, others)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(asking)).collect();
        work(cluster);
        over.store(true, Relaxed);
        let seen = threads.into_iter().map(|thread| thread.join().unwrap());
        seen.fold((0, Vec::new()), |(good, mut others), (more, other)| {
            others.extend(other);
            (good + more, others)
        })
    })
}

#[test]
fn a_standby_takes_over_from_a_scheduler_that_dies_or_ends_and_no_request_fails() {
    let mut cluster = Cluster::with_standby();
    let (good, others) = under_load(&mut cluster, |cluster| {
        // Each leads in turn: killed, told to end, and again.
        for (leads, is_killed) in [("scheduler", true), ("standby", true), ("scheduler", false), ("standby", false)] {
            let led = cluster.log().matches("scheduling; gateways and nodes may join").count();
            match is_killed {
                true => cluster.kill(leads),
                false => cluster.end(leads),
            }
            let leading = |cluster: &Cluster| cluster.log().matches("scheduling; gateways and nodes may join").count();
            cluster.wait("the other to lead", || leading(cluster) > led);
            cluster.assert_serves();
            cluster.start_standby(leads);
        }
    });
    assert!(good > 0 && others.is_empty(), "{good} were served, and others: {others:?}\n{}", cluster.log());
}

#[test]
fn a_scheduler_on_standby_says_so_at_once() {
    let cluster = Cluster::with_standby();
    let refused = run(join(cluster.standby.unwrap(), hello("127.0.0.1:1", 1))).expect("it is sent away");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("on standby"), "{refused}");
    cluster.assert_serves();
}

#[test]
fn a_scheduler_that_hears_of_a_later_one_ends_and_nodes_take_nothing_from_an_earlier_one() {
    let mut cluster = Cluster::with_standby();
    run(async {
        let url = format!("http://127.0.0.1:{}", cluster.node);
        let mut node = proto::node_client::NodeClient::connect(url).await.unwrap();
        let payloads = vec![proto::Payload { request: 7, inputs: Vec::new() }];
        let part = proto::Part { worker: 1, batch: 1, size: 1, payloads, term: 1, ..proto::Part::default() };
        let mut answers = node.run(introduced(vec![part], Some(PROTOCOL))).await.unwrap().into_inner();
        let answer = answers.next().await.unwrap().unwrap();
        let Some(proto::answer::Outcome::NotRun(why)) = answer.outcome else { panic!("{answer:?}") };
        assert!(why.contains("no longer leads"), "{why}");
        // A member that has followed a later leader.
        let url = format!("http://127.0.0.1:{}", cluster.scheduler);
        let mut scheduler = proto::scheduler_client::SchedulerClient::connect(url).await.unwrap();
        let mut request = introduced(Vec::<proto::FromGateway>::new(), Some(PROTOCOL));
        cluster::say_term(request.metadata_mut(), rpc::Term(u64::MAX));
        let refused = scheduler.gateway(request).await.map(drop).unwrap_err();
        assert!(refused.message().contains("another scheduler has begun to lead"), "{refused}");
    });
    let (_, first) = cluster.parts.iter_mut().find(|(name, _)| *name == "scheduler").unwrap();
    assert!(!first.wait().unwrap().success(), "it says that it failed");
    cluster.parts.retain(|(name, _)| *name != "scheduler");
    // The standby leads, and nobody noticed.
    cluster.assert_serves();
}

/// How a signal is sent to a part.
fn signals(cluster: &Cluster, part: &str) -> impl Fn(&str) + use<> {
    let (_, process) = cluster.parts.iter().find(|(name, _)| *name == part).unwrap();
    let id = process.id().to_string();
    move |name| assert!(Command::new("kill").args([name, &id]).status().unwrap().success())
}

#[test]
fn a_standby_takes_over_from_a_scheduler_that_hangs_which_ends_when_it_wakes() {
    let mut cluster = Cluster::with_standby();
    let signal = signals(&cluster, "scheduler");
    signal("-STOP");
    cluster.wait("the standby to lead", || cluster.log().contains("gives no sign of life"));
    cluster.wait("an answer under it", || cluster.infer() == 200);
    let (good, others) = under_load(&mut cluster, |cluster| {
        signal("-CONT");
        let (_, first) = cluster.parts.iter_mut().find(|(name, _)| *name == "scheduler").unwrap();
        assert!(!first.wait().unwrap().success(), "it says that it failed");
        cluster.parts.retain(|(name, _)| *name != "scheduler");
        assert_eq!(cluster.infer(), 200);
    });
    assert!(good > 0 && others.is_empty(), "{good} were served, and others: {others:?}\n{}", cluster.log());
    assert!(cluster.log().contains("another scheduler has begun to lead"), "{}", cluster.log());
    // It may come back, and waits for its turn.
    cluster.start_standby("scheduler");
    cluster.kill("standby");
    cluster.assert_serves();
}

#[test]
fn of_two_schedulers_that_both_believe_they_lead_the_later_one_is_followed() {
    let mut cluster = Cluster::with_standby();
    cluster.kill("standby");
    // Another state folder, so another lock: both lead. The first one is stopped, and its members look for another.
    let signal = signals(&cluster, "scheduler");
    let config = cluster.folder.path().join("standby.toml");
    let text = fs::read_to_string(&config).unwrap().replace("state-scheduler", "state-other");
    fs::write(&config, text).unwrap();
    let log = fs::OpenOptions::new().append(true).open(cluster.folder.path().join("log")).unwrap();
    let mut second = Command::new(weft());
    second.arg("scheduler").arg(&config).args(["--listen", &format!("127.0.0.1:{}", cluster.standby.unwrap())]);
    let second = second.current_dir(cluster.folder.path()).stderr(Stdio::from(log)).spawn().unwrap();
    cluster.parts.push(("second", second));
    let leading = |cluster: &Cluster| cluster.log().matches("scheduling; gateways and nodes may join").count();
    cluster.wait("both to lead", || leading(&cluster) == 2);
    signal("-STOP");
    cluster.wait("an answer under the second", || cluster.infer() == 200);
    let (good, others) = under_load(&mut cluster, |cluster| {
        signal("-CONT");
        cluster.wait("the first to find its members gone", || cluster.log().contains("a node was lost"));
        assert_eq!(cluster.infer(), 200);
    });
    assert!(good > 0 && others.is_empty(), "{good} were served, and others: {others:?}\n{}", cluster.log());
}
