//! What goes wrong.

use super::{Event, World};
use crate::network::{End, Line};
use crate::{Bug, Fault, Takeover, Who};
use policy::Span;
use rpc::timing;

impl World<'_> {
    /// The lead passes on from this scheduler.
    pub(super) fn take_over(&mut self, leads: End, how: Takeover) {
        self.fault(how.fault(leads.who));
        if how == Takeover::Splits {
            for line in self.network.of(leads).into_iter().step_by(2) {
                self.cut(line);
            }
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.say(|| format!("FAULT {fault:?}"));
        self.faults_left = self.faults_left.saturating_sub(1);
        if !matches!(
            fault,
            Fault::Kill(Who::Scheduler(_), _)
                | Fault::Term(Who::Scheduler(_), _)
                | Fault::Stop(Who::Scheduler(_), _)
                | Fault::Split(..)
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
                    Who::Scheduler(_) if bug == Some(Bug::DeafScheduler) => {}
                    Who::Scheduler(_) => self.end_part(who),
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
            Fault::Split(hangs, learns) => {
                let Some(old) = self.leads.take() else { return };
                if hangs > Span::ZERO {
                    self.hung.insert(old.who, (now + hangs, now));
                }
                self.back.insert(old.who, Span::from_millis(1));
                self.at(now + hangs + learns, Event::Deposed(old));
                self.elect();
            }
            Fault::Slow(index, factor, length) => {
                if let Some(part) = &mut self.nodes[index] {
                    part.slow = (factor, now + length);
                }
            }
        }
    }

    pub(super) fn pick_line(&self, who: Who, pick: u32) -> Option<Line> {
        let lines = self.network.of(self.end_of(who)?);
        lines.get(pick as usize % lines.len().max(1)).copied()
    }

    /// A part is there no more.
    pub(super) fn end_part(&mut self, who: Who) {
        let Some(end) = self.end_of(who) else { return };
        self.say(|| format!("{who:?} ends"));
        for line in self.network.of(end) {
            self.cut(line);
        }
        match who {
            Who::Scheduler(index) => {
                self.schedulers[index] = None;
                if self.leads == Some(end) {
                    self.leads = None;
                    self.elect();
                }
            }
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
}
