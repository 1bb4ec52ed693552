//! The one thread that owns every decision, and how others reach it.

use crate::deployment::Reply;
use crate::driver::Driver;
use crate::store::Store;
use anyhow::{Context, Result};
use policy::{Network, Span, Time};
use rpc::{Arrival, Catalog, FromNode, ModelSpec, NodeView, Order, OrderError, Overview, ToGateway, ToNode, WorkerId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// At most so many messages are taken in before timers are looked at again.
const BURST: usize = 256;

/// How the scheduler is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy of every pool.
    pub policy: String,
    /// What lies between a decision and its effect.
    pub network: Network,
    /// Where journals are kept, if anywhere.
    pub journal: Option<PathBuf>,
    /// What to serve from the start.
    pub models: Vec<ModelSpec>,
}

impl Default for Config {
    fn default() -> Config {
        let network =
            Network { response: Span::from_micros(500), jitter: Span::from_micros(500), ..Network::default() };
        Config { policy: "weft".into(), network, journal: None, models: Vec::new() }
    }
}

/// How the scheduler reaches a gateway. None of these may wait.
pub struct GatewayLink {
    /// Says what to do with requests.
    pub tell: Box<dyn Fn(ToGateway) + Send>,
    /// Says which models there are.
    pub publish: Box<dyn Fn(Catalog) + Send>,
    /// Says how workers and queues are.
    pub look: Box<dyn Fn(Overview) + Send>,
}

/// How the scheduler reaches a node.
pub struct NodeLink {
    /// What people call it.
    pub name: String,
    /// How many GPUs it emulates.
    pub virtual_gpus: usize,
    /// Where gateways on other machines reach it; empty where they need not.
    pub address: Arc<str>,
    /// Says what to start and stop. Must not wait.
    pub tell: Box<dyn Fn(ToNode) + Send>,
}

impl NodeLink {
    /// How people and gateways see it.
    pub(crate) fn view(&self, node: u16) -> NodeView {
        NodeView { node, name: self.name.clone(), address: self.address.to_string() }
    }
}

enum Message {
    Arrival(Arrival),
    News(FromNode),
    Order(Order, Reply),
    GatewayJoined(u16, GatewayLink),
    GatewayLost(u16),
    NodeJoined(u16, NodeLink),
    NodeLost(u16),
    Undelivered(WorkerId, u64),
    Stop,
}

/// The scheduler. Clones reach the same one.
#[derive(Clone)]
pub struct Scheduler {
    messages: Sender<Message>,
}

impl Scheduler {
    /// Starts the scheduler with what it knew before and what the configuration asks for.
    pub fn start(config: Config, store: Store) -> Result<(Scheduler, std::thread::JoinHandle<()>)> {
        let (messages, receiver) = channel();
        let models = config.models.clone();
        let mut driver = Driver::new(config, store);
        driver.restore(driver.now(), models).context("bring back what was deployed")?;
        let thread = std::thread::Builder::new().name("scheduler".into());
        let thread = thread.spawn(move || run(driver, &receiver)).context("start the scheduler's thread")?;
        Ok((Scheduler { messages }, thread))
    }

    /// A request came.
    pub fn arrival(&self, arrival: Arrival) {
        self.send(Message::Arrival(arrival));
    }

    /// A node has news of a worker.
    pub fn news(&self, news: FromNode) {
        self.send(Message::News(news));
    }

    /// An operator wants something; `reply` is called when it is done or cannot be.
    pub fn order(&self, order: Order, reply: impl FnOnce(Result<(), OrderError>) + Send + 'static) {
        self.send(Message::Order(order, Box::new(reply)));
    }

    /// A gateway could not hand a batch to its node: the worker is free.
    pub fn undelivered(&self, worker: WorkerId, batch: u64) {
        self.send(Message::Undelivered(worker, batch));
    }

    /// A gateway is there, with a number of its own.
    pub fn gateway_joined(&self, number: u16, link: GatewayLink) {
        self.send(Message::GatewayJoined(number, link));
    }

    /// A gateway is gone.
    pub fn gateway_lost(&self, number: u16) {
        self.send(Message::GatewayLost(number));
    }

    /// A node is there, with a number of its own.
    pub fn node_joined(&self, number: u16, link: NodeLink) {
        self.send(Message::NodeJoined(number, link));
    }

    /// A node is gone.
    pub fn node_lost(&self, number: u16) {
        self.send(Message::NodeLost(number));
    }

    /// Ends the scheduler. Requests that wait are not answered: gateways drain first.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    fn send(&self, message: Message) {
        // Nobody listens once it was stopped, and nobody minds.
        let _ = self.messages.send(message);
    }
}

fn run(mut driver: Driver, messages: &Receiver<Message>) {
    loop {
        let now = driver.now();
        let due = driver.next_timer();
        let first = match due {
            due if due <= now => messages.try_recv().ok(),
            Time::NEVER => messages.recv().ok(),
            due => match messages.recv_timeout(Duration::from_nanos((due - now).nanos())) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            },
        };
        let now = driver.now();
        let mut next = first;
        let mut taken = 0;
        while let Some(message) = next {
            if matches!(message, Message::Stop) {
                return;
            }
            take(&mut driver, now, message);
            taken += 1;
            next = if taken < BURST { messages.try_recv().ok() } else { None };
        }
        if driver.next_timer() <= now {
            driver.on_timer(now);
        }
        driver.settle();
    }
}

fn take(driver: &mut Driver, now: Time, message: Message) {
    match message {
        Message::Arrival(arrival) => driver.on_arrival(now, arrival),
        Message::News(news) => driver.on_node(now, news),
        Message::Order(order, reply) => driver.on_order(now, order, reply),
        Message::GatewayJoined(number, link) => {
            (link.publish)(driver.catalog());
            driver.gateways.insert(number, link);
        }
        Message::GatewayLost(number) => {
            driver.gateways.remove(&number);
        }
        Message::NodeJoined(number, link) => driver.on_node_joined(now, number, link),
        Message::NodeLost(number) => driver.on_node_lost(now, number),
        Message::Undelivered(worker, batch) => driver.on_done(now, worker, batch, false),
        Message::Stop => {}
    }
}
