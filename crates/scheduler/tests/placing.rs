//! Where the live scheduler puts workers, in virtual time: on which nodes they start, and which of them move.

use config::ModelSpec;
use policy::placement::nodes::Capacity;
use policy::{Span, Time};
use rpc::{
    Catalog, FromNode, Incarnation, ModelInfo, NodeHello, Order, OrderError, Overview, State, ToGateway, ToNode,
    WorkerId, WorkerState,
};
use scheduler::{Config, Driver, GatewayLink, NodeLink, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const GB: u64 = 1 << 30;
/// How long a worker takes to start.
const START: Span = Span::from_millis(300);
/// The scheduler's tick.
const TICK: Span = Span::from_millis(50);

/// Stands in for a gateway: keeps the last overview.
struct Gateway(Arc<Mutex<Overview>>);

impl GatewayLink for Gateway {
    fn send(&self, _: ToGateway) {}

    fn publish_catalog(&self, _: Catalog) {}

    fn publish_overview(&self, overview: Overview) {
        *self.0.lock().unwrap() = overview;
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

/// Stands in for a node: keeps what it is told.
struct Node {
    number: u32,
    told: Arc<Mutex<Vec<(u32, ToNode)>>>,
}

impl NodeLink for Node {
    fn send(&self, instruction: ToNode) {
        self.told.lock().unwrap().push((self.number, instruction));
    }

    fn close(&self, _: &str) {}

    fn is_leased(&self) -> bool {
        false
    }
}

/// A scheduler, and nodes whose workers are ready a while after they were started.
struct World {
    driver: Driver,
    now: Time,
    told: Arc<Mutex<Vec<(u32, ToNode)>>>,
    looked: Arc<Mutex<Overview>>,
    replies: Arc<Mutex<Vec<Result<(), OrderError>>>>,
    /// Workers that are being started: when they are ready.
    starting: BTreeMap<WorkerId, (Time, u32)>,
    nodes: BTreeMap<WorkerId, u32>,
    /// Nodes on which no worker can start.
    broken: Vec<u32>,
    /// What was done, a word each.
    done: Vec<String>,
}

fn spec(text: &str) -> ModelSpec {
    serde_json::from_str(text).unwrap()
}

fn model(name: &str, workers: usize, share: &str) -> ModelSpec {
    let share = if share.is_empty() { String::new() } else { format!(r#", "share": {share}"#) };
    spec(&format!(r#"{{"name": "{name}", "kind": "onnx", "path": "/x", "max_batch": 8, "workers": {workers}{share}}}"#))
}

impl World {
    fn new() -> World {
        World::with(Config::default())
    }

    fn with(config: Config) -> World {
        let now = Time::ZERO;
        let mut driver = Driver::new(now, config, Store::in_memory()).unwrap();
        let looked: Arc<Mutex<Overview>> = Arc::default();
        let look = looked.clone();
        driver.on_gateway_joined(0, Box::new(Gateway(look)));
        World {
            driver,
            now,
            told: Arc::default(),
            looked,
            replies: Arc::default(),
            starting: BTreeMap::new(),
            nodes: BTreeMap::new(),
            broken: Vec::new(),
            done: Vec::new(),
        }
    }

    fn join(&mut self, node: u32, capacity: Option<Capacity>) {
        let told = self.told.clone();
        let link = Box::new(Node { number: node, told });
        let (name, incarnation) = (format!("node-{node}"), Incarnation(u64::from(node) + 1));
        let hello = NodeHello { name, incarnation, capacity, ..NodeHello::default() };
        self.driver.on_node_joined(self.now, node, hello, link);
        self.settle();
    }

    fn lose(&mut self, node: u32) {
        self.driver.on_node_lost(self.now, node);
        self.nodes.retain(|_, own| *own != node);
        self.starting.retain(|_, (_, own)| *own != node);
        self.settle();
    }

    fn order(&mut self, order: Order) {
        let replies = self.replies.clone();
        self.driver.on_order(self.now, order, Box::new(move |outcome| replies.lock().unwrap().push(outcome)));
        self.settle();
    }

    fn deploy(&mut self, spec: ModelSpec) {
        self.order(Order::Deploy(Box::new(spec)));
    }

    fn reply(&self) -> Option<Result<(), OrderError>> {
        self.replies.lock().unwrap().pop()
    }

    /// Nodes do what they were told.
    fn settle(&mut self) {
        loop {
            self.driver.settle(self.now);
            let told = std::mem::take(&mut *self.told.lock().unwrap());
            if told.is_empty() {
                return;
            }
            for (node, message) in told {
                match message {
                    ToNode::Start { worker, spec } => {
                        self.done.push(format!("{} starts on {node}", spec.name));
                        self.starting.insert(worker, (self.now + START, node));
                        self.nodes.insert(worker, node);
                    }
                    ToNode::Stop { worker } => {
                        self.done.push(format!("one stops on {node}"));
                        self.starting.remove(&worker);
                        self.nodes.remove(&worker);
                        self.driver.on_node(self.now, node, FromNode::Stopped { worker });
                    }
                    ToNode::Virtual { .. } | ToNode::Stretch { .. } | ToNode::Heartbeat => {}
                }
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.now += TICK;
            let due: Vec<(WorkerId, u32)> = self
                .starting
                .iter()
                .filter(|(_, (at, _))| *at <= self.now)
                .map(|(worker, (_, node))| (*worker, *node))
                .collect();
            for (worker, node) in due {
                let news = if self.broken.contains(&node) {
                    self.starting.insert(worker, (self.now + START, node));
                    FromNode::Lost { worker, reason: "no such file".into(), again_in: START }
                } else {
                    self.starting.remove(&worker);
                    let info = ModelInfo { max_batch: 8, ..ModelInfo::default() };
                    let measured = vec![(1, Span::from_millis(2)), (8, Span::from_millis(4))];
                    FromNode::Ready { worker, info, measured }
                };
                self.driver.on_node(self.now, node, news);
                self.settle();
            }
            self.driver.on_timer(self.now);
            self.settle();
        }
    }

    /// Workers that are ready, by node.
    fn ready(&self, nodes: u32) -> Vec<usize> {
        let ready = |node: u32| {
            let there = |(_, incarnation, _, state): &(WorkerId, Incarnation, Option<&str>, WorkerState)| {
                *incarnation == Incarnation(u64::from(node) + 1) && *state == WorkerState::Ready
            };
            self.driver.workers().filter(there).count()
        };
        (0..nodes).map(ready).collect()
    }

    fn state(&self, name: &str) -> Option<State> {
        self.driver.catalog().find(name, None).ok().map(|entry| entry.state.clone())
    }

    fn takes(&mut self, name: &str) {
        assert_eq!(self.reply(), Some(Ok(())), "{name}");
        assert_eq!(self.state(name), Some(State::Ready));
    }
}

fn cores(cores: u32) -> Option<Capacity> {
    Some(Capacity { cores, gpus: Vec::new() })
}

fn gpus(count: usize) -> Option<Capacity> {
    Some(Capacity { cores: 64, gpus: vec![40 * GB; count] })
}

#[test]
fn workers_without_gpus_are_spread_over_nodes() {
    for capacity in [None, cores(16)] {
        let mut world = World::new();
        (0..3).for_each(|node| world.join(node, capacity.clone()));
        world.deploy(model("a", 3, ""));
        world.pass(START + TICK);
        world.takes("a");
        assert_eq!(world.ready(3), [1, 1, 1]);
        world.deploy(model("b", 4, ""));
        world.pass(START + TICK);
        world.takes("b");
        assert_eq!(world.ready(3), [3, 2, 2]);
    }
}

#[test]
fn nodes_that_come_back_one_after_the_other_end_up_with_the_same_work() {
    let mut world = World::new();
    world.join(0, cores(16));
    world.join(1, cores(16));
    for name in ["a", "b", "c"] {
        world.deploy(model(name, 2, ""));
        world.pass(START + TICK);
        world.takes(name);
    }
    assert_eq!(world.ready(2), [3, 3]);
    world.lose(0);
    world.lose(1);
    world.pass(Span::from_secs(1));
    world.join(2, cores(16));
    world.pass(START + TICK);
    assert_eq!(world.ready(3), [0, 0, 6], "the first takes all there is");
    world.join(3, cores(16));
    world.done.clear();
    world.pass(Span::from_secs(5));
    assert_eq!(world.ready(4), [0, 0, 3, 3]);
    // Each was replaced before it was stopped, one at a time, and then all is quiet.
    let expected: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|name| [format!("{name} starts on 3"), "one stops on 2".into()]).collect();
    assert_eq!(world.done, expected);
}

#[test]
fn a_worker_that_cannot_start_elsewhere_stays_where_it_is() {
    let mut world = World::new();
    world.join(0, cores(16));
    world.deploy(model("a", 2, ""));
    world.pass(START + TICK);
    world.takes("a");
    world.broken.push(1);
    world.join(1, cores(16));
    world.done.clear();
    world.pass(Span::from_secs(10));
    assert_eq!(world.done, ["a starts on 1", "one stops on 1"], "it is tried once");
    assert_eq!((world.ready(2), world.state("a")), (vec![2, 0], Some(State::Ready)));
}

#[test]
fn workers_that_ask_for_a_gpu_go_where_there_is_one() {
    let mut world = World::new();
    world.join(0, cores(64));
    world.join(1, gpus(1));
    world.join(2, gpus(1));
    world.deploy(model("a", 2, r#"{"request": "60%", "limit": "90%", "memory": "20GiB"}"#));
    world.pass(START + TICK);
    world.takes("a");
    assert_eq!(world.ready(3), [0, 1, 1]);
    // What is left of both GPUs does for these: beside the others, and apart from each other.
    world.deploy(model("b", 2, r#"{"request": "30%", "limit": "50%", "memory": "10GiB"}"#));
    world.pass(START + TICK);
    world.takes("b");
    assert_eq!(world.ready(3), [0, 2, 2]);
    // Nothing is left of them.
    world.deploy(model("c", 1, r#"{"request": "20%", "limit": "50%"}"#));
    let expected = "model `c`: it asks for a GPU and to be promised 20% of it, and no node has that \
                    left: stop something, ask for less, or add a node";
    assert_eq!(world.reply(), Some(Err(OrderError::Invalid(expected.into()))));
    world.pass(Span::from_secs(3));
    assert_eq!((world.ready(3), world.state("c")), (vec![0, 2, 2], None));
    let why: Vec<String> = world.looked.lock().unwrap().workers.iter().map(|worker| worker.why.clone()).collect();
    assert_eq!(
        why,
        [
            "no GPU in use has room, and it has 1 idle; no other worker of this model is there",
            "no GPU in use has room, and it has 1 idle; no other worker of this model is there",
            "a GPU in use has room for it; no other worker of this model is there",
            "a GPU in use has room for it; no other worker of this model is there",
        ]
    );
}

#[test]
fn a_configured_model_without_room_says_so_and_starts_when_there_is_some() {
    let models = vec![model("a", 1, r#"{"request": "50%"}"#)];
    let mut world = World::with(Config { models, ..Config::default() });
    world.pass(Span::from_secs(1));
    assert_eq!(world.state("a"), Some(State::Loading));
    let trouble = |world: &World| world.driver.catalog().entries[0].health.trouble.clone();
    assert_eq!(trouble(&world).as_deref(), Some("no node takes workers: start one with `weft node`"));
    world.join(0, cores(8));
    let Some(State::Unavailable(why)) = world.state("a") else { panic!("{:?}", world.state("a")) };
    assert_eq!(why, "it asks for a GPU and no node has one: start a node with a GPU, or deploy it without");
    world.join(1, gpus(1));
    world.pass(START + TICK);
    assert_eq!((world.state("a"), world.ready(2)), (Some(State::Ready), vec![0, 1]));
}

#[test]
fn an_order_without_a_node_is_answered_in_the_end() {
    let mut world = World::new();
    world.deploy(model("a", 1, ""));
    world.pass(policy::deployment::ROOM_PATIENCE - TICK);
    assert_eq!(world.reply(), None);
    world.pass(TICK);
    let expected = "model `a`: it has no worker after 60s: no node takes workers: start one with `weft node`";
    assert_eq!(world.reply(), Some(Err(OrderError::Invalid(expected.into()))));
    world.pass(Span::from_secs(2));
    assert_eq!(world.state("a"), None);
}

#[test]
fn a_node_that_leaves_loses_its_workers_when_others_are_ready() {
    let mut world = World::new();
    world.join(0, cores(8));
    world.join(1, cores(8));
    world.deploy(model("a", 2, ""));
    world.pass(START + TICK);
    world.takes("a");
    world.done.clear();
    world.driver.on_node(world.now, 0, FromNode::Leaving);
    world.pass(START + TICK + TICK);
    assert_eq!(world.done, ["a starts on 1", "one stops on 0"]);
    assert_eq!(world.ready(2), [0, 2]);
}

#[test]
fn who_exceeds_a_gpu_moves_to_a_node_that_has_room() {
    let mut world = World::new();
    world.join(0, gpus(1));
    for name in ["a", "b"] {
        world.deploy(model(name, 1, "{}"));
        world.pass(START + TICK);
        world.takes(name);
    }
    assert_eq!(world.ready(1), [2], "sharing is better than not running");
    world.join(1, gpus(1));
    world.pass(Span::from_secs(3));
    assert_eq!(world.ready(2), [1, 1]);
}
