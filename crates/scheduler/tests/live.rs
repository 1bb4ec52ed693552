//! The scheduler with its real clock and thread, between a gateway and a node that this file plays.

use policy::{Span, policies};
use rpc::{
    Arrival, Catalog, FromNode, Grant, ModelInfo, ModelSpec, Order, OrderError, Refusal, State, ToGateway, ToNode,
    WorkerId,
};
use scheduler::{Config, GatewayLink, NodeLink, Scheduler, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// What reaches gateway and node.
enum Heard {
    Gateway(ToGateway),
    Catalog(Catalog),
    Node(u16, ToNode),
    Reply(Result<(), OrderError>),
}

struct World {
    scheduler: Scheduler,
    heard: Receiver<Heard>,
    hears: Sender<Heard>,
    thread: Option<std::thread::JoinHandle<()>>,
    catalog: Catalog,
    workers: BTreeMap<WorkerId, String>,
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
        let (tell, publish) = (hears.clone(), hears.clone());
        scheduler.gateway_joined(
            0,
            GatewayLink {
                tell: Box::new(move |message| drop(tell.send(Heard::Gateway(message)))),
                publish: Box::new(move |catalog| drop(publish.send(Heard::Catalog(catalog)))),
                look: Box::new(|_| {}),
            },
        );
        let (catalog, workers) = (Catalog::default(), BTreeMap::new());
        World { scheduler, heard, hears, thread: Some(thread), catalog, workers }
    }

    fn node(&self, number: u16, virtual_gpus: usize) {
        let tell = self.hears.clone();
        let link = NodeLink {
            name: format!("node-{number}"),
            virtual_gpus,
            address: "".into(),
            tell: Box::new(move |message| drop(tell.send(Heard::Node(number, message)))),
        };
        self.scheduler.node_joined(number, link);
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
        let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 8 };
        let measured = vec![(1, Span::from_millis(2)), (8, Span::from_millis(4))];
        self.scheduler.news(FromNode::Ready { worker, info, measured });
    }

    fn lost(&self, worker: WorkerId, reason: &str) {
        let again_in = Span::from_millis(100);
        self.scheduler.news(FromNode::Lost { worker, reason: reason.into(), again_in });
    }

    /// Plays a worker that is done with a batch after a while.
    fn take_50ms(&self, grant: &Grant) {
        let (worker, batch, size) = (grant.worker, grant.batch, grant.size);
        let scheduler = self.scheduler.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            scheduler.news(FromNode::Done { worker, batch, size, took: Some(Span::from_millis(50)) });
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
                    self.scheduler.news(FromNode::Done { worker, batch, size, took: Some(Span::from_millis(1)) });
                }
                ToGateway::Refuse { refusal, .. } => refused.push(refusal),
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
    World::new(Config::default(), Store::in_memory().unwrap())
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
        world.arrive(request, model, Span::from_secs(5));
    }
    assert_eq!(world.serve(50), (50, vec![]));
    world.arrive(50, model, Span::from_micros(1_500));
    let (run, refused) = world.serve(1);
    assert!(run == 0 && matches!(refused[0], Refusal::Late { .. }), "{refused:?}");
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
        world.arrive(request, model, Span::from_secs(5));
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
    world.arrive(1, model, Span::from_secs(10));
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
    let path = folder.path().join("weft.redb");
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

#[test]
fn a_journal_replays_to_the_same_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { journal: Some(folder.path().to_path_buf()), ..Config::default() };
    let mut world = World::new(config, Store::in_memory().unwrap());
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
    let info = ModelInfo { inputs: vec![], outputs: vec![], max_batch: 1 };
    world.scheduler.news(FromNode::Ready { worker, info, measured: vec![(1, Span::from_millis(50))] });
}

fn elastic(workers: &str) -> ModelSpec {
    let text = r#"{"name": "m", "kind": "onnx", "path": "/x.onnx", "max_batch": 1, "slo": "200ms", "workers": "W"}"#;
    spec(&text.replace('W', workers))
}

/// Deploys it and waits until its first worker is there; the model's number.
fn deploy(world: &mut World, spec: ModelSpec) -> (u32, WorkerId) {
    world.order(Order::Deploy(Box::new(spec)));
    let worker = world.started();
    std::thread::sleep(Duration::from_millis(50));
    slow(world, worker);
    assert_eq!(world.reply(), Ok(()));
    assert_eq!(world.state("m", 1), Some(State::Ready), "who is told that it is there finds it");
    (world.catalog.entries[0].model, worker)
}

#[test]
fn workers_come_when_the_load_grows_and_go_when_it_is_over() {
    let mut world = world();
    world.node(0, 0);
    let (model, _) = deploy(&mut world, elastic("1..3"));
    let (mut most, mut answered) = (1, 0);
    // Three times what one worker does, until there are three; then nothing, until one has gone. Some stay for minutes:
    // where there was a burst there may be another.
    let began = Instant::now();
    for request in 0.. {
        assert!(began.elapsed() < PATIENCE, "{} workers, {most} at most", world.workers.len());
        if most < 3 {
            world.arrive(request, model, Span::from_millis(200));
        } else if world.workers.len() < 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(15));
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
    let (model, worker) = deploy(&mut world, spec(&text));
    let (mut most, mut last) = (200, 200);
    let began = Instant::now();
    // As much as one worker does on all that it may have, until it has that; then nothing.
    for request in 0.. {
        assert!(began.elapsed() < PATIENCE, "{most} at most, {last} at last");
        if most < 800 {
            world.arrive(request, model, Span::from_millis(200));
        } else if last == 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
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
    let (model, _) = deploy(&mut world, spec);
    world.until("the worker to be stopped", |world, _| {
        let gone = world.workers.is_empty() && world.catalog.entries[0].workers_ready == 0;
        gone.then_some(())
    });
    assert_eq!(world.state("m", 1), Some(State::Ready), "it can be asked");

    // Less is left than a start took.
    world.arrive(1, model, Span::from_millis(40));
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
    world.arrive(2, model, Span::from_secs(5));
    let worker = world.started();
    slow(&world, worker);
    assert_eq!(world.serve(1), (1, vec![]), "it waited for the worker");
}

#[test]
fn an_operator_has_the_last_word_on_how_many() {
    let store = Store::in_memory().unwrap();
    let mut world = World::new(Config::default(), store);
    world.node(0, 0);
    let (_, first) = deploy(&mut world, elastic("1..4"));
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
    let mut world = World::new(Config { dry_run: true, ..Config::default() }, Store::in_memory().unwrap());
    world.node(0, 0);
    let mut spec = elastic("0..3");
    spec.keep_alive = Some(Span::from_millis(10));
    let (model, _) = deploy(&mut world, spec);
    let began = Instant::now();
    for request in 0.. {
        world.arrive(request, model, Span::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
        if began.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    while let Ok(heard) = world.heard.try_recv() {
        assert!(!matches!(heard, Heard::Node(..)), "nothing is started and nothing stopped");
    }
}
