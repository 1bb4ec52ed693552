//! Which scheduler leads, and what schedulers do with what arrives.

use super::{Event, World};
use crate::message::Message;
use crate::network::{End, Line};
use crate::parts::{SchedulerPart, ToSession};
use crate::plan::between;
use crate::{Bug, Who};
use policy::{Span, Time};
use rpc::{Term, ToGateway};

impl World<'_> {
    /// Whoever is on standby may take the lead that nobody has.
    pub(super) fn elect(&mut self) {
        if self.leads.is_some() {
            return;
        }
        let waiting = self.schedulers.iter().flatten().filter(|(_, part)| part.is_none()).map(|(end, _)| *end);
        for end in waiting.collect::<Vec<_>>() {
            let after = between(&mut self.delays, Span::from_micros(100), Span::from_millis(20));
            self.at(self.now + after, Event::Lead(end));
        }
    }

    pub(super) fn lead(&mut self, end: End) {
        let Who::Scheduler(index) = end.who else { return };
        let waits = matches!(&self.schedulers[index], Some((own, None)) if *own == end);
        if self.leads.is_some() || !waits {
            return;
        }
        self.leads = Some(end);
        self.terms += 1;
        let term = Term(self.terms);
        self.say(|| format!("{:?} leads, {term:?}", end.who));
        let epoch = if self.bug == Some(Bug::SameEpoch) { 1 } else { end.life as u32 + 1 };
        let part = SchedulerPart::new(self.now, end, term, epoch, self.models());
        self.schedulers[index] = Some((end, Some(part)));
        self.after_scheduler(index);
    }

    /// The scheduler with this number, if it leads for all that it knows.
    pub(crate) fn leading(&self, index: usize) -> Option<&SchedulerPart> {
        self.schedulers[index].as_ref()?.1.as_ref()
    }

    pub(super) fn leading_mut(&mut self, index: usize) -> Option<&mut SchedulerPart> {
        self.schedulers[index].as_mut()?.1.as_mut()
    }

    /// The scheduler that leads in fact.
    pub(crate) fn leader(&self) -> Option<&SchedulerPart> {
        let Who::Scheduler(index) = self.leads?.who else { return None };
        self.leading(index)
    }

    /// All that lead for all that they know.
    pub(crate) fn all_leading(&self) -> impl Iterator<Item = &SchedulerPart> + '_ {
        self.schedulers.iter().flatten().filter_map(|(_, part)| part.as_ref())
    }

    /// A member follows a scheduler of this term.
    pub(super) fn follows(&mut self, end: End, term: Term) {
        let before = self.followed.insert(end.who, (end.life, term));
        if let Some((life, last)) = before
            && life == end.life
            && last > term
        {
            self.violated(format!("{:?} follows {term:?} after {last:?}", end.who));
        }
    }

    pub(super) fn arrive_at_scheduler(&mut self, index: usize, line: Line, message: Message) {
        let now = self.now;
        if let Message::JoinGateway(later) | Message::Hello(_, later) = &message {
            let own = self.leading(index).map(|part| (part.end, part.term));
            match own {
                None => return self.send(line, Who::Scheduler(index), Message::Away),
                Some((end, term)) if *later > term => {
                    self.say(|| format!("{:?} hears of a later leader", end.who));
                    self.back.insert(end.who, Span::from_millis(1));
                    return self.end_part(end.who);
                }
                Some(_) => {}
            }
        }
        let Some(part) = self.leading_mut(index) else { return };
        let session = part.session(line);
        match (message, session) {
            (Message::JoinGateway(_), _) => part.welcome_gateway(line),
            (Message::Hello(hello, _), _) => part.welcome_node(now, line, hello),
            (Message::Arrival(arrival), Some(_)) => part.driver.on_arrival(now, arrival),
            (Message::Undelivered(worker, batch, nobody), Some(_)) => {
                part.driver.on_undelivered(now, worker, batch, nobody)
            }
            (Message::Withdrawn(request, model), Some(_)) => part.driver.on_withdrawn(now, request, model),
            (Message::GatewayHeartbeat, Some(session)) => part.driver.hear_gateway(session),
            (Message::News(news), Some(session)) => part.driver.on_node(now, session, news),
            _ => {}
        }
        self.after_scheduler(index);
    }

    pub(super) fn scheduler_timer(&mut self, index: usize, life: u64) {
        let (now, bug) = (self.now, self.bug);
        let Some(part) = self.leading_mut(index).filter(|part| part.end.life == life) else { return };
        part.timer = Time::NEVER;
        if bug == Some(Bug::EndlessLease) {
            for session in part.lines.keys() {
                part.driver.hear_gateway(*session);
                part.driver.on_node(now, *session, rpc::FromNode::Heartbeat);
            }
        }
        part.driver.on_timer(now);
        self.after_scheduler(index);
    }

    pub(super) fn after_scheduler(&mut self, index: usize) {
        let now = self.now;
        let Some(part) = self.leading_mut(index) else { return };
        part.driver.settle(now);
        let wants = part.take();
        let (next, life) = (part.driver.next_timer(), part.end.life);
        if next < part.timer {
            part.timer = next;
            self.at(next, Event::SchedulerTimer(index, life));
        }
        for (session, want) in wants {
            let Some(line) = self.leading(index).and_then(|part| part.lines.get(&session)).copied() else {
                continue;
            };
            match want {
                ToSession::Send(message) => {
                    if let Message::Decision(ToGateway::Run(grant)) = &message {
                        let (worker, batch, requests) = (grant.worker.number(), grant.batch, grant.requests.clone());
                        self.say(|| {
                            format!("scheduler {index} grants batch {batch:x} on worker {worker}: {requests:x?}")
                        });
                    }
                    self.send(line, Who::Scheduler(index), message);
                }
                ToSession::Close => {
                    if let Some(part) = self.leading_mut(index) {
                        part.lines.remove(&session);
                        part.nodes.retain(|other| *other != session);
                    }
                    self.cut(line);
                }
            }
        }
    }
}
