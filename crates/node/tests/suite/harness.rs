//! A node in a scratch folder, and short ways to say what is asked of it and what is expected.

use bytes::Bytes;
use config::{DataType, Kind, ModelSpec, TensorSpec};
use node::{Config, Environment, Node, SchedulerLink};
use rpc::{Answer, FromNode, ModelInfo, Part, Payload, Tensor, ToNode, WorkerId};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than anything takes here, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The worker of tests that need one.
pub(crate) const WORKER: WorkerId = WorkerId(1);

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    // Made once for all runs; the first needs a package index.
    node::setup(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("set up numpy and onnxruntime for the tests")
});

/// What a node said, and answers to requests, in the order in which they came.
pub(crate) enum Event {
    Told(FromNode),
    Answered(u64, Answer),
}

/// Stands in for the scheduler.
struct Events(Sender<Event>);

impl SchedulerLink for Events {
    fn report(&self, news: FromNode) {
        // Nobody listens when the test is over.
        let _ = self.0.send(Event::Told(news));
    }
}

/// A node under test.
pub(crate) struct Bench {
    pub(crate) node: Option<Node>,
    pub(crate) folder: TempDir,
    pub(crate) events: Receiver<Event>,
    sender: Sender<Event>,
    next: Mutex<u64>,
}

/// Where answers are picked up.
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// What most tests run with: no time lost on measurements, and quick restarts.
pub(crate) fn config(folder: &Path) -> Config {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_weft-onnx-worker"));
    let mut config = Config::new(ENVIRONMENT.python.clone(), program, folder.join("run"));
    config.onnxruntime = Some(ENVIRONMENT.onnxruntime.clone());
    config.warmup = Duration::from_millis(20);
    config
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let (sender, events) = channel();
        let mut config = config(folder.path());
        change(&mut config);
        let node = Node::start(config, RUNTIME.handle().clone(), Events(sender.clone())).unwrap();
        Bench { node: Some(node), folder, events, sender, next: Mutex::new(0) }
    }

    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    /// A Python model, from the body of its class.
    pub(crate) fn python(&self, class: &str) -> ModelSpec {
        let path = self.folder.path().join("model.py");
        let body: String = class.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!("import os, sys, time\nimport numpy as np\n\nclass Tested:\n    pass\n{body}");
        std::fs::write(&path, text).unwrap();
        spec(Kind::Python { path, class: None })
    }

    /// Starts the worker and waits until it is ready.
    pub(crate) fn start(&self, spec: ModelSpec) -> (ModelInfo, Vec<(usize, policy::Span)>) {
        self.order_start(spec);
        self.ready()
    }

    pub(crate) fn order_start(&self, spec: ModelSpec) {
        self.node().order(ToNode::Start { worker: WORKER, spec: Arc::new(spec) });
    }

    pub(crate) fn ready(&self) -> (ModelInfo, Vec<(usize, policy::Span)>) {
        match self.event() {
            Event::Told(FromNode::Ready { info, measured, .. }) => (info, measured),
            other => panic!("expected Ready, came {}; it printed:\n{}", describe(&other), self.printed()),
        }
    }

    pub(crate) fn lost(&self) -> (String, policy::Span) {
        match self.event() {
            Event::Told(FromNode::Lost { reason, again_in, .. }) => (reason, again_in),
            other => panic!("expected Lost, came {}; it printed:\n{}", describe(&other), self.printed()),
        }
    }

    pub(crate) fn event(&self) -> Event {
        let event = self.events.recv_timeout(PATIENCE);
        event.unwrap_or_else(|_| panic!("nothing was said; it printed:\n{}", self.printed()))
    }

    pub(crate) fn printed(&self) -> String {
        self.node.as_ref().map(|node| node.logs(WORKER, 50).join("\n")).unwrap_or_default()
    }

    /// Sends requests as one batch, in parts of the sizes given; gives the batch's number.
    pub(crate) fn send(&self, requests: Vec<Vec<Tensor>>, parts: &[usize]) -> u64 {
        let batch = self.number();
        let size = requests.len();
        let mut requests = requests.into_iter();
        for part in parts {
            let payloads = requests.by_ref().take(*part).map(|inputs| self.payload(inputs)).collect();
            self.node().run(Part {
                term: rpc::Term::default(),
                worker: WORKER,
                node: rpc::Incarnation::default(),
                address: "".into(),
                model: 0,
                batch,
                size,
                payloads,
                absent: 0,
            });
        }
        assert_eq!(requests.len(), 0, "the parts must make up the batch");
        batch
    }

    pub(crate) fn payload(&self, inputs: Vec<Tensor>) -> Payload {
        let request = self.number();
        let sender = self.sender.clone();
        let answer = Box::new(move |answer| drop(sender.send(Event::Answered(request, answer))));
        Payload { request, inputs: inputs.into(), answer }
    }

    /// Runs requests as one batch of one part: the answers in the order of the requests, and whether the batch did.
    pub(crate) fn run(&self, requests: Vec<Vec<Tensor>>) -> (Vec<Answer>, bool) {
        let size = requests.len();
        let batch = self.send(requests, &[size]);
        self.done(batch, size)
    }

    pub(crate) fn done(&self, batch: u64, size: usize) -> (Vec<Answer>, bool) {
        let mut answers = Vec::new();
        loop {
            match self.event() {
                Event::Answered(request, answer) => answers.push((request, answer)),
                Event::Told(FromNode::Done { batch: number, size: requests, took, .. }) => {
                    assert_eq!((number, requests), (batch, size));
                    assert_eq!(answers.len(), size, "answers come before Done");
                    answers.sort_by_key(|(request, _)| *request);
                    return (answers.into_iter().map(|(_, answer)| answer).collect(), took.is_some());
                }
                other => panic!("expected answers, came {}; it printed:\n{}", describe(&other), self.printed()),
            }
        }
    }

    /// Runs one request that must do.
    pub(crate) fn ask(&self, inputs: Vec<Tensor>) -> Vec<Tensor> {
        let (mut answers, done) = self.run(vec![inputs]);
        let outputs = answers.remove(0).unwrap_or_else(|failure| panic!("{failure}; {}", self.printed()));
        assert!(done);
        outputs.tensors
    }

    /// Runs one request that must fail, and gives the message.
    pub(crate) fn refused(&self, inputs: Vec<Tensor>) -> String {
        let (mut answers, done) = self.run(vec![inputs]);
        assert!(!done);
        match answers.remove(0).unwrap_err() {
            rpc::Failure::Model(message) => message,
            other => panic!("{other}"),
        }
    }

    fn number(&self) -> u64 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }
}

pub(crate) fn describe(event: &Event) -> String {
    match event {
        Event::Told(told) => format!("{told:?}"),
        Event::Answered(request, Ok(outputs)) => format!("{:?} to {request}", outputs.tensors),
        Event::Answered(request, Err(failure)) => format!("{failure:?} to {request}"),
    }
}

/// A model with defaults, `x` of FP32 in and `y` of FP32 out.
pub(crate) fn spec(kind: Kind) -> ModelSpec {
    let line = r#"{"name": "tested", "kind": "virtual", "latency": {"alpha": "1ms", "beta": "1ms"}, "max_batch": 8}"#;
    let mut spec: ModelSpec = serde_json::from_str(line).unwrap();
    spec.inputs = vec![declared("x", DataType::Fp32, &[-1, -1])];
    spec.outputs = vec![declared("y", DataType::Fp32, &[-1, -1])];
    spec.kind = kind;
    spec
}

pub(crate) fn declared(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

/// A tensor `x` of floats.
pub(crate) fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    raw("x", DataType::Fp32, shape, data)
}

pub(crate) fn raw(name: &str, datatype: DataType, shape: &[usize], data: impl Into<Bytes>) -> Tensor {
    Tensor { name: name.into(), datatype, shape: shape.to_vec(), data: data.into() }
}

pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and not only waiting to be buried.
pub(crate) fn alive(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
