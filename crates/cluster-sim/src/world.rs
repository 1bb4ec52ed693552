//! The run: events in the order of their times, messages between parts, faults, and what must hold.

mod leading;
mod connections;
mod gateways;
mod faults;

use crate::message::Message;
use crate::network::{End, Letter, Line, Network};
use crate::node::{NodePart, NodeTimer, NodeWant};
use crate::parts::{GatewayPart, Member, SchedulerPart};
use crate::plan::{Random, START, between, random};
use crate::{Bug, Fault, Plan, Who};
use config::ModelSpec;
use policy::{Span, Time};
use rand::RngExt;
use rpc::{Term, timing};
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
    /// Of which the clients went away.
    pub withdrawn: u64,
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
    run_plan(Plan::new(seed), seed, bug, trace)
}

/// Runs a plan, with delays drawn from a seed.
pub fn run_plan(
    plan: Plan,
    seed: u64,
    bug: Option<Bug>,
    trace: Option<&mut dyn FnMut(Time, String)>,
) -> Result<Report, Violation> {
    let mut world = World::new(plan, seed, bug, trace);
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
    SchedulerTimer(usize, u64),
    /// A scheduler on standby takes the lead, if nobody has it.
    Lead(End),
    /// A scheduler hears that it leads no more.
    Deposed(End),
    NodeTimer(End, NodeTimer),
    Client(usize),
    Expire(End, u64),
    /// A client goes away.
    Withdraw(End, u64),
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
    /// Schedulers that run, and what they decide with if they lead, for all that they know.
    schedulers: Vec<Option<(End, Option<SchedulerPart>)>>,
    /// Who leads in fact.
    leads: Option<End>,
    terms: u64,
    /// The latest term that a member has followed.
    followed: BTreeMap<Who, (u64, Term)>,
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
    fn new(plan: Plan, seed: u64, bug: Option<Bug>, trace: Option<&'a mut dyn FnMut(Time, String)>) -> World<'a> {
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
            schedulers: (0..plan.schedulers).map(|_| None).collect(),
            leads: None,
            terms: 0,
            followed: BTreeMap::new(),
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
        let parts = (0..world.schedulers.len()).map(Who::Scheduler);
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
        if self.terms % 2 == 1 {
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
            if self.now >= START
                && let Some((left, how)) = self.plan.takeover.as_mut()
            {
                *left = left.wrapping_sub(1);
                if *left == 0
                    && let Some(end) = self.leads
                {
                    let how = *how;
                    self.take_over(end, how);
                }
            }
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
            Event::SchedulerTimer(index, _) => Some(Who::Scheduler(*index)),
            Event::Lead(end) | Event::Deposed(end) => Some(end.who),
            Event::NodeTimer(end, _) | Event::Expire(end, _) | Event::Withdraw(end, _) | Event::Leave(end) => {
                Some(end.who)
            }
            Event::Client(gateway) => Some(Who::Gateway(*gateway)),
            Event::Start(_) | Event::Fault(_) | Event::Ended(_) | Event::Probe | Event::Over => None,
        }
    }

    fn is_hung(&self, who: Who) -> bool {
        self.hung.get(&who).is_some_and(|(until, _)| *until > self.now)
    }

    fn end_of(&self, who: Who) -> Option<End> {
        match who {
            Who::Scheduler(index) => self.schedulers[index].as_ref().map(|(end, _)| *end),
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
            Event::SchedulerTimer(index, life) => self.scheduler_timer(index, life),
            Event::Lead(end) => self.lead(end),
            Event::Deposed(end) => {
                if self.end_of(end.who) == Some(end) {
                    self.end_part(end.who);
                }
            }
            Event::NodeTimer(end, timer) => {
                let now = self.now;
                if let Some(node) = self.node(end) {
                    node.on_timer(now, timer);
                    self.after_node(end);
                }
            }
            Event::Client(gateway) => self.client(gateway),
            Event::Expire(end, count) => self.expire(end, count),
            Event::Withdraw(end, count) => self.withdraw(end, count),
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
            Who::Scheduler(index) => {
                self.schedulers[index] = Some((end, None));
                self.elect();
            }
            Who::Gateway(index) => {
                let member = Member::new(self.now, self.schedulers.len());
                self.gateways[index] = Some(GatewayPart::new(end, member, self.clock.clone()));
                self.at(self.now, Event::Join(who, end.life));
            }
            Who::Node(index) => {
                let start = between(&mut self.random, Span::from_millis(100), Span::from_millis(600));
                let member = Member::new(self.now, self.schedulers.len());
                self.nodes[index] = Some(NodePart::new(end, member, start, self.bug));
                self.at(self.now, Event::Join(who, end.life));
            }
        }
    }

    // Nodes.

    fn arrive_at_node(&mut self, end: End, line: Line, message: Message) {
        let (now, bug, asks) = (self.now, self.bug, self.bug != Some(Bug::WrongNode));
        let Some(part) = self.node(end) else { return };
        let own = part.member.line == Some(line);
        match message {
            Message::Away if own => return self.cut(line),
            Message::Accepted(term) => {
                if !own || !part.member.admits(term, bug) {
                    return self.cut(line);
                }
                self.follows(end, term);
            }
            Message::Instruction(instruction) if own => part.instruct(now, instruction),
            Message::Open(incarnation) if asks && incarnation != part.incarnation => {
                return self.cut(line);
            }
            Message::Part(sent) => {
                let term = Term(sent.term);
                if part.part(now, line, sent)
                    && let Some((life, last)) = self.followed.get(&end.who).copied()
                    && life == end.life
                    && last > term
                {
                    self.violated(format!("{:?} takes a batch of {term:?} and follows {last:?}", end.who));
                }
            }
            _ => {}
        }
        self.after_node(end);
    }

    fn after_node(&mut self, end: End) {
        let Some(part) = self.node(end) else { return };
        let (wants, upstream) = (std::mem::take(&mut part.wants), part.member.line);
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

    // The end.

    /// Everything is back: asks every model through every gateway, and then lets it be quiet.
    fn probe(&mut self) {
        let all_there = self.leader().is_some()
            && self.all_leading().count() == 1
            && self.schedulers.iter().all(Option::is_some)
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
