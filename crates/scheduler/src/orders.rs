//! What operators ask for, and where workers go.

use crate::deployment::{Deployment, Place, Reply};
use crate::driver::{Driver, VIRTUAL};
use crate::pool::Pool;
use crate::profile::Profile;
use crate::store::Stored;
use policy::Time;
use rpc::{
    DataType, Kind, ModelInfo, ModelSpec, NotFound, Order, OrderError, TensorSpec, ToNode, WorkerId, WorkerState,
    Workers,
};
use std::sync::Arc;

impl Driver {
    /// Brings back what was deployed before, and what the configuration asks for: that wins.
    pub(crate) fn restore(&mut self, now: Time, configured: Vec<ModelSpec>) -> anyhow::Result<()> {
        for stored in self.store.all()? {
            let same = |spec: &ModelSpec| (&spec.name, spec.version) == (&stored.spec.name, stored.spec.version);
            if !configured.iter().any(same) {
                self.admit(now, Arc::new(stored.spec), stored.loaded);
            }
        }
        for spec in configured {
            self.admit(now, Arc::new(spec), true);
        }
        Ok(())
    }

    pub(crate) fn on_order(&mut self, now: Time, order: Order, reply: Reply) {
        let outcome = match order {
            Order::Deploy(spec) => return self.deploy(now, *spec, reply),
            Order::Load { name } => return self.load(now, &name, reply),
            Order::Undeploy { name, version } => self.undeploy(now, &name, version),
            Order::Unload { name } => self.unload(now, &name),
            Order::Scale { name, version, workers } => self.resize(now, &name, version, workers),
        };
        self.answer(reply, outcome);
    }

    fn deploy(&mut self, now: Time, spec: ModelSpec, reply: Reply) {
        if let Err(error) = self.store.put(&Stored { spec: spec.clone(), loaded: true }) {
            return self.answer(reply, Err(OrderError::Storage(format!("{error:#}"))));
        }
        let before = self.listed(&spec.name, Some(spec.version)).first().copied();
        let number = self.admit(now, Arc::new(spec), true);
        let deployment = self.models.get_mut(&number).expect("it was just admitted");
        deployment.replaces = before;
        deployment.on_trial = true;
        match deployment.proven {
            true => {
                self.take_over(now, number);
                self.answer(reply, Ok(()));
            }
            false => deployment.replies.push(reply),
        }
    }

    fn load(&mut self, now: Time, name: &str, reply: Reply) {
        let numbers = self.listed(name, None);
        let Some(highest) = numbers.last().copied() else {
            return self.answer(reply, Err(NotFound::Model(name.to_string()).into()));
        };
        let deployment = self.models.get_mut(&highest).expect("it is listed");
        if deployment.place.is_some() {
            match deployment.proven {
                true => self.answer(reply, Ok(())),
                false => deployment.replies.push(reply),
            }
            return;
        }
        let spec = deployment.spec.clone();
        if let Err(error) = self.store.put(&Stored { spec: (*spec).clone(), loaded: true }) {
            return self.answer(reply, Err(OrderError::Storage(format!("{error:#}"))));
        }
        self.place(now, highest);
        let deployment = self.models.get_mut(&highest).expect("it is listed");
        match deployment.proven {
            true => self.answer(reply, Ok(())),
            false => deployment.replies.push(reply),
        }
    }

    fn undeploy(&mut self, now: Time, name: &str, version: Option<u32>) -> Result<(), OrderError> {
        let numbers = self.found(name, version)?;
        for number in numbers {
            let spec = self.models[&number].spec.clone();
            self.store.remove(&spec.name, spec.version).map_err(|error| OrderError::Storage(format!("{error:#}")))?;
            self.retire(now, number);
        }
        Ok(())
    }

    fn unload(&mut self, now: Time, name: &str) -> Result<(), OrderError> {
        for number in self.found(name, None)? {
            let spec = self.models[&number].spec.clone();
            if self.models[&number].place.is_none() {
                continue;
            }
            let stored = Stored { spec: (*spec).clone(), loaded: false };
            self.store.put(&stored).map_err(|error| OrderError::Storage(format!("{error:#}")))?;
            self.retire(now, number);
            self.admit(now, spec, false);
        }
        Ok(())
    }

    /// Lets deployments have other numbers of workers.
    fn resize(&mut self, now: Time, name: &str, version: Option<u32>, workers: Workers) -> Result<(), OrderError> {
        for number in self.found(name, version)? {
            let deployment = self.models.get_mut(&number).expect("it was just found");
            if matches!(deployment.spec.kind, Kind::Virtual { .. }) {
                return Err(OrderError::Invalid(format!("model `{name}` is virtual and has no workers of its own")));
            }
            let spec = Arc::new(ModelSpec { workers, ..(*deployment.spec).clone() });
            let stored = Stored { spec: (*spec).clone(), loaded: deployment.place.is_some() };
            self.store.put(&stored).map_err(|error| OrderError::Storage(format!("{error:#}")))?;
            deployment.spec = spec;
            deployment.wanted = deployment.wanted.clamp(workers.min(), workers.max());
            deployment.update_scaling(now);
            self.changed = true;
            self.staff(now, number);
            self.trim(now, number);
        }
        Ok(())
    }

    fn found(&self, name: &str, version: Option<u32>) -> Result<Vec<u32>, OrderError> {
        let numbers = self.listed(name, version);
        if !numbers.is_empty() {
            return Ok(numbers);
        }
        let problem = self.catalog().find(name, version.map(|version| version.to_string()).as_deref()).err();
        Err(problem.unwrap_or_else(|| NotFound::Model(name.to_string())).into())
    }

    /// Deployments that clients see, lowest version first.
    fn listed(&self, name: &str, version: Option<u32>) -> Vec<u32> {
        let fits = |deployment: &&Deployment| {
            let spec = &deployment.spec;
            deployment.is_listed() && spec.name == name && version.is_none_or(|version| spec.version == version)
        };
        let mut found: Vec<_> =
            self.models.values().filter(fits).map(|found| (found.spec.version, found.number)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }

    /// Takes in a deployment and, unless it is to be remembered only, gives it a place.
    fn admit(&mut self, now: Time, spec: Arc<ModelSpec>, loaded: bool) -> u32 {
        let number = self.next_model;
        self.next_model += 1;
        self.models.insert(number, Deployment::new(number, spec));
        self.changed = true;
        if loaded {
            self.place(now, number);
        }
        number
    }

    /// Gives a deployment its queue and its workers.
    fn place(&mut self, now: Time, number: u32) {
        let deployment = self.models.get_mut(&number).expect("only known deployments are placed");
        let spec = deployment.spec.clone();
        let (pool, name) = match spec.kind {
            Kind::Virtual { .. } => (VIRTUAL, "virtual".to_string()),
            _ => (number, format!("{}-{}-{number}", spec.name, spec.version)),
        };
        self.open_pool(now, pool, &name);
        let model = self.pools.get_mut(&pool).expect("it was just opened").add_model(now, number, spec.slo);
        let deployment = self.models.get_mut(&number).expect("only known deployments are placed");
        deployment.place = Some(Place { pool, model });
        self.changed = true;
        if let Kind::Virtual { latency } = spec.kind {
            let sizes: Vec<_> =
                [1, spec.max_batch.max(1)].map(|size| (size, latency.alpha * size + latency.beta)).into();
            let profile = Profile::new(&sizes, spec.max_batch, now);
            let table = profile.table();
            let deployment = self.models.get_mut(&number).expect("only known deployments are placed");
            (deployment.profile, deployment.proven) = (Some(profile), true);
            deployment.info = Some(Arc::new(echo(&spec)));
            self.pools.get_mut(&VIRTUAL).expect("it was just opened").set_table(now, model, table);
            self.carry_out(VIRTUAL, now);
            self.tell_virtual();
        }
        self.staff(now, number);
    }

    /// Opens a pool, unless it is there.
    fn open_pool(&mut self, now: Time, number: u32, name: &str) {
        if self.pools.contains_key(&number) {
            return;
        }
        let journal = self.config.journal.as_ref().and_then(|folder| {
            let path = folder.join(format!("{name}.journal"));
            let file = std::fs::create_dir_all(folder).and_then(|()| std::fs::File::create(&path));
            file.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "no journal is kept")).ok()
        });
        self.pools.insert(number, Pool::new(now, self.config.network, &self.config.policy, journal));
    }

    /// Starts the workers a deployment lacks, on the nodes that have the fewest.
    pub(crate) fn staff(&mut self, now: Time, number: u32) {
        while let Some(deployment) = self.models.get(&number)
            && let Some(place) = deployment.place
            && place.pool != VIRTUAL
            && deployment.workers.len() < deployment.wanted
            && let Some(node) = self.emptiest_node()
        {
            let spec = deployment.spec.clone();
            let worker = self.new_worker(now, node, Some(number), place.pool);
            self.models.get_mut(&number).expect("it was just seen").workers.push(worker);
            (self.nodes[&node].tell)(ToNode::Start { worker, spec });
        }
    }

    fn emptiest_node(&self) -> Option<u16> {
        let load =
            |node: &u16| self.workers.values().filter(|worker| worker.node == *node && worker.model.is_some()).count();
        self.nodes.keys().copied().min_by_key(load)
    }

    /// A node came: it takes the workers that are missing, and its emulated GPUs join.
    pub(crate) fn on_node_joined(&mut self, now: Time, number: u16, link: crate::NodeLink) {
        tracing::info!(node = link.name, virtual_gpus = link.virtual_gpus, "a node joined");
        let gpus = link.virtual_gpus;
        self.nodes.insert(number, link);
        if gpus > 0 {
            self.open_pool(now, VIRTUAL, "virtual");
        }
        for _ in 0..gpus {
            self.new_worker(now, number, None, VIRTUAL);
        }
        self.tell_virtual();
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            self.staff(now, model);
        }
    }

    /// A node is gone, with all its workers: others take their place.
    pub(crate) fn on_node_lost(&mut self, now: Time, number: u16) {
        let Some(link) = self.nodes.remove(&number) else { return };
        tracing::warn!(node = link.name, "a node was lost");
        let gone: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| worker.node == number).map(|(id, _)| *id).collect();
        for id in gone {
            let worker = self.workers.remove(&id).expect("it was just seen");
            if let Some(deployment) = worker.model.and_then(|model| self.models.get_mut(&model)) {
                deployment.workers.retain(|other| *other != id);
                deployment.ready -= usize::from(worker.state == WorkerState::Ready);
            }
            if worker.state != WorkerState::Stopping
                && let Some(pool) = self.pools.get_mut(&worker.pool)
            {
                pool.unseat(now, worker.gpu);
            }
            self.carry_out(worker.pool, now);
        }
        self.changed = true;
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            self.staff(now, model);
        }
    }

    /// Tells emulated GPUs which models they may be asked for.
    fn tell_virtual(&self) {
        let line = |deployment: &Deployment| match deployment.spec.kind {
            Kind::Virtual { latency } => Some((deployment.number, latency)),
            _ => None,
        };
        let tables: Vec<_> = self.models.values().filter_map(line).collect();
        for (id, worker) in self.workers.iter().filter(|(_, worker)| worker.model.is_none()) {
            if let Some(node) = self.nodes.get(&worker.node) {
                (node.tell)(ToNode::Virtual { worker: *id, tables: tables.clone() });
            }
        }
    }

    /// A deployment is ready: the one it replaces takes no more requests.
    pub(crate) fn take_over(&mut self, now: Time, number: u32) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        deployment.on_trial = false;
        if let Some(before) = deployment.replaces.take() {
            self.retire(now, before);
        }
        self.changed = true;
    }

    /// A deployment that an order brought never worked: it goes, and what it was to replace stays.
    pub(crate) fn withdraw(&mut self, now: Time, number: u32) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        let (spec, before) = (deployment.spec.clone(), deployment.replaces.take());
        let restored = match before.and_then(|before| self.models.get(&before)) {
            Some(before) => self.store.put(&Stored { spec: (*before.spec).clone(), loaded: before.place.is_some() }),
            None => self.store.remove(&spec.name, spec.version),
        };
        if let Err(error) = restored {
            tracing::error!(error = format!("{error:#}"), "a deployment that failed is still written down");
        }
        self.retire(now, number);
    }

    /// Lets a deployment finish what it has; it is taken away when it did.
    fn retire(&mut self, now: Time, number: u32) {
        if let Some(deployment) = self.models.get_mut(&number) {
            let gone = OrderError::Invalid(format!("model `{}` was taken away meanwhile", deployment.spec.name));
            deployment.retiring.get_or_insert(now);
            self.changed = true;
            self.answer_all(number, &Err(gone));
        }
    }

    /// Takes a deployment away.
    pub(crate) fn remove(&mut self, now: Time, number: u32) {
        let Some(deployment) = self.models.remove(&number) else { return };
        for worker in &deployment.workers {
            self.stop_worker(now, *worker);
        }
        match deployment.place {
            Some(place) if place.pool == VIRTUAL => {
                if let Some(pool) = self.pools.get_mut(&VIRTUAL) {
                    pool.set_table(now, place.model, policy::LatencyTable::default());
                }
                self.carry_out(VIRTUAL, now);
                self.tell_virtual();
            }
            Some(place) => {
                self.pools.remove(&place.pool);
            }
            None => {}
        }
        tracing::info!(model = deployment.label(), "taken away");
    }
}

/// What a virtual model takes and gives, where its deployment does not say: one tensor, and the same again.
fn echo(spec: &ModelSpec) -> ModelInfo {
    let tensor = |name: &str| {
        let shape = if spec.max_batch > 0 { vec![-1, -1] } else { vec![-1] };
        vec![TensorSpec { name: name.into(), datatype: DataType::Fp32, shape }]
    };
    let or = |given: &[TensorSpec], name: &str| if given.is_empty() { tensor(name) } else { given.to_vec() };
    ModelInfo { inputs: or(&spec.inputs, "INPUT"), outputs: or(&spec.outputs, "OUTPUT"), max_batch: spec.max_batch }
}
