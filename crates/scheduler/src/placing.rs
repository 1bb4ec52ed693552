//! Which nodes workers run on: those that deployments lack, those of nodes that leave, and those that are better off
//! elsewhere.
//!
//! Where a worker goes is `policy::placement::nodes`'; here its choices are carried out. A worker changes its node as one
//! of a node that leaves does: another is started first, and when that is ready the old one is given nothing more and
//! stopped when it has nothing left. So no request fails by it.

use crate::deployment::Deployment;
use crate::driver::{Driver, VIRTUAL};
use crate::worker::Worker;
use config::{Device, Kind, ModelSpec, Share};
use policy::deployment::Event;
use policy::placement::nodes::{Choice, Footprint, Refused, Relocation};
use policy::placement::{Need, WHOLE};
use policy::{Span, Time};
use rpc::{ToNode, WorkerId, WorkerState, timing};

/// How often it is looked for workers that are better off elsewhere. What is found takes the start of a worker, which is
/// longer.
const RELOCATE_EVERY: Span = Span::from_millis(250);
/// Workers that are looked at each time; each costs a walk over all nodes.
const RELOCATE_LOOKS: usize = 64;
/// How long nodes have stayed the same before workers move: as long as a scheduler that starts waits for them.
const RELOCATE_STEADY: Span = timing::SETTLE;

/// What a worker of this model takes of its node.
pub(crate) fn footprint(spec: &ModelSpec) -> Footprint {
    let threads = spec.threads as u32;
    let service = format!("{}:{}", spec.name, spec.version);
    let (gpus, need) = match (&spec.share, spec.device) {
        (Some(share), _) => (gpus(share), need(share)),
        // It is held to nothing, and may use all of it.
        (None, Device::Gpu) => (1, Need::new(0, WHOLE, 0)),
        (None, Device::Auto | Device::Cpu) => (0, Need::new(0, 0, 0)),
    };
    Footprint { service, threads, gpus, need }
}

fn gpus(share: &Share) -> usize {
    share.gpu.as_ref().map_or(share.gpus as usize, |named| named.split(',').count())
}

fn need(share: &Share) -> Need {
    let memory = share.memory.map_or(0, |bytes| bytes.0);
    Need::new(share.request.permille(), share.limit.permille(), memory)
}

impl Driver {
    /// Says that nodes came or went: workers stay where they are for a while.
    pub(crate) fn unsteady(&mut self, now: Time) {
        self.next_relocation = now + RELOCATE_STEADY;
    }

    /// The workers of a deployment that are not about to go: with their node, or because another takes their place.
    pub(crate) fn staying<'a>(&'a self, deployment: &'a Deployment) -> impl DoubleEndedIterator<Item = WorkerId> + 'a {
        deployment.workers.iter().copied().filter(move |id| self.stays(&self.workers[id]))
    }

    pub(crate) fn stays(&self, worker: &Worker) -> bool {
        !worker.moving && !self.is_leaving(worker.node)
    }

    fn is_leaving(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.leaving)
    }

    /// Starts the workers that deployments lack.
    pub(crate) fn staff_all(&mut self, now: Time) {
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            self.staff(now, model);
        }
    }

    /// Starts the workers a deployment lacks.
    pub(crate) fn staff(&mut self, now: Time, number: u32) {
        while let Some(deployment) = self.models.get(&number)
            && self.settling == Span::ZERO
            && deployment.life.may_start(now)
            && deployment.place.is_some_and(|place| place.pool != VIRTUAL)
            && self.staying(deployment).count() < deployment.wanted
        {
            // One that was to move can stay, as long as it is given batches.
            let stuck = |id: &&WorkerId| {
                let worker = &self.workers[id];
                worker.moving && !worker.left && !self.is_leaving(worker.node)
            };
            if let Some(id) = deployment.workers.iter().find(stuck).copied() {
                self.workers.get_mut(&id).expect("its deployment lists it").moving = false;
                continue;
            }
            // The answer would be the same as the last time.
            if deployment.no_room_at == Some(self.places.version()) {
                return;
            }
            match self.places.choose(&footprint(&deployment.spec)) {
                Ok(choice) => self.start_worker(now, number, choice),
                Err(refused) => {
                    let version = self.places.version();
                    if let Some(deployment) = self.models.get_mut(&number) {
                        deployment.no_room_at = Some(version);
                        // The first node may be about to join, as it is whenever a server starts.
                        match refused {
                            Refused::NoNode => tracing::info!(model = deployment.label(), "waits for a node to join"),
                            Refused::NoRoom(_) => {
                                tracing::warn!(model = deployment.label(), %refused, "no worker is started");
                            }
                        }
                    }
                    let event = match refused {
                        Refused::NoNode => Event::NoNode,
                        Refused::NoRoom(reason) => Event::NoRoom(reason),
                    };
                    return self.live(now, number, event);
                }
            }
        }
    }

    /// Starts a worker of a deployment where it was chosen to.
    fn start_worker(&mut self, now: Time, number: u32, choice: Choice) {
        let Some(deployment) = self.models.get(&number) else { return };
        let (Some(place), spec) = (deployment.place, deployment.spec.clone()) else { return };
        let id = self.new_worker(now, choice.node, Some(number), place.pool);
        self.places.add(id.0, footprint(&spec), &choice);
        let worker = self.workers.get_mut(&id).expect("it was just added");
        worker.why = choice.why;
        tracing::info!(
            worker = id.number(),
            model = spec.name,
            node = self.nodes[&choice.node].name,
            "a worker starts on this node because {}",
            worker.why
        );
        self.nodes[&choice.node].link.send(ToNode::Start { worker: id, spec });
    }

    /// Lets workers go that are to be somewhere else: those for whom another is ready, or nobody can be. A worker that is
    /// to go is given nothing more, and stopped when it has nothing left.
    pub(crate) fn relieve(&mut self, now: Time) {
        let going = |(id, worker): (&WorkerId, &Worker)| {
            if worker.gpu.is_none() || self.stays(worker) {
                return None;
            }
            let deployment = worker.model.and_then(|number| self.models.get(&number));
            let elsewhere = worker.moving || self.places.has_open();
            let relieved = deployment.is_none_or(|deployment| {
                let ready = |id: &WorkerId| self.workers[id].state == WorkerState::Ready;
                !elsewhere || self.staying(deployment).filter(ready).count() >= deployment.wanted
            });
            (relieved || worker.state != WorkerState::Ready).then_some(*id)
        };
        for id in self.workers.iter().filter_map(going).collect::<Vec<_>>() {
            let worker = self.workers.get_mut(&id).expect("it was just seen");
            worker.left = true;
            let (pool, gpu) = (worker.pool, worker.gpu);
            if let (Some(pool), Some(gpu)) = (self.pools.get_mut(&pool), gpu) {
                pool.leave(now, gpu);
            }
            self.carry_out(pool, now);
            if self.is_idle(id) {
                self.stop_worker(now, id);
            }
        }
    }

    /// Moves workers to nodes that are better for them, one at a time to each node and of each deployment: nodes that
    /// join get work, and those that came back first do not keep it all.
    pub(crate) fn relocate(&mut self, now: Time) {
        if self.settling > Span::ZERO || now < self.next_relocation {
            return;
        }
        self.next_relocation = now + RELOCATE_EVERY;
        let after = self.relocated.map_or(0, |last| last.0.saturating_add(1));
        let candidates: Vec<WorkerId> =
            self.workers.range(WorkerId(after)..).map(|(id, _)| *id).take(RELOCATE_LOOKS).collect();
        // From the first again, once all were looked at.
        self.relocated = candidates.last().copied().filter(|_| candidates.len() == RELOCATE_LOOKS);
        for id in candidates {
            if !self.may_move(id) {
                continue;
            }
            let may_have = |worker: u64, node: u32| self.may_have(WorkerId(worker), node);
            let Some(Relocation { choice, .. }) = self.places.relocation([id.0], may_have) else { continue };
            let worker = self.workers.get_mut(&id).expect("it was just seen");
            worker.moving = true;
            if let Some(number) = worker.model {
                tracing::info!(worker = id.number(), "a worker moves");
                self.start_worker(now, number, choice);
            }
        }
    }

    /// Whether a worker may move: its deployment has all that it should, and nothing else about it changes.
    fn may_move(&self, id: WorkerId) -> bool {
        let Some(deployment) = self.workers[&id].model.and_then(|number| self.models.get(&number)) else {
            return false;
        };
        let ready = |id: &WorkerId| self.workers[id].state == WorkerState::Ready && self.stays(&self.workers[id]);
        let steady = deployment.workers.len() == deployment.wanted && deployment.workers.iter().all(ready);
        steady && deployment.life.is_proven() && !deployment.life.is_retired() && deployment.workers.contains(&id)
    }

    /// Whether a worker may move to a node: it starts no other, and one of the same model did not fail there.
    fn may_have(&self, id: WorkerId, node: u32) -> bool {
        let starts = |worker: &Worker| worker.node == node && worker.state != WorkerState::Ready;
        let failed = |deployment: &Deployment| deployment.failed_on.contains(&node);
        let deployment = self.workers[&id].model.and_then(|number| self.models.get(&number));
        !self.workers.values().any(starts) && !deployment.is_some_and(failed)
    }

    /// A worker could not start. Where it was to take another's place, that one stays, and no other is sent there.
    pub(crate) fn stay_instead(&mut self, now: Time, failed: WorkerId) {
        let Some(worker) = self.workers.get(&failed) else { return };
        let (node, Some(number)) = (worker.node, worker.model) else { return };
        let Some(deployment) = self.models.get_mut(&number) else { return };
        let workers = &mut self.workers;
        let moving = |id: &&WorkerId| workers.get(id).is_some_and(|worker| worker.moving && !worker.left);
        let Some(other) = deployment.workers.iter().find(moving).copied() else { return };
        deployment.failed_on.insert(node);
        if let Some(worker) = workers.get_mut(&other) {
            worker.moving = false;
        }
        self.trim(now, number);
    }
}

/// Whether a model's workers are emulated GPUs.
pub(crate) fn is_virtual(spec: &ModelSpec) -> bool {
    matches!(spec.kind, Kind::Virtual { .. })
}
