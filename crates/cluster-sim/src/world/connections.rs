//! Connections: how members find a scheduler, and what travels.

use super::{Event, World};
use crate::message::Message;
use crate::network::{End, Letter, Line};
use crate::parts::Member;
use crate::plan::between;
use crate::{Bug, Who};
use policy::Span;
use rpc::{Term, timing};

impl World<'_> {
    pub(super) fn send(&mut self, line: Line, from: Who, message: Message) {
        let to = 1 - self.network.side(line, from);
        if let Some(at) = self.network.arrival(self.now, line, to, &mut self.delays) {
            self.at(at, Event::Arrive(Letter { line, to, message }));
        }
    }

    pub(super) fn cut(&mut self, line: Line) {
        if !std::mem::replace(&mut self.network.lines[line].open, false) {
            return;
        }
        for side in 0..2 {
            let after = between(&mut self.delays, Span::from_micros(10), Span::from_millis(20));
            self.at(self.now + after, Event::Closed(line, side));
        }
    }

    pub(super) fn closed(&mut self, line: Line, side: usize) {
        let end = self.network.lines[line].ends[side];
        if self.end_of(end.who) != Some(end) {
            return;
        }
        match end.who {
            Who::Scheduler(index) => {
                let (now, bug) = (self.now, self.bug);
                let Some(part) = self.leading_mut(index) else { return };
                let Some(session) = part.session(line) else { return };
                part.lines.remove(&session);
                if part.nodes.contains(&session) {
                    part.nodes.retain(|other| *other != session);
                    if bug != Some(Bug::PhantomWorker) {
                        part.driver.on_node_lost(now, session);
                    }
                } else if bug != Some(Bug::DeadSession) {
                    part.driver.on_gateway_lost(now, session);
                }
                self.after_scheduler(index);
            }
            Who::Gateway(index) => {
                let Some(part) = &mut self.gateways[index] else { return };
                if part.member.line == Some(line) {
                    let wait = part.member.left(self.now);
                    part.session_over();
                    if self.bug == Some(Bug::ForgottenModels) {
                        part.gateway.publish(rpc::Catalog { known: true, ..rpc::Catalog::default() });
                    }
                    self.at(self.now + wait, Event::Join(end.who, end.life));
                } else if let Some(node) = part.ways.iter().find(|(_, way)| way.line == line).map(|(node, _)| *node) {
                    let way = part.ways.remove(&node).expect("it was just seen");
                    way.waiting.fail();
                }
                self.after_gateway(index);
            }
            Who::Node(index) => {
                let Some(part) = &mut self.nodes[index] else { return };
                if part.member.line == Some(line) {
                    let wait = part.member.left(self.now);
                    self.at(self.now + wait, Event::Join(end.who, end.life));
                }
                self.after_node(end);
            }
        }
    }

    pub(super) fn member(&mut self, end: End) -> Option<&mut Member> {
        match end.who {
            Who::Gateway(index) => {
                self.gateways[index].as_mut().filter(|part| part.end == end).map(|part| &mut part.member)
            }
            Who::Node(index) => self.nodes[index].as_mut().filter(|part| part.end == end).map(|part| &mut part.member),
            Who::Scheduler(_) => None,
        }
    }

    pub(super) fn join(&mut self, who: Who, life: u64) {
        let (end, now, bug) = (End { who, life }, self.now, self.bug);
        let Some(member) = self.member(end).filter(|member| member.line.is_none()) else { return };
        let attempt = member.search.attempt();
        let term = if bug == Some(Bug::AnyLeader) { Term::default() } else { member.fence.highest() };
        let Some(scheduler) = self.end_of(Who::Scheduler(attempt.address)) else {
            // Nobody listens there.
            let wait = self.member(end).expect("it was just seen").left(now);
            let answered = between(&mut self.delays, Span::from_micros(20), Span::from_micros(500));
            return self.at(now + answered + wait, Event::Join(who, life));
        };
        let line = self.network.connect(now, end, scheduler);
        self.member(end).expect("it was just seen").line = Some(line);
        let message = match who {
            Who::Node(index) => Message::Hello(self.nodes[index].as_ref().expect("it is there").hello(index), term),
            _ => Message::JoinGateway(term),
        };
        self.send(line, who, message);
        self.at(now + attempt.limit, Event::JoinLimit(who, line));
        self.at(now + timing::HEARTBEAT, Event::Heartbeat(who, line));
    }

    pub(super) fn join_limit(&mut self, who: Who, line: Line) {
        let end = self.network.lines[line].ends[0];
        let waits = self.member(end).is_some_and(|member| member.line == Some(line) && member.joined.is_none());
        if waits && end.who == who {
            self.cut(line);
        }
    }

    pub(super) fn heartbeat(&mut self, who: Who, line: Line) {
        let end = self.network.lines[line].ends[0];
        if !self.network.lines[line].open || self.end_of(who) != Some(end) {
            return;
        }
        let leaves = self.member(end).filter(|member| member.line == Some(line)).is_some_and(Member::beat);
        if leaves {
            self.say(|| format!("{who:?} leaves its scheduler"));
            return self.cut(line);
        }
        let message = match who {
            Who::Node(_) => Message::News(rpc::FromNode::Heartbeat),
            _ => Message::GatewayHeartbeat,
        };
        self.send(line, who, message);
        self.at(self.now + timing::HEARTBEAT, Event::Heartbeat(who, line));
    }

    pub(super) fn arrive(&mut self, letter: Letter) {
        let Letter { line, to, message } = letter;
        self.network.lines[line].under_way[to] -= 1;
        let end = self.network.lines[line].ends[to];
        if !self.network.lines[line].open || self.end_of(end.who) != Some(end) {
            return;
        }
        if let Some(member) = self.member(end).filter(|member| member.line == Some(line)) {
            member.unheard = Span::ZERO;
        }
        match end.who {
            Who::Scheduler(index) => self.arrive_at_scheduler(index, line, message),
            Who::Gateway(index) => self.arrive_at_gateway(index, line, message),
            Who::Node(_) => self.arrive_at_node(end, line, message),
        }
    }
}
