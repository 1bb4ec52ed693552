//! The scheduler and a gateway as processes: their machines, and who is connected to them.

use crate::Bug;
use crate::message::Message;
use crate::network::{End, Line};
use config::ModelSpec;
use gateway::core::{Call, Clock, Entered, Outcome};
use gateway::flights::Session;
use gateway::remote::Waiting;
use gateway::{Gateway, Links, OrderOutcome, ServeError};
use policy::{Span, Time};
use rpc::leader::{Fence, Search};
use rpc::{Arrival, Catalog, Incarnation, NodeHello, Order, Overview, Part, Term, ToGateway, ToNode, WorkerId};
use scheduler::{Config, Driver, GatewayLink, NodeLink, Store};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Something that a machine wants sent. Machines are called from within each other, so it is put down and sent after.
type Outbox<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(outbox: &Outbox<T>) -> Vec<T> {
    std::mem::take(&mut *outbox.lock().expect("no panic holds this lock"))
}

fn put<T>(outbox: &Outbox<T>, one: T) {
    outbox.lock().expect("no panic holds this lock").push(one);
}

/// What the scheduler wants done with a session.
pub(crate) enum ToSession {
    Send(Message),
    Close,
}

/// The scheduler's way to a member: what it says is put down, and sent after.
struct SessionLink {
    session: u32,
    outbox: Outbox<(u32, ToSession)>,
}

impl SessionLink {
    fn put(&self, message: Message) {
        put(&self.outbox, (self.session, ToSession::Send(message)));
    }

    fn end(&self) {
        put(&self.outbox, (self.session, ToSession::Close));
    }
}

impl GatewayLink for SessionLink {
    fn send(&self, message: ToGateway) {
        self.put(Message::Decision(message));
    }

    fn publish_catalog(&self, catalog: Catalog) {
        self.put(Message::Catalog(catalog));
    }

    fn publish_overview(&self, _: Overview) {}

    fn close(&self, _: &str) {
        self.end();
    }

    fn is_leased(&self) -> bool {
        true
    }
}

impl NodeLink for SessionLink {
    fn send(&self, instruction: ToNode) {
        self.put(Message::Instruction(instruction));
    }

    fn close(&self, _: &str) {
        self.end();
    }

    fn is_leased(&self) -> bool {
        true
    }
}

/// What a gateway or a node knows of schedulers.
pub(crate) struct Member {
    pub(crate) search: Search,
    pub(crate) fence: Fence,
    /// The connection to one that leads or might.
    pub(crate) line: Option<Line>,
    /// The term of the one that it has joined.
    pub(crate) joined: Option<Term>,
    /// For how long that has been silent.
    pub(crate) unheard: Span,
}

impl Member {
    pub(crate) fn new(now: Time, schedulers: usize) -> Member {
        let (search, fence) = (Search::new(now, schedulers), Fence::default());
        Member { search, fence, line: None, joined: None, unheard: Span::ZERO }
    }

    /// Whether to follow a scheduler that answered.
    pub(crate) fn admits(&mut self, term: Term, bug: Option<Bug>) -> bool {
        let admitted = bug == Some(Bug::AnyLeader) || self.fence.admits(term);
        self.joined = admitted.then_some(term);
        admitted
    }

    /// The connection is over. How long to wait before the next attempt.
    pub(crate) fn left(&mut self, now: Time) -> Span {
        self.line = None;
        self.unheard = Span::ZERO;
        match self.joined.take() {
            Some(_) => {
                self.search.lost(now);
                Span::ZERO
            }
            None => self.search.failed(now).wait,
        }
    }

    /// Another heartbeat is due; whether to leave the scheduler instead.
    pub(crate) fn beat(&mut self) -> bool {
        self.unheard += rpc::timing::HEARTBEAT;
        let is_late = |term: Term| self.fence.highest() > term;
        self.search.gives_up(self.unheard) || self.joined.is_some_and(is_late)
    }
}

pub(crate) struct SchedulerPart {
    pub(crate) end: End,
    pub(crate) term: Term,
    pub(crate) driver: Driver,
    outbox: Outbox<(u32, ToSession)>,
    pub(crate) lines: BTreeMap<u32, Line>,
    pub(crate) nodes: Vec<u32>,
    next_session: u32,
    /// When its timer is set for.
    pub(crate) timer: Time,
}

impl SchedulerPart {
    pub(crate) fn new(now: Time, end: End, term: Term, epoch: u32, models: Vec<ModelSpec>) -> SchedulerPart {
        let settle = rpc::timing::SETTLE;
        let config = Config { models, epoch, term, settle, ..Config::default() };
        let store = Store::in_memory();
        let driver = Driver::new(now, config, store).expect("what is configured makes sense");
        let (outbox, lines, nodes) = (Outbox::default(), BTreeMap::new(), Vec::new());
        SchedulerPart { end, term, driver, outbox, lines, nodes, next_session: 1, timer: Time::NEVER }
    }

    fn open(&mut self, line: Line) -> u32 {
        let session = self.next_session;
        self.next_session += 1;
        self.lines.insert(session, line);
        session
    }

    pub(crate) fn session(&self, line: Line) -> Option<u32> {
        self.lines.iter().find(|(_, other)| **other == line).map(|(session, _)| *session)
    }

    pub(crate) fn welcome_gateway(&mut self, line: Line) {
        let session = self.open(line);
        put(&self.outbox, (session, ToSession::Send(Message::Welcome(session, self.term))));
        let link = Box::new(SessionLink { session, outbox: self.outbox.clone() });
        self.driver.on_gateway_joined(session, link);
    }

    pub(crate) fn welcome_node(&mut self, now: Time, line: Line, hello: NodeHello) {
        let session = self.open(line);
        self.nodes.push(session);
        put(&self.outbox, (session, ToSession::Send(Message::Accepted(self.term))));
        let link = Box::new(SessionLink { session, outbox: self.outbox.clone() });
        self.driver.on_node_joined(now, session, hello, link);
    }

    /// What is to be sent.
    pub(crate) fn take(&self) -> Vec<(u32, ToSession)> {
        take(&self.outbox)
    }
}

/// What a gateway wants sent.
pub(crate) enum FromGateway {
    Arrival(Arrival),
    Undelivered(WorkerId, u64, bool),
    Withdrawn(u64, u32),
    Part(Part),
}

/// A gateway's way to the scheduler and to nodes: what it says is put down, and sent after.
struct GatewayLinks {
    outbox: Outbox<FromGateway>,
    /// The session with the scheduler.
    up: Up,
}

impl Links for GatewayLinks {
    fn announce(&self, session: Session, arrival: Arrival) -> bool {
        let there = *self.up.lock().expect("no panic holds this lock") == Some(session);
        if there {
            put(&self.outbox, FromGateway::Arrival(arrival));
        }
        there
    }

    fn send_part(&self, part: Part) {
        put(&self.outbox, FromGateway::Part(part));
    }

    fn withdraw(&self, request: u64, model: u32) {
        put(&self.outbox, FromGateway::Withdrawn(request, model));
    }

    fn undelivered(&self, worker: WorkerId, batch: u64, nobody: bool) {
        put(&self.outbox, FromGateway::Undelivered(worker, batch, nobody));
    }

    fn order(&self, _: Order) -> OrderOutcome {
        unreachable!("nobody gives orders here")
    }
}

/// A request of a client.
pub(crate) struct Open {
    pub(crate) entered: Entered,
    pub(crate) model: String,
    pub(crate) at: Time,
}

/// A connection to a node, and who waits for answers on it.
pub(crate) struct Way {
    pub(crate) line: Line,
    pub(crate) waiting: Waiting,
}

/// A session, while there is one.
type Up = Arc<Mutex<Option<Session>>>;

pub(crate) struct GatewayPart {
    pub(crate) end: End,
    pub(crate) gateway: Arc<Gateway>,
    outbox: Outbox<FromGateway>,
    up: Up,
    pub(crate) member: Member,
    pub(crate) ways: BTreeMap<Incarnation, Way>,
    pub(crate) open: BTreeMap<u64, Open>,
    pub(crate) draining: bool,
}

impl GatewayPart {
    pub(crate) fn new(end: End, member: Member, clock: Arc<AtomicU64>) -> GatewayPart {
        let outbox: Outbox<FromGateway> = Outbox::default();
        let up = Up::default();
        let links = GatewayLinks { outbox: outbox.clone(), up: up.clone() };
        let gateway = Arc::new(Gateway::alone(links, Clock::Virtual(clock)));
        let (ways, open) = (BTreeMap::new(), BTreeMap::new());
        GatewayPart { end, gateway, outbox, up, member, ways, open, draining: false }
    }

    /// A client asks.
    pub(crate) fn ask(&mut self, now: Time, model: &str, within: Span) -> Result<u64, ServeError> {
        let call = Call { inputs: [].into(), at: Instant::now(), within, priority: 0 };
        let entered = self.gateway.enter_by_name(model, call)?;
        let count = entered.count;
        self.open.insert(count, Open { entered, model: model.into(), at: now });
        Ok(count)
    }

    pub(crate) fn welcome(&mut self, session: u32) {
        let session = self.gateway.joined(session);
        *self.up.lock().expect("no panic holds this lock") = Some(session);
    }

    pub(crate) fn session_over(&mut self) {
        *self.up.lock().expect("no panic holds this lock") = None;
        self.gateway.session_over();
    }

    /// What is to be sent.
    pub(crate) fn take(&self) -> Vec<FromGateway> {
        take(&self.outbox)
    }

    /// Requests that have been answered.
    pub(crate) fn answered(&mut self) -> Vec<(u64, Open, Outcome)> {
        let mut told = Vec::new();
        for (count, open) in &mut self.open {
            if let Ok(outcome) = open.entered.told.try_recv() {
                told.push((*count, outcome));
            }
        }
        let answered = told.into_iter().map(|(count, outcome)| {
            let open = self.open.remove(&count).expect("it was just seen");
            (count, open, outcome)
        });
        answered.collect()
    }
}
