//! The scheduler with its real clock and thread, between a gateway and a node that this file plays.

use config::ModelSpec;
use policy::{Span, policies};
use rpc::{
    Arrival, Catalog, FromNode, Grant, ModelInfo, NodeHello, Order, OrderError, Overview, Refusal, Source, State,
    ToGateway, ToNode, WorkerId,
};
use scheduler::{Config, GatewayLink, NodeLink, Scheduler, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// What reaches gateway and node.
enum Heard {
    Gateway(ToGateway),
    Catalog(Catalog),
    Overview(Overview),
    Node(u32, ToNode),
    Reply(Result<(), OrderError>),
}

struct World {
    scheduler: Scheduler,
    heard: Receiver<Heard>,
    hears: Sender<Heard>,
    thread: Option<std::thread::JoinHandle<()>>,
    catalog: Catalog,
    workers: BTreeMap<WorkerId, String>,
    /// The nodes of workers.
    nodes: Arc<Mutex<BTreeMap<WorkerId, u32>>>,
}

/// Stands in for a gateway.
struct Gateway(Sender<Heard>);

impl GatewayLink for Gateway {
    fn send(&self, message: ToGateway) {
        drop(self.0.send(Heard::Gateway(message)));
    }

    fn publish_catalog(&self, catalog: Catalog) {
        drop(self.0.send(Heard::Catalog(catalog)));
    }

    fn publish_overview(&self, overview: Overview) {
        drop(self.0.send(Heard::Overview(overview)));
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

/// Stands in for a node.
struct Node {
    number: u32,
    hears: Sender<Heard>,
    nodes: Arc<Mutex<BTreeMap<WorkerId, u32>>>,
}

impl NodeLink for Node {
    fn send(&self, instruction: ToNode) {
        if let ToNode::Start { worker, .. } | ToNode::Virtual { worker, .. } = &instruction {
            self.nodes.lock().unwrap().insert(*worker, self.number);
        }
        drop(self.hears.send(Heard::Node(self.number, instruction)));
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

fn spec(text: &str) -> ModelSpec {
    serde_json::from_str(text).unwrap()
}

fn onnx(name: &str, version: u32) -> ModelSpec {
    spec(&format!(r#"{{"name": "{name}", "version": {version}, "kind": "onnx", "path": "/x.onnx", "max_batch": 8}}"#))
}

impl World {
    fn new(config: Config, store: Store) -> World {
        let (hears, heard) = channel();
        let (scheduler, thread) = Scheduler::start(config, store).unwrap();
        scheduler.gateway_joined(0, Gateway(hears.clone()));
        let (catalog, workers) = (Catalog::default(), BTreeMap::new());
        World { scheduler, heard, hears, thread: Some(thread), catalog, workers, nodes: Arc::default() }
    }

    fn node(&self, number: u32, virtual_gpus: usize) {
        let link = Node { number, hears: self.hears.clone(), nodes: self.nodes.clone() };
        let hello = NodeHello { name: format!("node-{number}"), virtual_gpus, ..NodeHello::default() };
        self.scheduler.node_joined(number, hello, link);
    }

    /// Plays the node of a worker.
    fn news(&self, worker: WorkerId, news: FromNode) {
        self.scheduler.news(self.node_of(worker), news);
    }

    fn node_of(&self, worker: WorkerId) -> u32 {
        self.nodes.lock().unwrap().get(&worker).copied().unwrap_or_default()
    }

    fn order(&self, order: Order) {
        let reply = self.hears.clone();
        self.scheduler.order(order, move |outcome| drop(reply.send(Heard::Reply(outcome))));
    }

    /// Waits for something, taking note of catalogs and workers meanwhile.
    fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&World, &Heard) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let heard = self.heard.recv_timeout(left).unwrap_or_else(|_| panic!("waited in vain for {what}"));
            match &heard {
                Heard::Catalog(catalog) => self.catalog = catalog.clone(),
                Heard::Node(_, ToNode::Start { worker, spec }) => {
                    self.workers.insert(*worker, format!("{}:{}", spec.name, spec.version));
                }
                Heard::Node(_, ToNode::Stop { worker }) => {
                    self.workers.remove(worker);
                }
                _ => {}
            }
            if let Some(found) = wanted(self, &heard) {
                return found;
            }
        }
    }

    fn started(&mut self) -> WorkerId {
        self.until("a worker", |_, heard| match heard {
            Heard::Node(_, ToNode::Start { worker, .. }) => Some(*worker),
            _ => None,
        })
    }

    fn reply(&mut self) -> Result<(), OrderError> {
        self.until("a reply", |_, heard| match heard {
            Heard::Reply(outcome) => Some(outcome.clone()),
            _ => None,
        })
    }

    fn ready(&self, worker: WorkerId) {
        let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 8, runs_on: None };
        let measured = vec![(1, Span::from_millis(2)), (8, Span::from_millis(4))];
        self.news(worker, FromNode::Ready { worker, info, measured });
    }

    fn lost(&self, worker: WorkerId, reason: &str) {
        let again_in = Span::from_millis(100);
        self.news(worker, FromNode::Lost { worker, reason: reason.into(), again_in });
    }

    /// Plays a worker that is done with a batch after a while.
    fn take_50ms(&self, grant: &Grant) {
        let (worker, batch, size) = (grant.worker, grant.batch, grant.size);
        let (scheduler, node) = (self.scheduler.clone(), self.node_of(worker));
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            scheduler.news(node, FromNode::Done { worker, batch, size, took: Some(Span::from_millis(50)) });
        });
    }

    fn arrive(&self, request: u64, model: u32, within: Span) {
        self.scheduler.arrival(Arrival { request, model, at: Instant::now(), within, priority: 0 });
    }

    fn state(&self, name: &str, version: u32) -> Option<State> {
        let version = version.to_string();
        self.catalog.find(name, Some(&version)).ok().map(|entry| entry.state.clone())
    }

    /// Plays gateway and worker until so many requests are answered; how many were run and how many refused.
    fn serve(&mut self, requests: usize) -> (usize, Vec<Refusal>) {
        let (mut run, mut refused) = (0, Vec::new());
        while run + refused.len() < requests {
            let message = self.until("an answer", |_, heard| match heard {
                Heard::Gateway(message) => Some(message.clone()),
                _ => None,
            });
            match message {
                ToGateway::Run(grant) => {
                    run += grant.requests.len();
                    let (worker, batch, size) = (grant.worker, grant.batch, grant.size);
                    std::thread::sleep(Duration::from_millis(1));
                    self.news(worker, FromNode::Done { worker, batch, size, took: Some(Span::from_millis(1)) });
                }
                ToGateway::Refuse { refusal, .. } => refused.push(refusal),
                ToGateway::Heartbeat => {}
            }
        }
        (run, refused)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.scheduler.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the scheduler panicked");
        }
    }
}

fn world() -> World {
    World::new(Config::default(), Store::in_memory())
}

#[test]
fn a_model_is_deployed_asked_and_taken_away() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let worker = world.started();
    world.ready(worker);
    assert_eq!(world.reply(), Ok(()));
    assert_eq!(world.state("m", 1), Some(State::Ready), "who is told that it is there finds it");
    let model = world.catalog.entries[0].model;
    for request in 0..50 {
        world.arrive(request, model, Span::from_secs(60));
    }
    assert_eq!(world.serve(50), (50, vec![]));
    world.arrive(50, model, Span::from_micros(1_500));
    let (run, refused) = world.serve(1);
    // Nobody is before it: the model is too slow for that, and is what is said to be.
    let takes = Span::from_micros(2_500);
    assert!(run == 0 && matches!(refused[0], Refusal::TooSlow { takes: said, .. } if said == takes), "{refused:?}");
    world.order(Order::Undeploy { name: "m".into(), version: None });
    assert_eq!(world.reply(), Ok(()));
    assert!(world.catalog.entries.is_empty(), "who is told that it is gone does not find it");
    world.until("the worker to be stopped", |world, _| world.workers.is_empty().then_some(()));
}

#[test]
fn a_deployment_that_never_works_says_why_and_leaves_what_was_there() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let first = world.started();
    world.ready(first);
    assert_eq!(world.reply(), Ok(()));
    let broken = spec(r#"{"name": "m", "version": 1, "kind": "onnx", "path": "/broken.onnx"}"#);
    world.order(Order::Deploy(Box::new(broken)));
    let second = world.started();
    world.lost(second, "no such file: /broken.onnx");
    let problem = world.reply().unwrap_err().to_string();
    assert_eq!(problem, "model `m`: no such file: /broken.onnx");
    world.until("the broken one to be stopped", |world, _| (!world.workers.contains_key(&second)).then_some(()));
    assert!(world.workers.contains_key(&first));
    assert_eq!(world.state("m", 1), Some(State::Ready));
}

/// A worker whose requests take 180 ms.
fn too_slow(world: &World, worker: WorkerId) {
    let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 8, runs_on: None };
    let measured = vec![(1, Span::from_millis(180)), (8, Span::from_millis(400))];
    world.news(worker, FromNode::Ready { worker, info, measured });
}

#[test]
fn a_model_that_is_too_slow_for_its_objective_is_refused_with_one_that_would_do() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let worker = world.started();
    too_slow(&world, worker);
    let problem = world.reply().unwrap_err().to_string();
    let expected =
        "model `m`: one request takes 181ms and its objective is 100ms: deploy it with `--slo 250ms` or more";
    assert_eq!(problem, expected);
    assert!(world.workers.is_empty(), "its worker was told to stop before anybody was told");
    assert!(world.catalog.entries.is_empty(), "nothing is left of it");
    let slow = r#"{"name": "v", "kind": "virtual", "latency": {"alpha": "20ms", "beta": "160ms"}}"#;
    world.order(Order::Deploy(Box::new(spec(slow))));
    let problem = world.reply().unwrap_err().to_string();
    assert_eq!(problem, expected.replace("`m`", "`v`"));
    // What was there before goes on.
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let first = world.started();
    world.ready(first);
    assert_eq!(world.reply(), Ok(()));
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let second = world.started();
    too_slow(&world, second);
    assert!(world.reply().is_err());
    assert_eq!(world.state("m", 1), Some(State::Ready));
    assert!(world.workers.contains_key(&first));
}

#[test]
fn a_configured_model_that_is_too_slow_says_so_and_is_measured_again() {
    let config = Config { models: vec![onnx("m", 1)], ..Config::default() };
    let mut world = World::new(config, Store::in_memory());
    world.node(0, 0);
    let worker = world.started();
    too_slow(&world, worker);
    world.until("it to be unavailable", |world, _| {
        matches!(world.state("m", 1), Some(State::Unavailable(why)) if why.contains("deploy it with `--slo 250ms`"))
            .then_some(())
    });
    let again = world.started();
    assert_ne!(again, worker);
    world.ready(again);
    world.until("it to be ready", |world, _| (world.state("m", 1) == Some(State::Ready)).then_some(()));
}

#[test]
fn a_model_whose_workers_are_dead_says_so_while_it_waits_for_them() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let worker = world.started();
    world.ready(worker);
    assert_eq!(world.reply(), Ok(()));
    assert!(world.catalog.entries[0].is_ready());
    world.lost(worker, "killed by signal 9");
    world.until("it to say so", |world, _| {
        let entry = world.catalog.entries.first()?;
        (entry.health.trouble.as_deref() == Some("killed by signal 9") && !entry.is_ready()).then_some(())
    });
    assert_eq!(world.state("m", 1), Some(State::Ready), "requests may wait for the next one");
    world.ready(worker);
    world.until("it to be well", |world, _| world.catalog.entries.first()?.is_ready().then_some(()));
}

#[test]
fn a_new_version_takes_over_without_a_failed_request() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let first = world.started();
    world.ready(first);
    assert_eq!(world.reply(), Ok(()));
    let old = world.catalog.find("m", None).unwrap().model;
    // The same version again, changed, while requests keep coming to whatever clients see.
    let changed = spec(r#"{"name": "m", "version": 1, "kind": "onnx", "path": "/y.onnx"}"#);
    world.order(Order::Deploy(Box::new(changed)));
    let second = world.started();
    for request in 0..100 {
        let model = world.catalog.find("m", None).unwrap().model;
        world.arrive(request, model, Span::from_secs(60));
        if request == 50 {
            world.ready(second);
        }
        assert_eq!(world.serve(1), (1, vec![]), "request {request}");
    }
    assert_ne!(world.catalog.find("m", None).unwrap().model, old);
    world.until("the old worker to be stopped", |world, _| (!world.workers.contains_key(&first)).then_some(()));
}

#[test]
fn requests_of_a_dead_worker_are_run_again() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let worker = world.started();
    world.ready(worker);
    assert_eq!(world.reply(), Ok(()));
    let model = world.catalog.entries[0].model;
    world.arrive(1, model, Span::from_secs(60));
    world.until("the batch", |_, heard| matches!(heard, Heard::Gateway(ToGateway::Run(_))).then_some(()));
    world.lost(worker, "killed");
    world.ready(worker);
    assert_eq!(world.serve(1), (1, vec![]));
}

#[test]
fn when_a_node_dies_another_takes_its_workers() {
    let mut world = world();
    world.node(0, 0);
    world.order(Order::Deploy(Box::new(onnx("m", 1))));
    let worker = world.started();
    world.ready(worker);
    assert_eq!(world.reply(), Ok(()));
    world.node(1, 0);
    world.scheduler.node_lost(0);
    let node = world.until("another worker", |_, heard| match heard {
        Heard::Node(node, ToNode::Start { .. }) => Some(*node),
        _ => None,
    });
    assert_eq!(node, 1);
}

#[test]
fn deployments_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    {
        let mut world = World::new(Config::default(), Store::open(&path).unwrap());
        world.node(0, 0);
        for version in [1, 2] {
            world.order(Order::Deploy(Box::new(onnx("m", version))));
            let worker = world.started();
            world.ready(worker);
            assert_eq!(world.reply(), Ok(()));
        }
        world.order(Order::Undeploy { name: "m".into(), version: Some(1) });
        assert_eq!(world.reply(), Ok(()));
    }
    let mut world = World::new(Config::default(), Store::open(&path).unwrap());
    world.node(0, 0);
    let worker = world.started();
    assert_eq!(world.workers[&worker], "m:2");
}

/// What a store brings back, by model.
fn restarted(path: &Path, config: Config) -> World {
    let mut world = World::new(config, Store::open(path).unwrap());
    world.until("the catalog", |_, heard| matches!(heard, Heard::Catalog(_)).then_some(()));
    world
}

fn ordered(world: &mut World, order: Order) -> Result<(), OrderError> {
    world.order(order);
    world.reply()
}

/// Deploys something and plays its worker.
fn deployed(world: &mut World, spec: ModelSpec) {
    world.order(Order::Deploy(Box::new(spec)));
    let worker = world.started();
    world.ready(worker);
    assert_eq!(world.reply(), Ok(()));
}

#[test]
fn what_the_guide_types_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"name": "nearest", "kind": "python", "path": "/n.py", "workers": "0..4", "keep_alive": "300s"}"#;
    {
        let mut world = World::new(Config::default(), Store::open(folder.path()).unwrap());
        world.node(0, 0);
        deployed(&mut world, spec(text));
        let workers = "1..4".parse().unwrap();
        assert_eq!(ordered(&mut world, Order::Scale { name: "nearest".into(), version: None, workers }), Ok(()));
    }
    let world = restarted(folder.path(), Config::default());
    let found = &world.catalog.entries[0];
    assert_eq!((found.spec.workers, found.spec.keep_alive), ("1..4".parse().unwrap(), Some(Span::from_secs(300))));
}

#[test]
fn a_record_that_cannot_be_read_leaves_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    for name in ["bad", "good", "worse"] {
        store.put(&[scheduler::Stored { spec: onnx(name, 1), loaded: true }]).unwrap();
    }
    drop(store);
    let file = folder.path().join("deployments.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("bad:1 {", "bad:1 [").replace("worse:1 {", "worse:1 [")).unwrap();
    let damaged = std::fs::read_to_string(&file).unwrap();

    let mut world = restarted(folder.path(), Config::default());
    world.node(0, 0);
    let worker = world.started();
    assert_eq!(world.workers[&worker], "good:1");
    let Some(State::Unavailable(reason)) = world.state("bad", 1) else { panic!("it cannot be read") };
    assert!(reason.contains("its checksum is wrong"), "{reason}");
    let sent = serde_json::to_string(&world.catalog).unwrap();
    assert!(serde_json::from_str::<Catalog>(&sent).is_ok(), "gateways on other machines can read it");
    for order in [
        Order::Load { name: "bad".into() },
        Order::Scale { name: "bad".into(), version: None, workers: "2".parse().unwrap() },
    ] {
        let refused = ordered(&mut world, order).unwrap_err().to_string();
        assert!(refused.contains("cannot be read"), "{refused}");
    }
    // One that never works does not take its place.
    world.order(Order::Deploy(Box::new(onnx("bad", 1))));
    let worker = world.started();
    world.lost(worker, "no such file");
    assert!(world.reply().is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged, "the record is as it was");
    deployed(&mut world, onnx("bad", 1));
    assert_eq!(world.state("bad", 1), Some(State::Ready));
    assert_eq!(ordered(&mut world, Order::Undeploy { name: "worse".into(), version: None }), Ok(()));
    drop(world);
    let names: Vec<_> = Store::open(folder.path()).unwrap().all().into_iter().map(|record| record.name).collect();
    assert_eq!(names, ["bad", "good"]);
}

#[test]
fn a_crash_while_a_new_deployment_is_tried_brings_back_the_one_that_worked() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut world = World::new(Config::default(), Store::open(folder.path()).unwrap());
        world.node(0, 0);
        deployed(&mut world, onnx("m", 1));
        let untried = spec(r#"{"name": "m", "kind": "onnx", "path": "/untried.onnx"}"#);
        world.order(Order::Deploy(Box::new(untried)));
        world.started();
    }
    let mut world = restarted(folder.path(), Config::default());
    assert_eq!(*world.catalog.entries[0].spec, onnx("m", 1));

    // What is undeployed meanwhile does not come back with it.
    world.node(0, 0);
    let worker = world.started();
    world.ready(worker);
    world.order(Order::Deploy(Box::new(spec(r#"{"name": "m", "kind": "onnx", "path": "/untried.onnx"}"#))));
    let untried = world.started();
    world.order(Order::Undeploy { name: "m".into(), version: None });
    assert!(world.reply().is_err() || world.reply().is_err(), "the deployment is told that it was taken away");
    world.ready(untried);
    world.until("both to be stopped", |world, _| world.workers.is_empty().then_some(()));
    assert!(world.catalog.entries.is_empty());
    drop(world);
    assert_eq!(Store::open(folder.path()).unwrap().all(), []);
}

#[test]
fn commands_do_not_change_what_the_configuration_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let configured = || Config { models: vec![onnx("m", 1)], ..Config::default() };
    {
        let mut world = restarted(folder.path(), configured());
        world.node(0, 0);
        let worker = world.started();
        world.ready(worker);
        let name = || "m".to_string();
        for order in [
            Order::Deploy(Box::new(onnx("m", 1))),
            Order::Undeploy { name: name(), version: None },
            Order::Scale { name: name(), version: None, workers: "2".parse().unwrap() },
        ] {
            let refused = ordered(&mut world, order).unwrap_err().to_string();
            assert!(refused.contains("model `m` version 1 is in the configuration file of the server"), "{refused}");
        }
        // Its workers may end and start as Triton's clients ask; the file says nothing of that.
        assert_eq!(ordered(&mut world, Order::Unload { name: name() }), Ok(()));
        world.order(Order::Load { name: name() });
        let worker = world.started();
        world.ready(worker);
        assert_eq!(world.reply(), Ok(()));
        deployed(&mut world, onnx("m", 2));
        assert_eq!(ordered(&mut world, Order::Undeploy { name: name(), version: Some(2) }), Ok(()));
        assert_eq!(world.catalog.find("m", Some("1")).unwrap().source, Source::File);
    }
    assert!(restarted(folder.path(), Config::default()).catalog.entries.is_empty(), "it left the file and is gone");
    {
        let mut world = restarted(folder.path(), Config::default());
        world.node(0, 0);
        deployed(&mut world, spec(r#"{"name": "m", "kind": "onnx", "path": "/typed.onnx"}"#));
    }
    {
        let world = restarted(folder.path(), configured());
        let found = &world.catalog.entries[..];
        assert!(found.len() == 1 && found[0].source == Source::FileOverCommand && *found[0].spec == onnx("m", 1));
    }
    assert!(restarted(folder.path(), Config::default()).catalog.entries.is_empty(), "no ghost");
}

#[test]
fn a_journal_replays_to_the_same_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { journal: Some(folder.path().to_path_buf()), ..Config::default() };
    let mut world = World::new(config, Store::in_memory());
    world.node(0, 4);
    for worker in 0..4 {
        world.ready(WorkerId(worker));
    }
    for name in ["a", "b"] {
        let text = format!(
            r#"{{"name": "{name}", "kind": "virtual", "latency": {{"alpha": "1ms", "beta": "2ms"}}, "slo": "20ms"}}"#
        );
        world.order(Order::Deploy(Box::new(spec(&text))));
        assert_eq!(world.reply(), Ok(()));
    }
    let models: Vec<u32> = world.catalog.entries.iter().map(|entry| entry.model).collect();
    assert_eq!(models.len(), 2);
    for request in 0..200 {
        let within = if request % 7 == 0 { Span::from_millis(3) } else { Span::from_millis(20) };
        world.arrive(request, models[request as usize % 2], within);
    }
    let (run, refused) = world.serve(200);
    assert_eq!(run + refused.len(), 200);
    drop(world);
    assert_replays(&folder.path().join("virtual.journal"), run);
}

fn assert_replays(path: &Path, run: usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let granted: usize =
        text.lines().filter(|line| line.starts_with("> run")).map(|line| line.split(' ').count() - 6).sum();
    assert_eq!(granted, run);
    let replayed = policy::journal::replay(&text, policies::by_name("weft").unwrap()).unwrap();
    assert!(replayed.actions > 0, "{replayed:?}");
}

/// A worker that does twenty requests a second.
fn slow(world: &World, worker: WorkerId) {
    let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 1, runs_on: None };
    world.news(worker, FromNode::Ready { worker, info, measured: vec![(1, Span::from_millis(50))] });
}

fn elastic(workers: &str) -> ModelSpec {
    let text = r#"{"name": "m", "kind": "onnx", "path": "/x.onnx", "max_batch": 1, "slo": "200ms", "workers": "W"}"#;
    spec(&text.replace('W', workers))
}

/// How long most workers take to start.
const START: Duration = Duration::from_millis(50);

/// Requests that are due, equally spaced: on a machine that does something else meanwhile, many at once.
struct Due {
    began: Instant,
    every: Duration,
    given: u64,
}

impl Due {
    fn every(every: Duration) -> Due {
        Due { began: Instant::now(), every, given: 0 }
    }

    /// The numbers of those that are due since the last time.
    fn now(&mut self) -> std::ops::Range<u64> {
        let due = (self.began.elapsed().as_nanos() / self.every.as_nanos()) as u64;
        std::mem::replace(&mut self.given, due)..due
    }
}

/// Deploys it and waits until its first worker is there, which takes at least so long; the model's number.
fn deploy(world: &mut World, spec: ModelSpec, takes: Duration) -> (u32, WorkerId) {
    world.order(Order::Deploy(Box::new(spec)));
    let worker = world.started();
    std::thread::sleep(takes);
    slow(world, worker);
    assert_eq!(world.reply(), Ok(()));
    assert_eq!(world.state("m", 1), Some(State::Ready), "who is told that it is there finds it");
    (world.catalog.entries[0].model, worker)
}

#[test]
fn workers_come_when_the_load_grows_and_go_when_it_is_over() {
    let mut world = world();
    world.node(0, 0);
    let (model, _) = deploy(&mut world, elastic("1..3"), START);
    let (mut most, mut answered) = (1, 0);
    // Three times what one worker does, until there are three; then nothing, until one has gone. Some stay for minutes:
    // where there was a burst there may be another.
    let mut due = Due::every(Duration::from_millis(15));
    loop {
        assert!(due.began.elapsed() < PATIENCE, "{} workers, {most} at most", world.workers.len());
        if most < 3 {
            due.now().for_each(|request| world.arrive(request, model, Span::from_millis(200)));
        } else if world.workers.len() < 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        while let Ok(heard) = world.heard.try_recv() {
            match heard {
                Heard::Node(_, ToNode::Start { worker, .. }) => {
                    world.workers.insert(worker, String::new());
                    slow(&world, worker);
                }
                Heard::Node(_, ToNode::Stop { worker }) => drop(world.workers.remove(&worker)),
                Heard::Gateway(ToGateway::Run(grant)) => {
                    answered += grant.requests.len();
                    world.take_50ms(&grant);
                }
                _ => {}
            }
        }
        most = most.max(world.workers.len());
    }
    assert!(answered > 0);
}

#[test]
fn a_share_follows_the_load_and_comes_back() {
    let mut world = world();
    world.node(0, 0);
    let share = r#""slo": "200ms", "share": {"request": "20%", "limit": "80%"}, "workers": 1}"#;
    let text = format!(r#"{{"name": "m", "kind": "onnx", "path": "/x.onnx", "max_batch": 1, {share}"#);
    let (model, worker) = deploy(&mut world, spec(&text), START);
    let (mut most, mut last) = (200, 200);
    let mut due = Due::every(Duration::from_millis(30));
    // As much as one worker does on all that it may have, until it has that; then nothing.
    loop {
        assert!(due.began.elapsed() < PATIENCE, "{most} at most, {last} at last");
        if most < 800 {
            due.now().for_each(|request| world.arrive(request, model, Span::from_millis(200)));
        } else if last == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        while let Ok(heard) = world.heard.try_recv() {
            match heard {
                Heard::Node(_, ToNode::Stretch { worker: whose, to }) => {
                    assert_eq!(whose, worker);
                    assert!((200..=800).contains(&to.permille()), "{to}");
                    (most, last) = (most.max(to.permille()), to.permille());
                }
                Heard::Node(_, ToNode::Start { .. } | ToNode::Stop { .. }) => panic!("one worker was asked for"),
                Heard::Gateway(ToGateway::Run(grant)) => world.take_50ms(&grant),
                _ => {}
            }
        }
    }
}

#[test]
fn a_model_without_workers_waits_for_one_or_says_when_there_will_be_one() {
    let mut world = world();
    world.node(0, 0);
    let mut spec = elastic("0..2");
    spec.keep_alive = Some(Span::from_secs(1));
    let (model, _) = deploy(&mut world, spec, Duration::from_secs(3));
    world.until("the worker to be stopped", |world, _| {
        let gone = world.workers.is_empty() && world.catalog.entries[0].workers_ready == 0;
        gone.then_some(())
    });
    assert_eq!(world.state("m", 1), Some(State::Ready), "it can be asked");

    // Less is left than a start and a request take, and more than the request alone.
    world.arrive(1, model, Span::from_secs(2));
    let refusal = world.until("a refusal", |_, heard| match heard {
        Heard::Gateway(ToGateway::Refuse { refusal, .. }) => Some(refusal.clone()),
        _ => None,
    });
    let Refusal::Starting { expected } = refusal else { panic!("{refusal:?}") };
    assert!(expected > Span::ZERO, "{expected}");
    let worker = *world.workers.keys().next().expect("one is started before anybody is refused");
    slow(&world, worker);
    // It is ready before anybody asks again, and goes again.
    world.until("the worker to be stopped", |world, _| world.workers.is_empty().then_some(()));
    world.arrive(2, model, Span::from_secs(60));
    let worker = world.started();
    slow(&world, worker);
    assert_eq!(world.serve(1), (1, vec![]), "it waited for the worker");
}

#[test]
fn an_operator_has_the_last_word_on_how_many() {
    let store = Store::in_memory();
    let mut world = World::new(Config::default(), store);
    world.node(0, 0);
    let (_, first) = deploy(&mut world, elastic("1..4"), START);
    let scale = |workers: &str| Order::Scale { name: "m".into(), version: None, workers: workers.parse().unwrap() };
    world.order(scale("3"));
    let second = world.started();
    let third = world.started();
    world.order(scale("1"));
    world.until("two workers to be stopped", |world, _| (world.workers.len() == 1).then_some(()));
    assert!(world.workers.contains_key(&first), "{second:?} and {third:?} came last");
    world.order(Order::Scale { name: "other".into(), version: None, workers: "2".parse().unwrap() });
    assert!(
        world
            .until("a refusal", |_, heard| match heard {
                Heard::Reply(Err(error)) => Some(error.to_string()),
                _ => None,
            })
            .contains("unknown model `other`")
    );
}

#[test]
fn a_dry_run_starts_nothing() {
    let mut world = World::new(Config { dry_run: true, ..Config::default() }, Store::in_memory());
    world.node(0, 0);
    let mut spec = elastic("0..3");
    spec.keep_alive = Some(Span::from_millis(10));
    let (model, _) = deploy(&mut world, spec, START);
    let mut due = Due::every(Duration::from_millis(5));
    // What would be done is decided and told: more workers while there is load, and fewer when it is over.
    for decided in ["a worker starts: ", "finishes and goes: "] {
        loop {
            assert!(due.began.elapsed() < PATIENCE, "waited in vain for `{decided}`");
            if decided.contains("starts") {
                due.now().for_each(|request| world.arrive(request, model, Span::from_millis(200)));
            }
            match world.heard.recv_timeout(Duration::from_millis(5)) {
                Ok(Heard::Node(..)) => panic!("nothing is started and nothing stopped"),
                Ok(Heard::Gateway(ToGateway::Run(grant))) => world.take_50ms(&grant),
                Ok(Heard::Overview(overview)) => {
                    let mut decisions = overview.scaling.iter().flat_map(|scaling| &scaling.decisions);
                    if decisions.any(|decision| decision.text.contains(decided)) {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
}
