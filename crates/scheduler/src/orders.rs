//! What operators ask for.

use crate::deployment::{Deployment, NOBODY_EMULATES, Place, Reply};
use crate::driver::{Driver, VIRTUAL};
use crate::objective::virtual_too_slow;
use crate::pool::Pool;
use crate::profile::Profile;
use crate::store::{Record, Stored};
use config::{DataType, Kind, ModelSpec, TensorSpec, Workers};
use policy::Time;
use policy::deployment::Event;
use rpc::{ModelInfo, NotFound, Order, OrderError, Source, ToNode};
use std::sync::Arc;

impl Driver {
    /// Brings back what commands deployed before, and serves what the configuration file names: where both have the same
    /// version of a model, the file's takes the other's place for good.
    pub(crate) fn restore(&mut self, now: Time, configured: Vec<ModelSpec>) -> anyhow::Result<()> {
        let mut replaced = Vec::new();
        for Record { name, version, content } in self.store.all() {
            if configured.iter().any(|spec| (&spec.name, spec.version) == (&name, version)) {
                tracing::warn!(
                    "model `{name}` version {version} was deployed by a command and is in the configuration file: the \
                     file's takes its place, and the command's deployment is forgotten"
                );
                replaced.push((name, version));
                continue;
            }
            match content {
                Ok(Stored { spec, loaded }) => {
                    let number = self.list(Arc::new(spec), Source::Command, false);
                    if loaded {
                        self.place(now, number);
                    }
                }
                Err(reason) => self.list_unreadable(name, version, &reason),
            }
        }
        for spec in configured {
            spec.check().map_err(anyhow::Error::msg)?;
            let source = match replaced.contains(&(spec.name.clone(), spec.version)) {
                true => Source::FileOverCommand,
                false => Source::File,
            };
            let number = self.list(Arc::new(spec), source, false);
            self.place(now, number);
        }
        if !replaced.is_empty()
            && let Err(error) = self.store.remove(&replaced)
        {
            tracing::error!("{error:#}; the next start tries again");
        }
        Ok(())
    }

    /// Lists a deployment whose record cannot be read. It stays in the store until somebody deploys or undeploys it.
    fn list_unreadable(&mut self, name: String, version: u32, reason: &str) {
        let told = format!("its record in the store cannot be read: {reason}; deploy it again, or undeploy it");
        tracing::error!(model = format!("{name}:{version}"), "unavailable: {told}");
        let spec = ModelSpec::unknown(name, version);
        let number = self.list(Arc::new(spec), Source::Command, false);
        self.models.get_mut(&number).expect("it was just listed").unreadable = Some(told);
    }

    /// An operator wants something.
    pub fn on_order(&mut self, now: Time, order: Order, reply: Reply) {
        let outcome = match order {
            Order::Deploy(spec) => return self.deploy(now, *spec, reply),
            Order::Load { name } => return self.load(now, &name, reply),
            Order::Undeploy { name, version } => self.undeploy(now, &name, version),
            Order::Unload { name } => self.unload(now, &name),
            Order::Scale { name, version, workers } => self.resize(now, &name, version, workers),
        };
        self.answer(reply, outcome);
    }

    /// Takes in what is to be served. It is written down once it works, see `life.rs`.
    fn deploy(&mut self, now: Time, spec: ModelSpec, reply: Reply) {
        if let Err(problem) = spec.check() {
            return self.answer(reply, Err(OrderError::Invalid(problem)));
        }
        if let Some(reason) = virtual_too_slow(&spec, &self.config.network) {
            return self.answer(reply, Err(OrderError::Invalid(format!("model `{}`: {reason}", spec.name))));
        }
        if matches!(spec.kind, Kind::Virtual { .. }) && !self.emulates() {
            let text = format!("model `{}`: {NOBODY_EMULATES}", spec.name);
            return self.answer(reply, Err(OrderError::Invalid(text)));
        }
        let before = self.listed(&spec.name, Some(spec.version)).first().copied();
        if let Err(error) = self.commands_may(before.as_slice(), "deploy another version with --version") {
            return self.answer(reply, Err(error));
        }
        let number = self.list(Arc::new(spec), Source::Command, true);
        let deployment = self.models.get_mut(&number).expect("it was just listed");
        deployment.replaces = before;
        deployment.replies.push(reply);
        self.live(now, number, Event::Asked);
        self.place(now, number);
    }

    /// Whether commands may change these deployments: not those that the configuration file names.
    fn commands_may(&self, numbers: &[u32], or: &str) -> Result<(), OrderError> {
        let owned = |number: &&u32| self.models.get(number).is_some_and(|deployment| deployment.source.is_file());
        let Some(deployment) = numbers.iter().find(owned).and_then(|number| self.models.get(number)) else {
            return Ok(());
        };
        let (name, version) = (&deployment.spec.name, deployment.spec.version);
        Err(OrderError::Invalid(format!(
            "model `{name}` version {version} is in the configuration file of the server: change it there and restart \
             the server, or {or}"
        )))
    }

    /// What keeps a deployment's record from being used.
    fn readable(&self, number: u32) -> Result<(), OrderError> {
        match self.models.get(&number).and_then(|deployment| Some((deployment, deployment.unreadable.as_ref()?))) {
            Some((deployment, reason)) => {
                Err(OrderError::Invalid(format!("model `{}`: {reason}", deployment.spec.name)))
            }
            None => Ok(()),
        }
    }

    /// Writes down whether the workers of a command's deployment should run. What the file names is always loaded at
    /// the start.
    fn remember(&mut self, number: u32, loaded: bool) -> Result<(), OrderError> {
        let Some(deployment) = self.models.get(&number).filter(|deployment| !deployment.source.is_file()) else {
            return Ok(());
        };
        // A deployment that has not worked yet is not written down, and is not by this.
        if deployment.life.is_on_trial() {
            return Ok(());
        }
        let stored = Stored { spec: (*deployment.spec).clone(), loaded };
        self.store.put(&[stored]).map_err(storage)
    }

    fn load(&mut self, now: Time, name: &str, reply: Reply) {
        let numbers = self.listed(name, None);
        let Some(highest) = numbers.last().copied() else {
            return self.answer(reply, Err(NotFound::Model(name.to_string()).into()));
        };
        if self.models[&highest].place.is_none() {
            if let Err(error) = self.readable(highest).and_then(|()| self.remember(highest, true)) {
                return self.answer(reply, Err(error));
            }
            self.place(now, highest);
        }
        let deployment = self.models.get_mut(&highest).expect("it is listed");
        deployment.replies.push(reply);
        // Who asks is told anew why there is no room.
        deployment.no_room_at = None;
        self.live(now, highest, Event::Asked);
        self.staff(now, highest);
    }

    fn undeploy(&mut self, now: Time, name: &str, version: Option<u32>) -> Result<(), OrderError> {
        let numbers = self.found(name, version)?;
        self.commands_may(&numbers, "name another version with --version")?;
        let key = |number: &u32| (name.to_string(), self.models[number].spec.version);
        let keys: Vec<(String, u32)> = numbers.iter().map(key).collect();
        self.store.remove(&keys).map_err(storage)?;
        // Those that only wait to take over go as well.
        let gone = |deployment: &&Deployment| {
            keys.iter().any(|(name, version)| (name, *version) == (&deployment.spec.name, deployment.spec.version))
        };
        for number in self.models.values().filter(gone).map(|deployment| deployment.number).collect::<Vec<_>>() {
            self.live(now, number, Event::Retire);
        }
        Ok(())
    }

    fn unload(&mut self, now: Time, name: &str) -> Result<(), OrderError> {
        for number in self.found(name, None)? {
            let deployment = &self.models[&number];
            let (spec, source) = (deployment.spec.clone(), deployment.source);
            if deployment.place.is_none() {
                continue;
            }
            // What has not worked yet is not written down, and there is nothing to come back to.
            let on_trial = deployment.life.is_on_trial();
            self.remember(number, false)?;
            self.live(now, number, Event::Retire);
            if !on_trial {
                self.list(spec, source, false);
            }
        }
        Ok(())
    }

    /// Lets deployments have other numbers of workers.
    fn resize(&mut self, now: Time, name: &str, version: Option<u32>, workers: Workers) -> Result<(), OrderError> {
        let numbers = self.found(name, version)?;
        self.commands_may(&numbers, "deploy another version with --version")?;
        let mut changed = Vec::new();
        for number in &numbers {
            self.readable(*number)?;
            let deployment = &self.models[number];
            let spec = deployment.spec.with_workers(workers).map_err(OrderError::Invalid)?;
            changed.push(Stored { spec, loaded: deployment.place.is_some() });
        }
        let proven = numbers.iter().zip(&changed).filter(|(number, _)| !self.models[number].life.is_on_trial());
        let proven: Vec<Stored> = proven.map(|(_, stored)| stored.clone()).collect();
        self.store.put(&proven).map_err(storage)?;
        for (number, Stored { spec, .. }) in numbers.into_iter().zip(changed) {
            let deployment = self.models.get_mut(&number).expect("it was just found");
            deployment.spec = Arc::new(spec);
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
    pub(crate) fn listed(&self, name: &str, version: Option<u32>) -> Vec<u32> {
        let fits = |deployment: &&Deployment| {
            let spec = &deployment.spec;
            deployment.is_listed() && spec.name == name && version.is_none_or(|version| spec.version == version)
        };
        let mut found: Vec<_> =
            self.models.values().filter(fits).map(|found| (found.spec.version, found.number)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, number)| number).collect()
    }

    /// Takes in a deployment, which is not loaded. `on_trial`: an order that fails takes it away again.
    fn list(&mut self, spec: Arc<ModelSpec>, source: Source, on_trial: bool) -> u32 {
        let number = self.next_model;
        self.next_model += 1;
        self.models.insert(number, Deployment { source, ..Deployment::new(number, spec, on_trial) });
        self.changed = true;
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
        self.live(now, number, Event::Load);
        if let Kind::Virtual { latency } = spec.kind {
            let sizes: Vec<_> =
                [1, spec.max_batch.max(1)].map(|size| (size, latency.alpha * size + latency.beta)).into();
            let profile = Profile::new(&sizes, spec.max_batch, now);
            let table = profile.table();
            let deployment = self.models.get_mut(&number).expect("only known deployments are placed");
            deployment.profile = Some(profile);
            deployment.measured = sizes.iter().map(|(size, took)| (*size, took.nanos())).collect();
            deployment.measured.dedup();
            deployment.info = Some(Arc::new(echo(&spec)));
            self.pools.get_mut(&VIRTUAL).expect("it was just opened").set_table(now, model, table);
            self.carry_out(VIRTUAL, now);
            self.tell_virtual();
            let fit = virtual_too_slow(&spec, &self.config.network).map_or(Ok(()), Err);
            self.live(now, number, Event::Emulated(fit));
        }
        self.staff(now, number);
    }

    /// Opens a pool, unless it is there.
    pub(crate) fn open_pool(&mut self, now: Time, number: u32, name: &str) {
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

    /// Tells emulated GPUs which models they may be asked for.
    pub(crate) fn tell_virtual(&self) {
        let line = |deployment: &Deployment| match deployment.spec.kind {
            Kind::Virtual { latency } => Some((deployment.number, latency)),
            _ => None,
        };
        let tables: Vec<_> = self.models.values().filter_map(line).collect();
        for (id, worker) in self.workers.iter().filter(|(_, worker)| worker.model.is_none() && worker.gpu.is_some()) {
            if let Some(node) = self.nodes.get(&worker.node) {
                node.link.send(ToNode::Virtual { worker: *id, tables: tables.clone() });
            }
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

fn storage(error: anyhow::Error) -> OrderError {
    OrderError::Storage(format!("{error:#}"))
}

/// What a virtual model takes and gives, where its deployment does not say: one tensor, and the same again.
fn echo(spec: &ModelSpec) -> ModelInfo {
    let tensor = |name: &str| {
        let shape = if spec.max_batch > 0 { vec![-1, -1] } else { vec![-1] };
        vec![TensorSpec { name: name.into(), datatype: DataType::Fp32, shape }]
    };
    let or = |given: &[TensorSpec], name: &str| if given.is_empty() { tensor(name) } else { given.to_vec() };
    ModelInfo {
        inputs: or(&spec.inputs, "INPUT"),
        outputs: or(&spec.outputs, "OUTPUT"),
        max_batch: spec.max_batch,
        runs_on: None,
    }
}
