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
//! 5. Another scheduler may lead when this one decides nothing more and has told all members so.

use crate::alarm::Alarm;
use crate::config::Config;
use crate::deployment::Reply;
use crate::driver::{Arrived, Driver};
use crate::lead::Lead;
use crate::link::{GatewayLink, NodeLink};
use crate::store::Store;
use anyhow::{Context, Result};
use policy::Time;
use rpc::{Arrival, FromNode, NodeHello, Order, OrderError, Term, WorkerId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// At most so many messages are taken in before timers are looked at again.
const BURST: usize = 256;

/// What members are told when the scheduler ends.
const ENDING: &str = "the scheduler is ending; join the next one";

enum Message {
    Arrival(Arrival),
    News(u32, FromNode),
    GatewayJoined(u32, Box<dyn GatewayLink>),
    GatewayHeard(u32),
    GatewayLost(u32),
    NodeJoined(u32, NodeHello, Box<dyn NodeLink>),
    NodeLost(u32),
    Undelivered(WorkerId, u64, bool),
    Withdrawn(u64, u32),
}

/// The scheduler. Clones reach the same one.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    driver: Mutex<Driver>,
    news: Mutex<VecDeque<Message>>,
    orders: Mutex<VecDeque<(Order, Reply)>>,
    alarm: Alarm,
    stopped: AtomicBool,
    /// What it leads by, where others may take over.
    lead: Option<Arc<dyn Lead>>,
    term: Term,
}

impl Scheduler {
    /// Starts the scheduler with what it knew before and what the configuration asks for.
    pub fn start(config: Config, store: Store) -> Result<(Scheduler, std::thread::JoinHandle<()>)> {
        let (lead, term) = (store.lead().cloned(), config.term);
        let driver = Driver::new(Time::ZERO, config, store).context("bring back what was deployed")?;
        let shared = Arc::new(Shared {
            origin: Instant::now(),
            driver: Mutex::new(driver),
            news: Mutex::default(),
            orders: Mutex::default(),
            alarm: Alarm::new()?,
            stopped: AtomicBool::new(false),
            lead,
            term,
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
    pub fn news(&self, node: u32, news: FromNode) {
        self.send(Message::News(node, news));
    }

    /// An operator wants something; `reply` is called when it is done or cannot be.
    pub fn order(&self, order: Order, reply: impl FnOnce(Result<(), OrderError>) + Send + 'static) {
        lock(&self.shared.orders).push_back((order, Box::new(reply)));
        self.shared.alarm.ring();
    }

    /// Nobody waits for the answer to a request any more, of the model with this number.
    pub fn withdrawn(&self, request: u64, model: u32) {
        self.send(Message::Withdrawn(request, model));
    }

    /// A gateway could not hand a batch to its node, or had `nobody` of it left to hand on.
    pub fn undelivered(&self, worker: WorkerId, batch: u64, nobody: bool) {
        self.send(Message::Undelivered(worker, batch, nobody));
    }

    /// A gateway is there: a session with a number of its own.
    pub fn gateway_joined(&self, session: u32, link: impl GatewayLink + 'static) {
        self.send(Message::GatewayJoined(session, Box::new(link)));
    }

    /// A gateway says that it is there.
    pub fn gateway_heard(&self, session: u32) {
        self.send(Message::GatewayHeard(session));
    }

    /// A gateway's session is over.
    pub fn gateway_lost(&self, session: u32) {
        self.send(Message::GatewayLost(session));
    }

    /// A node is there: a session with a number of its own.
    pub fn node_joined(&self, number: u32, hello: NodeHello, link: impl NodeLink + 'static) {
        self.send(Message::NodeJoined(number, hello, Box::new(link)));
    }

    /// A node's session is over.
    pub fn node_lost(&self, number: u32) {
        self.send(Message::NodeLost(number));
    }

    /// Ends the scheduler, and with it the sessions of all who joined. Requests that wait are not answered here: their
    /// gateways drain before, or announce them to the next scheduler.
    pub fn stop(&self) {
        self.shared.stopped.store(true, SeqCst);
        self.shared.alarm.ring();
    }

    /// Whether it decides: it was not told to end, and nobody else has begun to lead for all that is known here.
    pub fn leads(&self) -> bool {
        !self.shared.stopped.load(SeqCst) && self.shared.lead.as_ref().is_none_or(|lead| lead.is_held())
    }

    /// Whether it was told to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stopped.load(SeqCst)
    }

    /// A member has followed a scheduler of a later term: whoever leads next here has a later one than that, and members
    /// follow it.
    pub(crate) fn surpass(&self, term: Term) {
        let surpassed = self.shared.lead.as_ref().map_or(Ok(()), |lead| lead.surpass(term));
        if let Err(error) = surpassed {
            tracing::warn!(error = format!("{error:#}"), "the term that a member has followed is not written down");
        }
    }

    /// When it began to lead.
    pub fn term(&self) -> Term {
        self.shared.term
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
                // It may have ended since.
                Ok(_) if self.stopped.load(SeqCst) => return,
                Ok(mut driver) => self.take_in(&mut driver),
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => panic!("the scheduler failed before"),
            }
        }
    }

    /// The time now, as the driver counts it.
    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, at: Instant) -> Time {
        Time::from_nanos(at.saturating_duration_since(self.origin).as_nanos() as u64)
    }

    /// Tells the driver the news.
    fn take_in(&self, driver: &mut Driver) {
        let now = self.now();
        for _ in 0..BURST {
            let Some(message) = lock(&self.news).pop_front() else { break };
            self.take(driver, now, message);
        }
        if driver.next_timer() <= now {
            driver.on_timer(now);
        }
        driver.settle(now);
        self.alarm.set(self.now(), driver.next_timer());
    }

    fn take(&self, driver: &mut Driver, now: Time, message: Message) {
        match message {
            Message::Arrival(Arrival { request, model, at, within, priority }) => {
                let at = self.time_of(at);
                driver.on_arrival(now, Arrived { request, model, at, within, priority });
            }
            Message::News(node, news) => driver.on_node(now, node, news),
            Message::GatewayJoined(session, link) => driver.on_gateway_joined(session, link),
            Message::GatewayHeard(session) => driver.hear_gateway(session),
            Message::GatewayLost(session) => driver.on_gateway_lost(now, session),
            Message::NodeJoined(number, hello, link) => driver.on_node_joined(now, number, hello, link),
            Message::NodeLost(number) => driver.on_node_lost(now, number),
            Message::Withdrawn(request, model) => driver.on_withdrawn(now, request, model),
            Message::Undelivered(worker, batch, nobody) => driver.on_undelivered(now, worker, batch, nobody),
        }
    }

    /// What the scheduler's own thread does.
    fn run(&self) {
        while !self.stopped.load(SeqCst) {
            {
                let mut driver = self.driver.lock().expect("the scheduler failed before");
                let orders = std::mem::take(&mut *lock(&self.orders));
                let now = self.now();
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
        for gateway in links.0.values() {
            gateway.link.close(ENDING);
        }
        for node in links.1.values() {
            node.link.close(ENDING);
        }
        // Everybody knows by now that this one decides nothing more.
        if let Some(lead) = &self.lead {
            lead.release();
        }
    }
}

/// Nothing that panics is done while these locks are held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
