//! Who has joined: gateways and nodes, their leases, and where workers go.
//!
//! A member that is on another machine holds a lease: it says something at least every [`timing::HEARTBEAT`]. Not heard
//! of for [`timing::LEASE`] it is silent: it is given nothing, and what its workers had is run elsewhere. Not heard of
//! for [`timing::LOST`] it is sent away, and joins again when it wakes. Members within this process have no lease.

use crate::deployment::Deployment;
use crate::driver::{Driver, VIRTUAL};
use crate::link::{GatewayLink, NodeLink};
use crate::placing::footprint;
use crate::session::{Gateway, Node};
use crate::worker::Worker;
use policy::{Span, Time};
use rpc::{NodeHello, Running, ToNode, WorkerId, WorkerState, timing};

impl Driver {
    /// A gateway is there: a session with a number of its own.
    pub fn on_gateway_joined(&mut self, session: u32, link: Box<dyn GatewayLink>) {
        link.publish_catalog(self.catalog());
        self.gateways.insert(session, Gateway { link, unheard: Span::ZERO, silent: false });
    }

    /// A gateway's session is over.
    pub fn on_gateway_lost(&mut self, now: Time, session: u32) {
        if self.gateways.remove(&session).is_some() {
            self.abandon(now, session);
        }
    }

    /// A gateway said something.
    pub fn hear_gateway(&mut self, session: u32) {
        if let Some(gateway) = self.gateways.get_mut(&session) {
            gateway.unheard = Span::ZERO;
            if std::mem::take(&mut gateway.silent) {
                tracing::info!(gateway = session, "a gateway is heard of again");
            }
        }
    }

    /// A node said something.
    pub(crate) fn hear_node(&mut self, now: Time, number: u32) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.unheard = Span::ZERO;
        if std::mem::take(&mut node.silent) {
            tracing::info!(node = node.name, "a node is heard of again");
            self.places.set_open(number, !node.leaving);
        }
        // Also those whom only a gateway could not reach.
        if !std::mem::take(&mut node.has_silent_workers) {
            return;
        }
        let of_it = |(id, worker): (&WorkerId, &Worker)| {
            (worker.node == number && worker.state == WorkerState::Silent).then_some(*id)
        };
        for id in self.workers.iter().filter_map(of_it).collect::<Vec<_>>() {
            self.unsilence(now, id);
        }
    }

    /// Sees who was not heard of for too long.
    pub(crate) fn watch_leases(&mut self, now: Time) {
        // A lease runs while the scheduler does: who was not heard of because nobody listened is heard first.
        let passed = (now - std::mem::replace(&mut self.watched, now)).min(timing::HEARTBEAT);
        if self.settling > Span::ZERO {
            self.settling = self.settling - passed;
            // Gateways are told that what is still missing is not expected any more.
            self.changed |= self.settling == Span::ZERO;
        }
        let mut gone = Vec::new();
        for (session, gateway) in self.gateways.iter_mut().filter(|(_, gateway)| gateway.link.is_leased()) {
            gateway.unheard += passed;
            if gateway.unheard > timing::LEASE && !std::mem::replace(&mut gateway.silent, true) {
                tracing::warn!(gateway = session, "a gateway is not heard of");
            }
            if gateway.unheard > timing::LOST {
                gone.push(*session);
            }
        }
        for session in gone {
            self.gateways[&session].link.close("not heard of for too long: join again");
            self.on_gateway_lost(now, session);
        }
        self.nodes.values_mut().for_each(|node| node.unheard += passed);
        let overdue = |node: &Node| node.link.is_leased() && node.unheard > timing::LEASE;
        for number in self.nodes.iter().filter(|(_, node)| overdue(node)).map(|(number, _)| *number).collect::<Vec<_>>()
        {
            let node = self.nodes.get_mut(&number).expect("it was just seen");
            if !std::mem::replace(&mut node.silent, true) {
                tracing::warn!(node = node.name, "a node is not heard of");
                self.places.set_open(number, false);
            }
            if node.unheard > timing::LOST {
                node.link.close("not heard of for too long: join again");
                self.on_node_lost(now, number);
                continue;
            }
            let workers = self.workers_of(number);
            self.give_nothing(now, &workers);
            for id in workers {
                self.silence(now, id);
            }
        }
    }

    /// Gives these workers no more batches: what one of them had must not go to the next, when all of them go.
    fn give_nothing(&mut self, now: Time, workers: &[WorkerId]) {
        for id in workers {
            let (pool, gpu) = (self.workers[id].pool, self.workers[id].gpu);
            if let (Some(pool), Some(gpu)) = (self.pools.get_mut(&pool), gpu) {
                pool.leave(now, gpu);
            }
        }
    }

    fn workers_of(&self, node: u32) -> Vec<WorkerId> {
        self.workers.iter().filter(|(_, worker)| worker.node == node).map(|(id, _)| *id).collect()
    }

    /// A node is there: the workers that it brings along serve on if they are wanted, it takes those that are missing,
    /// and its emulated GPUs join.
    pub fn on_node_joined(&mut self, now: Time, number: u32, hello: NodeHello, link: Box<dyn NodeLink>) {
        let NodeHello { name, incarnation, virtual_gpus, address, workers, leaving, capacity } = hello;
        let refuse = |text: String| {
            tracing::warn!(node = name, "a node is sent away: {text}");
            link.close(&text);
        };
        let before = self.nodes.iter().find(|(_, node)| link.is_leased() && node.incarnation == incarnation);
        if let Some((before, other)) = before.map(|(number, node)| (*number, node)) {
            // A start of a node has one address: who brings another is a copy of it, or takes itself for it.
            if other.address != address {
                return refuse(format!("the node at {} is this one already: start this one anew", other.address));
            }
            // The same start of a node with a new stream: what is known of the old one is over.
            other.link.close("the node has joined again");
            self.on_node_lost(now, before);
        }
        let same_address = |node: &&Node| link.is_leased() && node.address == address && !node.silent;
        if let Some(other) = self.nodes.values().find(same_address) {
            return refuse(format!("node {} is at {address} already: give this one an address of its own", other.name));
        }
        tracing::info!(node = name, virtual_gpus, brings = workers.len(), "a node joined");
        let (unheard, silent, has_silent_workers) = (Span::ZERO, false, false);
        let node = Node { link, name, incarnation, address, unheard, silent, has_silent_workers, leaving };
        self.nodes.insert(number, node);
        self.places.join(number, capacity);
        self.places.set_open(number, !leaving);
        self.unsteady(now);
        for running in workers {
            self.adopt(now, number, running);
        }
        if virtual_gpus > 0 {
            self.open_pool(now, VIRTUAL, "virtual");
        }
        for _ in 0..if leaving { 0 } else { virtual_gpus } {
            self.new_worker(now, number, None, VIRTUAL);
        }
        self.tell_virtual();
        self.staff_all(now);
    }

    /// A node brought a worker along. It serves on where a deployment lacks one like it, and ends elsewhere.
    fn adopt(&mut self, now: Time, node: u32, running: Running) {
        let Running { worker, spec, ready } = running;
        let lacks = |deployment: &&Deployment| {
            !deployment.life.is_retired()
                && spec.as_ref().is_some_and(|spec| *spec == deployment.spec)
                && self.staying(deployment).count() < deployment.spec.workers.max()
        };
        let found =
            self.models.values().find(lacks).and_then(|deployment| Some((deployment.number, deployment.place?)));
        let Some((number, place)) = found.filter(|_| !self.workers.contains_key(&worker)) else {
            return self.nodes[&node].link.send(ToNode::Stop { worker });
        };
        self.add_worker(now, worker, node, Some(number), place.pool);
        self.places.take_in(worker.0, footprint(&self.models[&number].spec), node);
        let staying = self.staying(&self.models[&number]).count();
        let deployment = self.models.get_mut(&number).expect("it was just found");
        deployment.wanted = deployment.wanted.max(staying);
        if let Some((info, measured)) = ready {
            self.on_ready(now, worker, info, &measured);
        }
    }

    /// A node is gone, with all its workers: others take their place.
    pub fn on_node_lost(&mut self, now: Time, number: u32) {
        let Some(node) = self.nodes.get(&number) else { return };
        tracing::warn!(node = node.name, "a node was lost");
        let workers = self.workers_of(number);
        self.give_nothing(now, &workers);
        for id in workers {
            self.forget(now, id);
        }
        self.nodes.remove(&number);
        self.places.lose(number);
        self.unsteady(now);
        self.changed = true;
        self.staff_all(now);
    }

    /// A node was told to end: its workers go, each as soon as another is there in its place.
    pub(crate) fn on_leaving(&mut self, now: Time, number: u32) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        if std::mem::replace(&mut node.leaving, true) {
            return;
        }
        tracing::info!(node = node.name, "a node is leaving");
        self.places.set_open(number, false);
        self.unsteady(now);
        self.staff_all(now);
        self.relieve(now);
    }
}
