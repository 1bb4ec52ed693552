//! Gateways and their clients.

use super::{Event, World};
use crate::message::Message;
use crate::network::{End, Line};
use crate::parts::{FromGateway, Open, Way};
use crate::plan::between;
use crate::{Bug, Who};
use gateway::ServeError;
use gateway::core::Outcome;
use gateway::remote::{Waiting, give_back};
use policy::Span;
use rand::RngExt;
use rpc::{Failure, NotFound, Part, Refusal, timing};
use scheduler::Arrived;

impl World<'_> {
    pub(super) fn arrive_at_gateway(&mut self, index: usize, line: Line, message: Message) {
        let bug = self.bug;
        let Some(part) = &mut self.gateways[index] else { return };
        let (end, own) = (part.end, part.member.line == Some(line));
        if own {
            part.gateway.heard();
        }
        match message {
            Message::Away if own => return self.cut(line),
            Message::Welcome(session, term) => {
                if !own || !part.member.admits(term, bug) {
                    return self.cut(line);
                }
                part.welcome(session);
                if bug == Some(Bug::OldNumbers) {
                    let catalog = part.gateway.catalog();
                    part.gateway.publish((*catalog).clone());
                }
                self.follows(end, term);
            }
            Message::Catalog(mut catalog) if own => {
                catalog.settling &= bug != Some(Bug::HastyGateways);
                part.gateway.publish(catalog);
            }
            Message::Decision(decision) if own => part.gateway.tell(decision),
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

    pub(super) fn after_gateway(&mut self, index: usize) {
        let who = Who::Gateway(index);
        loop {
            let Some(part) = &mut self.gateways[index] else { return };
            let wants = part.take();
            if wants.is_empty() {
                break;
            }
            for want in wants {
                let Some(part) = &self.gateways[index] else { return };
                let line = part.member.line;
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
                    (FromGateway::Withdrawn(request, model), Some(line)) => {
                        self.send(line, who, Message::Withdrawn(request, model));
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
    pub(super) fn carry(&mut self, index: usize, part: Part) {
        let mut place: usize = part.address.parse().expect("addresses are numbers here");
        if self.bug == Some(Bug::WrongNode) && self.leader().is_some_and(|part| part.end.life > 7) {
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

    pub(super) fn client(&mut self, index: usize) {
        let model = format!("model-{}", self.random.random_range(0..self.plan.workers.len()));
        let within = between(&mut self.random, Span::from_millis(60), Span::from_millis(900));
        let leaves = self.random.random_range(0..10) == 0;
        let after = between(&mut self.random, Span::ZERO, within);
        if let Some(count) = self.ask(index, &model, within).filter(|_| leaves) {
            let end = self.gateways[index].as_ref().expect("it was just asked").end;
            self.at(self.now + after, Event::Withdraw(end, count));
        }
    }

    /// A client goes away, if it was not answered yet.
    pub(super) fn withdraw(&mut self, end: End, count: u64) {
        let Who::Gateway(index) = end.who else { return };
        self.look_at_answers(index);
        let Some(part) = self.gateways[index].as_mut().filter(|part| part.end == end) else { return };
        if part.open.remove(&count).is_none() {
            return;
        }
        part.gateway.withdraw(count);
        self.report.withdrawn += 1;
        self.say(|| format!("the client of request {count} goes away"));
        self.after_gateway(index);
    }

    pub(super) fn ask(&mut self, index: usize, model: &str, within: Span) -> Option<u64> {
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
                if self.plan.is_calm() || self.plan.is_takeover() {
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

    pub(super) fn answered(&mut self, end: End, count: u64, open: &Open, outcome: &Outcome) {
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
                if is_probe || self.should_be_served(open) {
                    self.violated(format!("request {count} was refused with nothing wrong: {refusal}"));
                }
            }
        }
    }

    /// Whether a request has time enough for all that goes wrong in this run.
    pub(super) fn should_be_served(&self, open: &Open) -> bool {
        let within = open.entered.answer_by - open.at - timing::ANSWER_MARGIN;
        match self.plan.is_takeover() {
            true => within >= Span::from_millis(500),
            false => self.plan.is_calm() && within > Span::from_millis(300),
        }
    }

    pub(super) fn expire(&mut self, end: End, count: u64) {
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
        self.report.expired += 1;
        self.say(|| format!("request {count} is given up: {place:?}"));
        if let Some((id, place)) = place {
            self.check_owner(index, id, place);
        }
        if self.probes.contains(&(end, count)) || self.should_be_served(&open) {
            self.violated(format!("request {count} was not answered in time with nothing wrong: {place:?}"));
        }
        self.after_gateway(index);
    }
}
