//! A gateway whose scheduler and workers are a few lines, a server before it, and a client that sends what it is told,
//! byte by byte.

#![allow(dead_code, unreachable_pub, reason = "every test uses a part of this")]

use config::{DataType, Kind, Line, ModelSpec, TensorSpec};
use gateway::flights::Session;
use gateway::http::{HttpConfig, serve};
use gateway::{Gateway, Links, OrderOutcome};
use policy::{Reason, Span};
use rpc::{
    Arrival, Catalog, Entry, Failure, Grant, ModelInfo, NotFound, Order, OrderError, Outputs, Part, Refusal, State,
    Tensor, ToGateway, WorkerId,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// What the models of the test gateway do, by their numbers.
const ECHO: u32 = 0;
const PLAIN: u32 = 1;
const FAIL: u32 = 2;
const FULL: u32 = 3;
const LATE: u32 = 4;
const OVERLOAD: u32 = 5;
pub const HELD: u32 = 6;
const LOADING: u32 = 7;
const BROKEN: u32 = 8;
const UNLOADED: u32 = 9;
/// And from here on one echo for every type.
const TYPED: u32 = 100;

/// How long anything is waited for: longer than any machine keeps a process from running.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A limit that no test reaches.
pub const NEVER: Duration = Duration::from_secs(3600);

/// A gateway with models that echo, fail and refuse, and one that never answers.
pub fn gateway() -> Arc<Gateway> {
    gateway_that_holds(watch::Sender::new(true), Withdrawn::default())
}

/// Requests that the scheduler was told nobody waits for any more, each with the number of its model.
pub type Withdrawn = Arc<Mutex<Vec<(u64, u32)>>>;

/// The same, whose model `held` answers as soon as nothing is held any more.
fn gateway_that_holds(held: watch::Sender<bool>, withdrawn: Withdrawn) -> Arc<Gateway> {
    let own: Arc<OnceLock<Weak<Gateway>>> = Arc::default();
    let gateway = Gateway::new(1, Cluster { gateway: own.clone(), held, withdrawn });
    let _ = own.set(Arc::downgrade(&gateway));
    gateway.publish(catalog());
    gateway
}

/// Stands in for the scheduler and the nodes.
struct Cluster {
    gateway: Arc<OnceLock<Weak<Gateway>>>,
    held: watch::Sender<bool>,
    withdrawn: Withdrawn,
}

impl Links for Cluster {
    fn announce(&self, _: Session, arrival: Arrival) -> bool {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        gateway.map(|gateway| schedule(&gateway, arrival, &self.held)).is_some()
    }

    fn send_part(&self, part: Part) {
        work(part);
    }

    fn withdraw(&self, request: u64, model: u32) {
        self.withdrawn.lock().unwrap().push((request, model));
    }

    fn undelivered(&self, _: WorkerId, _: u64, _: bool) {}

    fn order(&self, order: Order) -> OrderOutcome {
        let (tell, told) = oneshot::channel();
        let answer = match order {
            Order::Load { name } | Order::Unload { name } => match name.as_str() {
                "echo" => Ok(()),
                "broken" => Err(OrderError::Invalid("model `broken`: its file is gone".into())),
                _ => Err(NotFound::Model(name).into()),
            },
            Order::Deploy(_) | Order::Undeploy { .. } | Order::Scale { .. } => {
                Err(OrderError::Invalid("not here".into()))
            }
        };
        let _ = tell.send(answer);
        told
    }
}

fn schedule(gateway: &Arc<Gateway>, arrival: Arrival, held: &watch::Sender<bool>) {
    let Arrival { request, model, within, priority, .. } = arrival;
    let refuse = |refusal| gateway.tell(ToGateway::Refuse { request, refusal });
    let run = move |gateway: &Arc<Gateway>| {
        let worker = WorkerId(1);
        gateway.tell(ToGateway::Run(Grant {
            term: rpc::Term::default(),
            worker,
            node: rpc::Incarnation::default(),
            address: "".into(),
            batch: request,
            model,
            size: 1,
            requests: vec![request],
        }));
    };
    match model {
        FULL => refuse(Refusal::Full { waiting: 9, retry_after: Span::from_millis(1500) }),
        LATE => refuse(Refusal::Late { within, reason: Reason::TooLate, retry_after: Span::from_millis(20) }),
        OVERLOAD => refuse(Refusal::Overload { priority, retry_after: Span::from_secs(2) }),
        HELD => {
            let (gateway, mut held) = (gateway.clone(), held.subscribe());
            tokio::spawn(async move {
                if held.wait_for(|held| !held).await.is_ok() {
                    run(&gateway);
                }
            });
        }
        _ => run(gateway),
    }
}

fn work(part: Part) {
    for payload in part.payloads {
        let echo = |tensor: &Tensor| Tensor { name: "y".into(), ..tensor.clone() };
        payload.answer.reply(match part.model {
            FAIL => Err(Failure::Model("ValueError: no".into())),
            _ => Ok(Outputs {
                tensors: payload.inputs.iter().take(1).map(echo).collect(),
                compute: Span::from_micros(5).into(),
                batch_size: part.size,
                leads: true,
            }),
        });
    }
}

fn catalog() -> Catalog {
    let entry = |model: u32, name: &str, version: u32, datatype, shape: &[i64], max_batch, state: State| {
        let tensor = |name: &str| TensorSpec { name: name.into(), datatype, shape: shape.into() };
        let spec = ModelSpec {
            name: name.into(),
            version,
            kind: Kind::Virtual { latency: Line { alpha: Span::from_millis(1), beta: Span::from_millis(1) } },
            slo: Span::from_secs(NEVER.as_secs()),
            max_batch,
            workers: 1.try_into().unwrap(),
            keep_alive: None,
            threads: 1,
            queue: 100,
            env: Default::default(),
            share: None,
            device: Default::default(),
            inputs: vec![],
            outputs: vec![],
            warmup: None,
        };
        let info = ModelInfo { inputs: vec![tensor("x")], outputs: vec![tensor("y")], max_batch, runs_on: None };
        let info = (state == State::Ready).then(|| Arc::new(info));
        Entry {
            model,
            spec: Arc::new(spec),
            info,
            state,
            workers_ready: 1,
            workers_wanted: 1,
            source: Default::default(),
            health: Default::default(),
        }
    };
    let ready = || State::Ready;
    let mut entries = vec![
        entry(ECHO, "echo", 1, DataType::Fp32, &[-1, 16], 8, ready()),
        entry(ECHO, "echo", 3, DataType::Fp32, &[-1, 16], 8, ready()),
        entry(PLAIN, "plain", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(FAIL, "fail", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(FULL, "full", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(LATE, "late", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(OVERLOAD, "overload", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(HELD, "held", 1, DataType::Fp32, &[-1], 0, ready()),
        entry(LOADING, "loading", 1, DataType::Fp32, &[-1], 0, State::Loading),
        entry(UNLOADED, "unloaded", 1, DataType::Fp32, &[-1], 0, State::Unavailable(rpc::catalog::UNLOADED.into())),
        entry(BROKEN, "broken", 1, DataType::Fp32, &[-1], 0, State::Unavailable("its file is gone".into())),
    ];
    for (place, datatype) in DataType::ALL.into_iter().enumerate() {
        let name = format!("any-{}", datatype.name());
        entries.push(entry(TYPED + place as u32, &name, 1, datatype, &[-1], 0, ready()));
    }
    entries.sort_by(|left, right| (&left.spec.name, left.spec.version).cmp(&(&right.spec.name, right.spec.version)));
    Catalog { entries, known: true, settling: false }
}

/// A server on a port of its own.
pub struct Served {
    pub address: SocketAddr,
    pub gateway: Arc<Gateway>,
    pub stop: oneshot::Sender<()>,
    pub task: JoinHandle<anyhow::Result<()>>,
    /// Whether requests to the model `held` are.
    pub held: watch::Sender<bool>,
    pub withdrawn: Withdrawn,
}

/// Starts a server.
pub async fn start(config: HttpConfig) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let held = watch::Sender::new(true);
    let withdrawn = Withdrawn::default();
    let gateway = gateway_that_holds(held.clone(), withdrawn.clone());
    let task = tokio::spawn(serve(gateway.clone(), listener, config, stopped));
    Served { address, gateway, stop, task, held, withdrawn }
}

/// Waits until something holds.
pub async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What a task that was told to end ends with.
pub async fn ended(task: JoinHandle<anyhow::Result<()>>) {
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").unwrap().unwrap();
}

/// A server that lets every client change it, and takes any shared memory.
pub async fn start_open() -> Served {
    let config = HttpConfig { administration: gateway::http::Administration::Open, ..HttpConfig::default() };
    let served = start(config).await;
    served.gateway.regions.allow(["/*"]);
    served
}

/// An answer, as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let field = |line: &'_ str| line.split_once(": ").is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
        let line = self.head.lines().find(|line| field(line))?;
        Some(line.split_once(": ")?.1.trim())
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error it tells of.
    pub fn error(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}")).to_string()
    }
}

/// A connection.
pub struct Client {
    pub socket: TcpStream,
    read: Vec<u8>,
}

impl Client {
    /// Opens one.
    pub async fn connect(address: SocketAddr) -> Client {
        Client { socket: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request.
    pub async fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        text.push_str("\r\n");
        self.send([text.as_bytes(), body].concat()).await;
    }

    /// Waits for an answer; `None` when the connection is closed before there is one.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.answer_to("GET").await
    }

    /// Waits for an answer to a method: those to HEAD have no body.
    pub async fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let head_end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                assert!(self.read.is_empty(), "half an answer: {}", String::from_utf8_lossy(&self.read));
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..head_end).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut answer = Answer { status, head, body: vec![] };
        if status >= 200 && method != "HEAD" {
            let length: usize = answer.header("content-length").expect("a length").parse().unwrap();
            while self.read.len() < length {
                assert!(self.more().await, "the body of {answer:?} is cut off");
            }
            answer.body = self.read.drain(..length).collect();
        }
        Some(answer)
    }

    /// Whether the server closes the connection, and nothing comes before.
    pub async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.more().await
    }

    async fn more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut buffer));
        let count = read.await.expect("something comes, or the end").unwrap_or(0);
        self.read.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

/// One request on a connection of its own.
pub async fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut client = Client::connect(address).await;
    client.request(method, path, headers, body).await;
    client.answer_to(method).await.expect("an answer")
}

/// A request for the echo of sixteen floats.
pub fn echo_body() -> String {
    let floats: Vec<String> = (0..16).map(|number| format!("{}.{:04}", number, number * 617 % 10_000)).collect();
    format!(r#"{{"inputs":[{{"name":"x","shape":[1,16],"datatype":"FP32","data":[{}]}}]}}"#, floats.join(","))
}
