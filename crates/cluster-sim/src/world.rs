//! The run: events in the order of their times, messages between parts, faults, and what must hold.

use crate::message::Message;
use crate::network::{End, Letter, Line, Network};
use crate::node::{NodePart, NodeTimer, NodeWant};
use crate::parts::{FromGateway, GatewayPart, Open, SchedulerPart, ToSession, Way};
use crate::plan::{Random, START, between, random};
use crate::{Bug, Fault, Plan, Who};
use config::ModelSpec;
use gateway::ServeError;
use gateway::core::Outcome;
use gateway::remote::{Waiting, give_back};
use policy::{Span, Time};
use rand::RngExt;
use rpc::{Failure, NotFound, Part, Refusal, ToGateway, timing};
use scheduler::Arrived;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long after everything is back requests must be served again.
const BACK: Span = Span::from_secs(2);
/// No run lasts longer: whatever hangs, ends by itself before.
const LONGEST: Span = Span::from_secs(120);

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that happened.
    pub events: u64,
    /// Requests that were accepted or refused at the door.
    pub asked: u64,
    /// Of which a worker answered.
    pub served: u64,
    /// Of which were refused.
    pub refused: u64,
    /// Of which their gateway gave up.
    pub expired: u64,
    /// Of which went with a gateway that was killed.
    pub excused: u64,
    /// A number that differs between runs that differ in anything.
    pub digest: u64,
}

/// What did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, since the start of the run.
    pub at: Time,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.6} s: {}", self.at.nanos() as f64 / 1e9, self.what)
    }
}

/// Runs a seed. With a `bug`, something is done wrong; `trace` is told all that happens.
pub fn run(seed: u64, bug: Option<Bug>, trace: Option<&mut dyn FnMut(Time, String)>) -> Result<Report, Violation> {
    let mut world = World::new(seed, bug, trace);
    world.play()
}

pub(crate) enum Event {
    Start(Who),
    Arrive(Letter),
    /// A connection broke, and this end of it notices.
    Closed(Line, usize),
    /// Joins the scheduler.
    Join(Who, u64),
    /// An attempt to join has taken long enough.
    JoinLimit(Who, Line),
    Heartbeat(Who, Line),
    SchedulerTimer(u64),
    NodeTimer(End, NodeTimer),
    Client(usize),
    Expire(End, u64),
    Fault(Fault),
    /// Has ended by now.
    Ended(End),
    /// A node that leaves has waited long enough.
    Leave(End),
    Probe,
    Over,
}

pub(crate) struct World<'a> {
    pub(crate) bug: Option<Bug>,
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    clock: Arc<AtomicU64>,
    sequence: u64,
    due: BinaryHeap<Reverse<(Time, u64)>>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) network: Network,
    delays: Random,
    random: Random,
    pub(crate) scheduler: Option<SchedulerPart>,
    pub(crate) gateways: Vec<Option<GatewayPart>>,
    pub(crate) nodes: Vec<Option<NodePart>>,
    pub(crate) lives: u64,
    /// Until when parts do nothing, and since when.
    pub(crate) hung: BTreeMap<Who, (Time, Time)>,
    /// Nodes that were told to end.
    leaving: Vec<End>,
    /// How long after its end a part that was told to end is started again.
    back: BTreeMap<Who, Span>,
    pub(crate) faults_left: usize,
    probing: bool,
    probes: Vec<(End, u64)>,
    /// Whether only the scheduler was touched.
    pub(crate) calm_nodes: bool,
    report: Report,
    violation: Option<Violation>,
    trace: Option<&'a mut dyn FnMut(Time, String)>,
}

impl<'a> World<'a> {
    fn new(seed: u64, bug: Option<Bug>, trace: Option<&'a mut dyn FnMut(Time, String)>) -> World<'a> {
        let plan = Plan::new(seed);
        let mut world = World {
            bug,
            now: Time::ZERO,
            clock: Arc::default(),
            sequence: 0,
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            network: Network::default(),
            delays: random(seed, 2),
            random: random(seed, 3),
            scheduler: None,
            gateways: (0..plan.gateways).map(|_| None).collect(),
            nodes: (0..plan.nodes).map(|_| None).collect(),
            lives: 0,
            hung: BTreeMap::new(),
            leaving: Vec::new(),
            back: BTreeMap::new(),
            faults_left: plan.faults.len(),
            probing: false,
            probes: Vec::new(),
            calm_nodes: true,
            report: Report::default(),
            violation: None,
            trace,
            plan,
        };
        let parts = [Who::Scheduler].into_iter();
        let parts =
            parts.chain((0..world.gateways.len()).map(Who::Gateway)).chain((0..world.nodes.len()).map(Who::Node));
        for who in parts.collect::<Vec<_>>() {
            let at = Time::ZERO + between(&mut world.random, Span::ZERO, Span::from_millis(300));
            world.at(at, Event::Start(who));
        }
        let gap = Span::from_nanos(1_000_000_000 / world.plan.rate);
        let mut at = START;
        while at < world.plan.until {
            at += between(&mut world.random, Span::ZERO, gap * 2);
            let gateway = world.random.random_range(0..world.gateways.len());
            world.at(at, Event::Client(gateway));
        }
        for (at, fault) in world.plan.faults.clone() {
            world.at(at, Event::Fault(fault));
        }
        let until = world.plan.until;
        world.at(until, Event::Probe);
        world
    }

    fn models(&self) -> Vec<ModelSpec> {
        let spec = |(index, workers): (usize, &usize)| {
            let text = format!(
                r#"{{"name": "model-{index}", "kind": "onnx", "path": "/x", "max_batch": 8, "workers": {workers}, "slo": "400ms"}}"#
            );
            serde_json::from_str(&text).expect("it is a deployment")
        };
        let mut models: Vec<ModelSpec> = self.plan.workers.iter().enumerate().map(spec).collect();
        // Schedulers number models as they come, and the next one may see them in another order.
        if self.lives % 2 == 1 {
            models.reverse();
        }
        models
    }

    fn at(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.due.push(Reverse((at.max(self.now), self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace(self.now, what());
        }
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.say(|| format!("VIOLATION: {what}"));
        let at = self.now;
        self.violation.get_or_insert(Violation { at, what });
    }

    fn play(&mut self) -> Result<Report, Violation> {
        while let Some(Reverse((at, sequence))) = self.due.pop() {
            assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.clock.store(at.nanos(), Relaxed);
            let Some(event) = self.events.remove(&sequence) else { continue };
            // Who does nothing does it later, in the same order.
            if let Some(who) = self.concerns(&event)
                && let Some((until, _)) = self.hung.get(&who).filter(|(until, _)| *until > self.now)
            {
                self.due.push(Reverse((*until, sequence)));
                self.events.insert(sequence, event);
                continue;
            }
            if matches!(event, Event::Over) {
                self.check_quiet();
                return self.outcome();
            }
            self.report.events += 1;
            self.report.digest = (self.report.digest ^ at.nanos() ^ sequence).wrapping_mul(0x100_0000_01b3);
            self.happen(event);
            if at > Time::ZERO + LONGEST {
                self.violated("something goes on for ever".into());
            }
            if self.violation.is_some() {
                return self.outcome();
            }
        }
        self.outcome()
    }

    fn outcome(&mut self) -> Result<Report, Violation> {
        match self.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(self.report.clone()),
        }
    }

    /// The part that an event is for.
    fn concerns(&self, event: &Event) -> Option<Who> {
        match event {
            Event::Arrive(letter) => Some(self.network.lines[letter.line].ends[letter.to].who),
            Event::Closed(line, side) => Some(self.network.lines[*line].ends[*side].who),
            Event::Join(who, _) | Event::JoinLimit(who, _) | Event::Heartbeat(who, _) => Some(*who),
            Event::SchedulerTimer(_) => Some(Who::Scheduler),
            Event::NodeTimer(end, _) | Event::Expire(end, _) | Event::Leave(end) => Some(end.who),
            Event::Client(gateway) => Some(Who::Gateway(*gateway)),
            Event::Start(_) | Event::Fault(_) | Event::Ended(_) | Event::Probe | Event::Over => None,
        }
    }

    fn is_hung(&self, who: Who) -> bool {
        self.hung.get(&who).is_some_and(|(until, _)| *until > self.now)
    }

    fn end_of(&self, who: Who) -> Option<End> {
        match who {
            Who::Scheduler => self.scheduler.as_ref().map(|part| part.end),
            Who::Gateway(index) => self.gateways[index].as_ref().map(|part| part.end),
            Who::Node(index) => self.nodes[index].as_ref().map(|part| part.end),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(who) => self.start(who),
            Event::Arrive(letter) => self.arrive(letter),
            Event::Closed(line, side) => self.closed(line, side),
            Event::Join(who, life) => self.join(who, life),
            Event::JoinLimit(who, line) => self.join_limit(who, line),
            Event::Heartbeat(who, line) => self.heartbeat(who, line),
            Event::SchedulerTimer(life) => self.scheduler_timer(life),
            Event::NodeTimer(end, timer) => {
                let now = self.now;
                if let Some(node) = self.node(end) {
                    node.on_timer(now, timer);
                    self.after_node(end);
                }
            }
            Event::Client(gateway) => self.client(gateway),
            Event::Expire(end, count) => self.expire(end, count),
            Event::Fault(fault) => self.fault(fault),
            Event::Ended(end) => {
                if self.end_of(end.who) == Some(end) {
                    self.violated(format!("{:?} was told to end and has not after {}", end.who, timing::DRAIN));
                }
            }
            Event::Leave(end) => {
                if self.end_of(end.who) == Some(end) {
                    self.end_part(end.who);
                }
            }
            Event::Probe => self.probe(),
            Event::Over => {}
        }
    }

    fn node(&mut self, end: End) -> Option<&mut NodePart> {
        let Who::Node(index) = end.who else { return None };
        self.nodes[index].as_mut().filter(|part| part.end == end)
    }

    fn start(&mut self, who: Who) {
        if self.end_of(who).is_some() {
            return;
        }
        self.lives += 1;
        let end = End { who, life: self.lives };
        self.say(|| format!("{who:?} starts"));
        self.hung.remove(&who);
        match who {
            Who::Scheduler => {
                self.scheduler = Some(SchedulerPart::new(self.now, end, self.models()));
                self.after_scheduler();
            }
            Who::Gateway(index) => {
                self.gateways[index] = Some(GatewayPart::new(end, self.clock.clone()));
                self.at(self.now, Event::Join(who, end.life));
            }
            Who::Node(index) => {
                let start = between(&mut self.random, Span::from_millis(100), Span::from_millis(600));
                self.nodes[index] = Some(NodePart::new(end, start, self.bug));
                self.at(self.now, Event::Join(who, end.life));
            }
        }
    }

    // Connections.

    fn send(&mut self, line: Line, from: Who, message: Message) {
        let to = 1 - self.network.side(line, from);
        if let Some(at) = self.network.arrival(self.now, line, to, &mut self.delays) {
            self.at(at, Event::Arrive(Letter { line, to, message }));
        }
    }

    fn cut(&mut self, line: Line) {
        if !std::mem::replace(&mut self.network.lines[line].open, false) {
            return;
        }
        for side in 0..2 {
            let after = between(&mut self.delays, Span::from_micros(10), Span::from_millis(20));
            self.at(self.now + after, Event::Closed(line, side));
        }
    }

    fn closed(&mut self, line: Line, side: usize) {
        let end = self.network.lines[line].ends[side];
        if self.end_of(end.who) != Some(end) {
            return;
        }
        match end.who {
            Who::Scheduler => {
                let Some(part) = &mut self.scheduler else { return };
                let Some(session) = part.session(line) else { return };
                part.lines.remove(&session);
                if part.nodes.contains(&session) {
                    part.nodes.retain(|other| *other != session);
                    if self.bug != Some(Bug::PhantomWorker) {
                        part.driver.on_node_lost(self.now, session);
                    }
                } else if self.bug != Some(Bug::DeadSession) {
                    part.driver.on_gateway_lost(self.now, session);
                }
                self.after_scheduler();
            }
            Who::Gateway(index) => {
                let Some(part) = &mut self.gateways[index] else { return };
                if part.line == Some(line) {
                    part.session_over();
                    if self.bug == Some(Bug::ForgottenModels) {
                        part.gateway.publish(rpc::Catalog { entries: Vec::new(), known: true });
                    }
                    self.at(self.now + timing::REJOIN, Event::Join(end.who, end.life));
                } else if let Some(node) = part.ways.iter().find(|(_, way)| way.line == line).map(|(node, _)| *node) {
                    let way = part.ways.remove(&node).expect("it was just seen");
                    way.waiting.fail();
                }
                self.after_gateway(index);
            }
            Who::Node(index) => {
                let Some(part) = &mut self.nodes[index] else { return };
                if part.line == Some(line) {
                    (part.line, part.accepted) = (None, false);
                    self.at(self.now + timing::REJOIN, Event::Join(end.who, end.life));
                }
                self.after_node(end);
            }
        }
    }

    fn join(&mut self, who: Who, life: u64) {
        let end = End { who, life };
        if self.end_of(who) != Some(end) {
            return;
        }
        let Some(scheduler) = self.scheduler.as_ref().map(|part| part.end) else {
            return self.at(self.now + timing::REJOIN, Event::Join(who, life));
        };
        let line = self.network.connect(self.now, end, scheduler);
        match who {
            Who::Gateway(index) => {
                self.gateways[index].as_mut().expect("it is there").line = Some(line);
                self.send(line, who, Message::JoinGateway);
            }
            Who::Node(index) => {
                let part = self.nodes[index].as_mut().expect("it is there");
                part.line = Some(line);
                let hello = part.hello(index);
                self.send(line, who, Message::Hello(hello));
            }
            Who::Scheduler => {}
        }
        self.at(self.now + timing::CONNECT, Event::JoinLimit(who, line));
        self.at(self.now + timing::HEARTBEAT, Event::Heartbeat(who, line));
    }

    fn join_limit(&mut self, who: Who, line: Line) {
        let waits = match who {
            Who::Gateway(index) => self.gateways[index].as_ref().is_some_and(|part| {
                part.line == Some(line) && !part.gateway.has_scheduler() && part.gateway.catalog().entries.is_empty()
            }),
            Who::Node(index) => {
                self.nodes[index].as_ref().is_some_and(|part| part.line == Some(line) && !part.accepted)
            }
            Who::Scheduler => false,
        };
        if waits {
            self.cut(line);
        }
    }

    fn heartbeat(&mut self, who: Who, line: Line) {
        if !self.network.lines[line].open || self.end_of(who) != Some(self.network.lines[line].ends[0]) {
            return;
        }
        let message = match who {
            Who::Node(_) => Message::News(rpc::FromNode::Heartbeat),
            _ => Message::GatewayHeartbeat,
        };
        self.send(line, who, message);
        self.at(self.now + timing::HEARTBEAT, Event::Heartbeat(who, line));
    }

    fn arrive(&mut self, letter: Letter) {
        let Letter { line, to, message } = letter;
        self.network.lines[line].under_way[to] -= 1;
        let end = self.network.lines[line].ends[to];
        if !self.network.lines[line].open || self.end_of(end.who) != Some(end) {
            return;
        }
        match end.who {
            Who::Scheduler => self.arrive_at_scheduler(line, message),
            Who::Gateway(index) => self.arrive_at_gateway(index, line, message),
            Who::Node(_) => self.arrive_at_node(end, line, message),
        }
    }

    // The scheduler.

    fn arrive_at_scheduler(&mut self, line: Line, message: Message) {
        let now = self.now;
        let Some(part) = &mut self.scheduler else { return };
        let session = part.session(line);
        match (message, session) {
            (Message::JoinGateway, _) => part.welcome_gateway(line),
            (Message::Hello(hello), _) => part.welcome_node(now, line, hello),
            (Message::Arrival(arrival), Some(_)) => part.driver.on_arrival(now, arrival),
            (Message::Undelivered(worker, batch, nobody), Some(_)) => {
                part.driver.on_undelivered(now, worker, batch, nobody)
            }
            (Message::GatewayHeartbeat, Some(session)) => part.driver.hear_gateway(session),
            (Message::News(news), Some(session)) => part.driver.on_node(now, session, news),
            _ => {}
        }
        self.after_scheduler();
    }

    fn scheduler_timer(&mut self, life: u64) {
        let (now, bug) = (self.now, self.bug);
        let Some(part) = self.scheduler.as_mut().filter(|part| part.end.life == life) else { return };
        part.timer = Time::NEVER;
        if bug == Some(Bug::EndlessLease) {
            for session in part.lines.keys() {
                part.driver.hear_gateway(*session);
                part.driver.on_node(now, *session, rpc::FromNode::Heartbeat);
            }
        }
        part.driver.on_timer(now);
        self.after_scheduler();
    }

    fn after_scheduler(&mut self) {
        let Some(part) = &mut self.scheduler else { return };
        part.driver.settle(self.now);
        let wants = part.take();
        let (next, life) = (part.driver.next_timer(), part.end.life);
        if next < part.timer {
            part.timer = next;
            self.at(next, Event::SchedulerTimer(life));
        }
        for (session, want) in wants {
            let Some(line) = self.scheduler.as_ref().and_then(|part| part.lines.get(&session)).copied() else {
                continue;
            };
            match want {
                ToSession::Send(message) => {
                    if let Message::Decision(ToGateway::Run(grant)) = &message {
                        let (worker, batch, requests) = (grant.worker.number(), grant.batch, grant.requests.clone());
                        self.say(|| format!("grants batch {batch} on worker {worker}: {requests:x?}"));
                    }
                    self.send(line, Who::Scheduler, message);
                }
                ToSession::Close => {
                    if let Some(part) = &mut self.scheduler {
                        part.lines.remove(&session);
                        part.nodes.retain(|other| *other != session);
                    }
                    self.cut(line);
                }
            }
        }
    }

    // Gateways.

    fn arrive_at_gateway(&mut self, index: usize, line: Line, message: Message) {
        let bug = self.bug;
        let Some(part) = &mut self.gateways[index] else { return };
        if part.line == Some(line) {
            part.gateway.heard();
        }
        match message {
            Message::Welcome(session) => {
                part.welcome(session);
                if bug == Some(Bug::OldNumbers) {
                    let catalog = part.gateway.catalog();
                    part.gateway.publish((*catalog).clone());
                }
            }
            Message::Catalog(catalog) => part.gateway.publish(catalog),
            Message::Decision(decision) => part.gateway.tell(decision),
            Message::Answer(batch, request, answer) => {
                let lost = matches!(answer, Err(Failure::NotRun(_))) && bug == Some(Bug::LostReturns);
                if let Some(way) = part.ways.values().find(|way| way.line == line)
                    && !lost
                {
                    way.waiting.answer(batch, request, answer);
                }
            }
            _ => {}
        }
        self.after_gateway(index);
    }

    fn after_gateway(&mut self, index: usize) {
        let who = Who::Gateway(index);
        loop {
            let Some(part) = &mut self.gateways[index] else { return };
            let wants = part.take();
            if wants.is_empty() {
                break;
            }
            for want in wants {
                let Some(part) = &self.gateways[index] else { return };
                let line = part.line;
                match (want, line) {
                    (FromGateway::Arrival(arrival), Some(line)) => {
                        let rpc::Arrival { request, model, within, priority, .. } = arrival;
                        let at = part.open.get(&rpc::count_of(request)).map_or(self.now, |open| open.at);
                        self.send(line, who, Message::Arrival(Arrived { request, model, at, within, priority }));
                    }
                    (FromGateway::Undelivered(_, _, true), _) if self.bug == Some(Bug::SilentAbsence) => {}
                    (FromGateway::Undelivered(worker, batch, nobody), Some(line)) => {
                        self.send(line, who, Message::Undelivered(worker, batch, nobody));
                    }
                    (FromGateway::Part(part), _) => self.carry(index, part),
                    (_, None) => {}
                }
            }
        }
        self.look_at_answers(index);
        let Some(part) = &self.gateways[index] else { return };
        if part.draining && part.open.is_empty() {
            self.end_part(who);
        }
    }

    /// Carries a part to its node.
    fn carry(&mut self, index: usize, part: Part) {
        let mut place: usize = part.address.parse().expect("addresses are numbers here");
        if self.bug == Some(Bug::WrongNode) && self.scheduler.as_ref().is_some_and(|part| part.end.life > 6) {
            place = (place + 1) % self.nodes.len();
        }
        let node = part.node;
        let Some(gateway) = &self.gateways[index] else { return };
        let from = gateway.end;
        let known = gateway.ways.get(&node).map(|way| way.line);
        let line = match (known, self.end_of(Who::Node(place))) {
            (Some(line), _) => line,
            (None, None) => {
                if self.bug != Some(Bug::LostReturns) {
                    give_back(part);
                }
                return;
            }
            (None, Some(to)) => {
                let line = self.network.connect(self.now, from, to);
                let way = Way { line, waiting: Waiting::default() };
                self.gateways[index].as_mut().expect("it is there").ways.insert(node, way);
                self.send(line, from.who, Message::Open(node));
                line
            }
        };
        let way = self.gateways[index].as_mut().and_then(|gateway| gateway.ways.get_mut(&node)).expect("it is there");
        let part = way.waiting.keep(part);
        self.send(line, from.who, Message::Part(part));
    }

    fn client(&mut self, index: usize) {
        let model = format!("model-{}", self.random.random_range(0..self.plan.workers.len()));
        let within = between(&mut self.random, Span::from_millis(60), Span::from_millis(900));
        self.ask(index, &model, within);
    }

    fn ask(&mut self, index: usize, model: &str, within: Span) -> Option<u64> {
        let now = self.now;
        let part = self.gateways[index].as_mut().filter(|part| !part.draining)?;
        self.report.asked += 1;
        let end = part.end;
        let asked = part.ask(now, model, within);
        match asked {
            Ok(count) => {
                let by = self.gateways[index].as_ref().expect("it is there").open[&count].entered.answer_by;
                self.say(|| format!("gateway {index} accepts request {count} for {model}, within {within}"));
                if self.bug != Some(Bug::NoDeadline) {
                    self.at(by, Event::Expire(end, count));
                }
                self.after_gateway(index);
                Some(count)
            }
            Err(ServeError::NotFound(NotFound::Model(name))) => {
                self.violated(format!("gateway {index} says that it never heard of {name}"));
                None
            }
            Err(refused) => {
                self.report.refused += 1;
                self.say(|| format!("gateway {index} refuses a request for {model}: {refused}"));
                if self.plan.faults.is_empty() {
                    self.violated(format!("refused with nothing wrong: {refused}"));
                }
                None
            }
        }
    }

    pub(crate) fn look_at_answers(&mut self, index: usize) {
        let Some(part) = &mut self.gateways[index] else { return };
        let end = part.end;
        for (count, open, outcome) in part.answered() {
            self.answered(end, count, &open, &outcome);
        }
    }

    fn answered(&mut self, end: End, count: u64, open: &Open, outcome: &Outcome) {
        // A gateway that slept answers when it wakes.
        let slept = self.hung.get(&end.who).is_some_and(|(until, _)| *until >= open.entered.answer_by);
        if self.now > open.entered.answer_by && !slept {
            self.violated(format!("request {count} was answered {} late", self.now - open.entered.answer_by));
        }
        let is_probe = self.probes.contains(&(end, count));
        match outcome {
            Outcome::Done(Ok(outputs)) => {
                self.report.served += 1;
                self.say(|| format!("request {count} is served"));
                let by = outputs.tensors.first().map(|tensor| tensor.name.to_string()).unwrap_or_default();
                if by != open.model {
                    self.violated(format!("request {count} for {} was run by {by}", open.model));
                }
            }
            Outcome::Done(Err(failure)) => self.violated(format!("request {count} failed: {failure}")),
            Outcome::Refused(refusal) => {
                self.report.refused += 1;
                self.say(|| format!("request {count} is refused: {refusal}"));
                // A deadline may be too short for the moment.
                let long = open.entered.answer_by - open.at > Span::from_millis(400);
                if is_probe || (self.plan.faults.is_empty() && long) {
                    self.violated(format!("request {count} was refused with nothing wrong: {refusal}"));
                }
            }
        }
    }

    fn expire(&mut self, end: End, count: u64) {
        let Who::Gateway(index) = end.who else { return };
        self.look_at_answers(index);
        let Some(part) = self.gateways[index].as_mut().filter(|part| part.end == end) else { return };
        if !part.open.contains_key(&count) {
            return;
        }
        let place = part.gateway.place(count);
        part.gateway.expire();
        let Some(mut open) = part.open.remove(&count) else { return };
        if !matches!(open.entered.told.try_recv(), Ok(Outcome::Refused(Refusal::Expired { .. }))) {
            return self.violated(format!("request {count} is neither answered nor in flight"));
        }
        let long = open.entered.answer_by - open.at > Span::from_millis(400);
        self.report.expired += 1;
        self.say(|| format!("request {count} is given up: {place:?}"));
        if let Some((id, place)) = place {
            self.check_owner(index, id, place);
        }
        if self.probes.contains(&(end, count)) || (self.plan.faults.is_empty() && long) {
            self.violated(format!("request {count} was not answered in time with nothing wrong: {place:?}"));
        }
        self.after_gateway(index);
    }

    // Nodes.

    fn arrive_at_node(&mut self, end: End, line: Line, message: Message) {
        let (now, asks) = (self.now, self.bug != Some(Bug::WrongNode));
        let Some(part) = self.node(end) else { return };
        match message {
            Message::Accepted => part.accepted = true,
            Message::Instruction(instruction) => part.instruct(now, instruction),
            Message::Open(incarnation) if asks && incarnation != part.incarnation => {
                return self.cut(line);
            }
            Message::Part(sent) => part.part(now, line, sent),
            _ => {}
        }
        self.after_node(end);
    }

    fn after_node(&mut self, end: End) {
        let Some(part) = self.node(end) else { return };
        let (wants, upstream) = (std::mem::take(&mut part.wants), part.line);
        let gone = part.roster.is_empty() || upstream.is_none();
        for want in wants {
            match want {
                NodeWant::News(news) => {
                    if let Some(line) = upstream {
                        self.send(line, end.who, Message::News(news));
                    }
                }
                NodeWant::Answer(line, batch, request, answer) => {
                    self.send(line, end.who, Message::Answer(batch, request, answer));
                }
                NodeWant::Timer(at, timer) => self.at(at, Event::NodeTimer(end, timer)),
            }
        }
        if gone && self.leaving.contains(&end) {
            self.end_part(end.who);
        }
    }

    // Faults.

    fn fault(&mut self, fault: Fault) {
        self.say(|| format!("FAULT {fault:?}"));
        self.faults_left -= 1;
        if !matches!(
            fault,
            Fault::Kill(Who::Scheduler, _) | Fault::Term(Who::Scheduler, _) | Fault::Stop(Who::Scheduler, _)
        ) {
            self.calm_nodes = false;
        }
        let (now, bug) = (self.now, self.bug);
        match fault {
            Fault::Kill(who, back) => {
                if self.end_of(who).is_some() {
                    self.back.insert(who, back);
                    self.end_part(who);
                }
            }
            Fault::Term(who, back) => {
                let Some(end) = self.end_of(who) else { return };
                self.back.insert(who, back);
                // One that does nothing is told when it wakes.
                let since = self.hung.get(&who).map_or(now, |(until, _)| now.max(*until));
                self.at(since + timing::DRAIN + Span::from_millis(1), Event::Ended(end));
                match who {
                    Who::Scheduler if bug == Some(Bug::DeafScheduler) => {}
                    Who::Scheduler => self.end_part(who),
                    Who::Gateway(index) => {
                        self.gateways[index].as_mut().expect("it is there").draining = true;
                        if !self.is_hung(who) {
                            self.after_gateway(index);
                        }
                    }
                    Who::Node(index) => {
                        self.leaving.push(end);
                        self.nodes[index].as_mut().expect("it is there").leave();
                        self.at(since + timing::DRAIN, Event::Leave(end));
                        if !self.is_hung(who) {
                            self.after_node(end);
                        }
                    }
                }
            }
            Fault::Stop(who, length) => {
                if self.end_of(who).is_some() {
                    let since = self.hung.get(&who).filter(|(until, _)| *until > now).map_or(now, |(_, since)| *since);
                    let until = self.hung.get(&who).map_or(now, |(until, _)| *until).max(now + length);
                    self.hung.insert(who, (until, since));
                }
            }
            Fault::Break(who, pick) => {
                if let Some(line) = self.pick_line(who, pick) {
                    self.cut(line);
                }
            }
            Fault::Stall(who, pick, length) => {
                if let Some(line) = self.pick_line(who, pick) {
                    self.network.stall(line, now + length);
                }
            }
            Fault::Worker(index, pick) => {
                if let Some(part) = &mut self.nodes[index] {
                    part.kill_worker(now, pick);
                    let end = part.end;
                    self.after_node(end);
                }
            }
            Fault::Slow(index, factor, length) => {
                if let Some(part) = &mut self.nodes[index] {
                    part.slow = (factor, now + length);
                }
            }
        }
    }

    fn pick_line(&self, who: Who, pick: u32) -> Option<Line> {
        let lines = self.network.of(self.end_of(who)?);
        lines.get(pick as usize % lines.len().max(1)).copied()
    }

    /// A part is there no more.
    fn end_part(&mut self, who: Who) {
        let Some(end) = self.end_of(who) else { return };
        self.say(|| format!("{who:?} ends"));
        for line in self.network.of(end) {
            self.cut(line);
        }
        match who {
            Who::Scheduler => self.scheduler = None,
            Who::Gateway(index) => {
                let part = self.gateways[index].take().expect("it is there");
                self.report.excused += part.open.len() as u64;
            }
            Who::Node(index) => self.nodes[index] = None,
        }
        self.leaving.retain(|other| *other != end);
        let back = self.back.remove(&who).unwrap_or(Span::from_millis(1));
        self.at(self.now + back, Event::Start(who));
    }

    // The end.

    /// Everything is back: asks every model through every gateway, and then lets it be quiet.
    fn probe(&mut self) {
        let all_there = self.scheduler.is_some()
            && self.gateways.iter().all(Option::is_some)
            && self.nodes.iter().all(Option::is_some);
        let disturbed = self.faults_left > 0
            || !all_there
            || !self.leaving.is_empty()
            || self.gateways.iter().flatten().any(|part| part.draining)
            || self.hung.values().any(|(until, _)| *until > self.now)
            || self.nodes.iter().flatten().any(|part| part.slow.1 > self.now);
        if disturbed {
            self.probing = false;
            return self.at(self.now + Span::from_millis(20), Event::Probe);
        }
        if !std::mem::replace(&mut self.probing, true) {
            return self.at(self.now + BACK, Event::Probe);
        }
        self.say(|| "probes".into());
        self.check_workers(false);
        for index in 0..self.gateways.len() {
            for model in 0..self.plan.workers.len() {
                let end = self.gateways[index].as_ref().expect("it is there").end;
                match self.ask(index, &format!("model-{model}"), Span::from_millis(400)) {
                    Some(count) => self.probes.push((end, count)),
                    None => self.violated(format!(
                        "gateway {index} refuses a request for model-{model} {BACK} after all is back"
                    )),
                }
            }
        }
        self.at(self.now + Span::from_secs(2), Event::Over);
    }
}
