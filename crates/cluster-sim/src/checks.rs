//! What must hold, looked at when a request's time is over, when everything is back, and when all is quiet.

use crate::Who;
use crate::network::Line;
use crate::world::{Event, World};
use gateway::flights::Place;
use policy::Span;
use rpc::{State, WorkerState, session_of, timing};

impl World<'_> {
    /// A request's time is over: was it with somebody who is there?
    pub(crate) fn check_owner(&mut self, index: usize, id: u64, place: Place) {
        let Some(part) = &self.gateways[index] else { return };
        let quiet = |line: Line| self.network.lines[line].open && self.network.lines[line].under_way == [0, 0];
        let slept = |who: Who| self.hung.get(&who).is_some_and(|(until, _)| *until + timing::LEASE > self.now);
        let asleep = (0..self.plan.schedulers).any(|scheduler| slept(Who::Scheduler(scheduler)));
        match place {
            Place::Announced => {
                let line = part.member.line.map(|line| self.network.lines[line].ends[1].who);
                let Some(Who::Scheduler(own)) = line else { return };
                let Some(scheduler) = self.leading(own) else { return };
                let line = scheduler.lines.get(&session_of(id)).copied().filter(|line| part.member.line == Some(*line));
                let Some(line) = line.filter(|line| quiet(*line)) else { return };
                if !slept(Who::Scheduler(own)) && !slept(Who::Gateway(index)) && !scheduler.driver.holds(id) {
                    self.violated(format!(
                        "request {id:x} was announced on line {line}, and the scheduler does not have it"
                    ));
                }
            }
            Place::Sent { worker, .. } => {
                let way = part.ways.iter().find(|(_, way)| {
                    let Who::Node(node) = self.network.lines[way.line].ends[1].who else { return false };
                    self.nodes[node].as_ref().is_some_and(|part| part.all().contains(&worker))
                });
                let line = way.map(|(_, way)| way.line);
                let Some(line) = line else {
                    // Nobody is where it was sent: it should have come back, unless that is on its way.
                    let all_quiet = part.ways.values().all(|way| quiet(way.line));
                    let nodes_slept = (0..self.nodes.len()).any(|node| slept(Who::Node(node)));
                    let closing = self.events.values().any(|event| matches!(event, Event::Closed(..)));
                    if all_quiet && !nodes_slept && !closing && !slept(Who::Gateway(index)) && !asleep {
                        self.violated(format!("request {id:x} was sent to worker {}, which is gone", worker.number()));
                    }
                    return;
                };
                let Who::Node(node) = self.network.lines[line].ends[1].who else { return };
                let part = self.nodes[node].as_ref().expect("it was just seen");
                if let Some((_, since)) = self.hung.get(&Who::Node(node)).filter(|(until, _)| *until > self.now) {
                    // Long enough for its lease to end, and for the scheduler to see it and say so.
                    let noticed = *since + timing::LEASE + Span::from_millis(300);
                    let others = (0..self.nodes.len())
                        .any(|other| other != node && self.nodes[other].is_some() && !slept(Who::Node(other)));
                    let watched = self.leader().is_some_and(|part| part.end.life < self.lives) && !asleep;
                    if self.now > noticed && others && watched && self.faults_left == 0 && self.plan.faults.len() == 1 {
                        self.violated(format!(
                            "request {id:x} waited for {node}, which was silent for {}",
                            self.now - *since
                        ));
                    }
                    return;
                }
                if quiet(line) && !slept(Who::Node(node)) && !slept(Who::Gateway(index)) && !part.holds(worker, id) {
                    self.violated(format!(
                        "request {id:x} was sent to worker {}, which does not have it",
                        worker.number()
                    ));
                }
            }
            Place::Waiting => {
                let ready = part.gateway.has_scheduler()
                    && !part.gateway.expects_workers()
                    && part.gateway.catalog().entries.iter().all(|entry| entry.state == State::Ready);
                if ready {
                    self.violated(format!("request {id:x} waits, and its gateway could announce it"));
                }
            }
        }
    }

    /// Every model has its workers, and the scheduler knows of all there are. While some move there are more; in the end
    /// (`settled`) there are not, and no node has them all.
    pub(crate) fn check_workers(&mut self, settled: bool) {
        let Some(part) = self.leader() else { return };
        let catalog = part.driver.catalog();
        let mut wrong = Vec::new();
        for entry in &catalog.entries {
            let index: usize = entry.spec.name.trim_start_matches("model-").parse().expect("models have numbers");
            let wanted = self.plan.workers[index];
            let enough = entry.workers_ready == wanted || entry.workers_ready > wanted && !settled;
            if !enough || entry.workers_wanted != wanted {
                wrong.push(format!("{} has {} of {wanted} workers", entry.spec.name, entry.workers_ready));
            }
        }
        let known: Vec<_> = part.driver.workers().collect();
        for (id, incarnation, model, _) in known.iter().filter(|(_, _, _, state)| *state == WorkerState::Ready) {
            let there = self.nodes.iter().flatten().any(|node| {
                node.incarnation == *incarnation
                    && node.ready().any(|(other, name)| other == *id && Some(name) == *model)
            });
            if !there {
                wrong.push(format!("worker {} is counted and not there", id.number()));
            }
        }
        for node in self.nodes.iter().flatten() {
            for id in node.all() {
                if !known.iter().any(|(other, incarnation, ..)| *other == id && *incarnation == node.incarnation) {
                    wrong.push(format!("worker {} runs and nobody counts it", id.number()));
                }
            }
        }
        let total: usize = self.plan.workers.iter().sum();
        if settled || self.calm_nodes && !self.plan.faults.is_empty() {
            let most = self.nodes.iter().flatten().map(|node| node.all().len()).max().unwrap_or(0);
            if most > total.div_ceil(self.nodes.len()) + 1 {
                wrong.push(format!("one node has {most} of {total} workers"));
            }
        }
        if let Some(first) = wrong.into_iter().next() {
            self.violated(first);
        }
    }

    pub(crate) fn check_quiet(&mut self) {
        for index in 0..self.gateways.len() {
            self.look_at_answers(index);
            let Some(part) = &self.gateways[index] else { continue };
            if part.gateway.in_flight() > 0 || !part.open.is_empty() {
                let left = part.open.len();
                self.violated(format!("gateway {index} has {left} requests that nobody answered"));
            }
        }
        let idle = self.all_leading().all(|part| part.driver.is_idle_everywhere());
        if !idle {
            self.violated("the scheduler has requests or batches that nobody else has".into());
        }
        self.check_workers(true);
    }
}
