//! Whose turn it is to decide, and how others reach the one who does.
//!
//! There is one driver. Whoever has news puts it into the queue and, when nobody is deciding, decides about all that is
//! there: a request that finds a free worker reaches it without a change of threads. A thread of the scheduler's own
//! does what is due when nothing happens, and carries out orders, which may wait for the disk.
//!
//! Invariants:
//! 1. Nobody waits for the driver but the scheduler's thread: whoever finds it taken leaves the news in the queue.
//! 2. Whoever gives the driver back looks at the queue once more: news that came meanwhile were left to them.
//! 3. Whoever gives the driver back has set the alarm of the scheduler's thread for what is due next.
//! 4. The driver is told things in the order of the queue. Orders have a queue of their own and come in between.

use crate::alarm::Alarm;
use crate::deployment::Reply;
use crate::driver::Driver;
use crate::store::Store;
use anyhow::{Context, Result};
use policy::{Network, Span, Time};
use rpc::{Arrival, Catalog, FromNode, ModelSpec, NodeView, Order, OrderError, Overview, ToGateway, ToNode, WorkerId};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

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
    /// Only say how models would be scaled.
    pub dry_run: bool,
    /// What to serve from the start.
    pub models: Vec<ModelSpec>,
}

impl Default for Config {
    fn default() -> Config {
        let network =
            Network { response: Span::from_micros(500), jitter: Span::from_micros(500), ..Network::default() };
        Config { policy: "weft".into(), network, journal: None, dry_run: false, models: Vec::new() }
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
    GatewayJoined(u16, GatewayLink),
    GatewayLost(u16),
    NodeJoined(u16, NodeLink),
    NodeLost(u16),
    Undelivered(WorkerId, u64),
}

/// The scheduler. Clones reach the same one.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    driver: Mutex<Driver>,
    news: Mutex<VecDeque<Message>>,
    orders: Mutex<VecDeque<(Order, Reply)>>,
    alarm: Alarm,
    stopped: AtomicBool,
}

impl Scheduler {
    /// Starts the scheduler with what it knew before and what the configuration asks for.
    pub fn start(config: Config, store: Store) -> Result<(Scheduler, std::thread::JoinHandle<()>)> {
        let models = config.models.clone();
        let mut driver = Driver::new(config, store);
        driver.restore(driver.now(), models).context("bring back what was deployed")?;
        let shared = Arc::new(Shared {
            driver: Mutex::new(driver),
            news: Mutex::default(),
            orders: Mutex::default(),
            alarm: Alarm::new()?,
            stopped: AtomicBool::new(false),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("scheduler".into());
        let thread = thread.spawn(move || own.run()).context("start the scheduler's thread")?;
        Ok((Scheduler { shared }, thread))
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
        lock(&self.shared.orders).push_back((order, Box::new(reply)));
        self.shared.alarm.ring();
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
        self.shared.stopped.store(true, SeqCst);
        self.shared.alarm.ring();
    }

    fn send(&self, message: Message) {
        lock(&self.shared.news).push_back(message);
        self.shared.decide();
    }
}

impl Shared {
    /// Decides about all that is there, unless somebody else is at it, who then will.
    fn decide(&self) {
        while !lock(&self.news).is_empty() && !self.stopped.load(SeqCst) {
            match self.driver.try_lock() {
                Ok(mut driver) => self.take_in(&mut driver),
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => panic!("the scheduler failed before"),
            }
        }
    }

    /// Tells the driver the news.
    fn take_in(&self, driver: &mut Driver) {
        let now = driver.now();
        for _ in 0..BURST {
            let Some(message) = lock(&self.news).pop_front() else { break };
            take(driver, now, message);
        }
        if driver.next_timer() <= now {
            driver.on_timer(now);
        }
        driver.settle();
        self.alarm.set(driver.now(), driver.next_timer());
    }

    /// What the scheduler's own thread does.
    fn run(&self) {
        while !self.stopped.load(SeqCst) {
            {
                let mut driver = self.driver.lock().expect("the scheduler failed before");
                let orders = std::mem::take(&mut *lock(&self.orders));
                let now = driver.now();
                for (order, reply) in orders {
                    driver.on_order(now, order, reply);
                }
                self.take_in(&mut driver);
            }
            // Others may have left news while the driver was held here.
            self.decide();
            self.alarm.wait();
        }
        // Gateways and nodes hold this scheduler, and would be held by it for ever.
        let mut driver = self.driver.lock().expect("the scheduler failed before");
        let links = (std::mem::take(&mut driver.gateways), std::mem::take(&mut driver.nodes));
        drop(driver);
        drop(links);
    }
}

/// Nothing that panics is done while these locks are held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(driver: &mut Driver, now: Time, message: Message) {
    match message {
        Message::Arrival(arrival) => driver.on_arrival(now, arrival),
        Message::News(news) => driver.on_node(now, news),
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
    }
}
