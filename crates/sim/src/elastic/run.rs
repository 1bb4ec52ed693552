//! The loop: arrivals, ends of batches, starts, looks and what dispatchers wait for, in order of time.

use super::check::Ledger;
use super::cluster::{Cluster, End, Worker};
use super::latency::Latency;
use super::policies::{self, Policy, Shape, by_name};
use super::pool::{Batch, Pool, Want};
use super::report::{JobReport, Report, Sample, Tally, part};
use super::scenario::{Job, Scenario};
use crate::event_queue::EventQueue;
use crate::workload::Arrivals;
use policy::autoscale::{Action, State, View, Worker as Seen};
use policy::placement::{self, Demand, Kind, Need};
use policy::surface::Share;
use policy::{GpuId, InstanceId, NodeId, Span, Time, Tournament};
use std::collections::BTreeSet;

/// Stretches that a run is told in.
const SAMPLES: usize = 60;
/// What is kept of how busy a worker was at each look.
const BUSY_KEPT: f64 = 0.9;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival(usize),
    End { worker: InstanceId, version: u64 },
    Ready(InstanceId),
    Look,
    Sample,
}

struct Run<'a> {
    scenario: &'a Scenario,
    latencies: Vec<Latency>,
    shapes: Vec<Vec<Shape>>,
    policy: Box<dyn Policy>,
    placement: Box<dyn placement::Policy>,
    state: placement::State,
    cluster: Cluster,
    events: EventQueue<Event>,
    arrivals: Vec<Arrivals>,
    /// By function: who waits, and what was given to whom.
    pools: Vec<Pool>,
    /// By function: when its pool must be woken.
    timers: Tournament,
    /// By function, since the last look.
    arrived: Vec<u64>,
    tallies: Vec<Tally>,
    ledger: Ledger,
    now: Time,
    last_look: Time,
    next: u32,
    unplaced: u64,
    gpu_seconds: f64,
    gpus_since: Time,
    peak_gpus: usize,
    samples: Vec<Sample>,
    sample: (u64, u64, u64),
    ends: Vec<End>,
    /// GPUs on which something changed and that are not divided anew yet.
    changed: BTreeSet<GpuId>,
    wants: Vec<Want>,
}

/// Runs a scenario under a policy. `None`: there is no such policy.
pub fn run(scenario: &Scenario, policy: &str) -> Option<Report> {
    let latencies: Vec<Latency> =
        scenario.functions.iter().map(|function| Latency::new(&function.surface, function.batch_max)).collect();
    let name = policy;
    let policy = by_name(name, &scenario.functions, &latencies)?;
    let placement =
        placement::policies::by_name(policy.placement()).expect("policies name ways to place that there are");
    let mut state = placement::State::new(placement.rules());
    for gpu in 0..scenario.gpus {
        let node = NodeId::new(gpu / scenario.node_gpus.max(1));
        state.join(GpuId::new(gpu), node, scenario.memory, BTreeSet::new());
    }
    let functions = scenario.functions.iter().enumerate();
    let arrivals = functions
        .map(|(index, function)| Arrivals::new(&function.spacing, index, function.rate, scenario.seed))
        .collect();
    let shapes = scenario.functions.iter().zip(&latencies);
    let shapes: Vec<Vec<Shape>> = shapes.map(|(function, latency)| policy.shapes(function, latency)).collect();
    let fastest = |(shapes, latency): (&Vec<Shape>, &Latency)| {
        let alone = |shape: &&Shape| latency.seconds(1, f64::from(shape.limit));
        let fastest = shapes.iter().min_by(|left, right| alone(left).total_cmp(&alone(right)));
        fastest.map_or(Vec::new(), |shape| planned(shape, latency))
    };
    let expected = shapes.iter().zip(&latencies).map(fastest);
    let pools = scenario.functions.iter().zip(expected);
    let pools = pools.map(|(function, expected)| Pool::new(function.objective, expected)).collect();
    let count = scenario.functions.len();
    let mut run = Run {
        scenario,
        latencies,
        shapes,
        policy,
        placement,
        state,
        cluster: Cluster::new(scenario),
        events: EventQueue::default(),
        arrivals,
        pools,
        timers: Tournament::new(count),
        arrived: vec![0; count],
        tallies: vec![Tally::new(); count],
        ledger: Ledger::default(),
        now: Time::ZERO,
        last_look: Time::ZERO,
        next: 0,
        unplaced: 0,
        gpu_seconds: 0.0,
        gpus_since: Time::ZERO,
        peak_gpus: 0,
        samples: Vec::new(),
        sample: (0, 0, 0),
        ends: Vec::new(),
        changed: BTreeSet::new(),
        wants: Vec::new(),
    };
    run.begin();
    Some(run.go(name))
}

/// How long batches of a worker are planned to take: on its limit and with no neighbour, in seconds by their size.
fn planned(shape: &Shape, latency: &Latency) -> Vec<f64> {
    (1..=latency.batch_max()).map(|size| latency.seconds(size, f64::from(shape.limit))).collect()
}

impl Run<'_> {
    fn begin(&mut self) {
        for job in 0..self.scenario.jobs.len() {
            self.place_job(job);
        }
        for function in 0..self.scenario.functions.len() {
            let first = self.arrivals[function].first();
            self.events.push(first, Event::Arrival(function));
        }
        for (function, size) in self.first_sizes() {
            for _ in 0..self.scenario.functions[function].replicas.min.max(1) {
                let size = self.with_room(function, size);
                if let Some(id) = self.start(function, size) {
                    self.ready(id);
                }
            }
        }
        (0..self.scenario.gpus).for_each(|gpu| self.divide(GpuId::new(gpu)));
        self.events.push(Time::ZERO + self.policy.every(), Event::Look);
    }

    /// What each function begins with: what the policy says or, where there is no room for all of that, the least.
    fn first_sizes(&self) -> Vec<(usize, usize)> {
        let able = || self.shapes.iter().enumerate().filter(|(_, shapes)| !shapes.is_empty());
        let preferred = able().map(|(function, shapes)| (function, self.policy.begins(shapes.len())));
        let preferred: Vec<(usize, usize)> = preferred.collect();
        let mut state = self.state.clone();
        let all = preferred.iter().all(|(function, size)| {
            let demand = self.demand(*function, *size);
            let id = InstanceId(self.next + *function as u32);
            let plan = self.placement.place(&state, &demand);
            plan.is_ok_and(|plan| state.apply(id, demand, &plan).is_ok())
        });
        let area = |shape: &Shape| (shape.request * shape.quota, shape.limit);
        let least = |(function, shapes): (usize, &Vec<Shape>)| {
            let size = (0..shapes.len()).min_by_key(|size| area(&shapes[*size])).unwrap_or(0);
            (function, size)
        };
        if all { preferred } else { able().map(least).collect() }
    }

    fn go(&mut self, name: &str) -> Report {
        let warm = Time::ZERO + self.scenario.warmup;
        let end = warm + self.scenario.duration;
        let each = self.scenario.duration.scale(1, SAMPLES as u64).max(Span::from_nanos(1));
        self.until(warm);
        self.cluster.settle_all(warm);
        self.count_gpus(warm);
        let before = self.cluster.trained(warm);
        self.tallies.fill(Tally::new());
        self.count_workers(warm, false);
        (self.cluster.useful, self.gpu_seconds, self.unplaced) = (0.0, 0.0, 0);
        (self.peak_gpus, self.sample) = (self.state.in_use(), (0, 0, 0));
        self.events.push(warm + each, Event::Sample);
        self.until(end);
        self.cluster.settle_all(end);
        self.count_gpus(end);
        self.count_workers(end, true);
        let trained = self.cluster.trained(end);
        let running = self.cluster.workers.values().filter_map(|worker| worker.running.as_ref());
        let running: usize = running.map(|running| running.arrivals.len()).sum();
        let open: usize = self.pools.iter().map(Pool::open).sum();
        let waiting: usize = self.pools.iter().map(Pool::waiting).sum();
        assert_eq!(open, waiting + running, "a request is in two places, or in none");
        self.ledger.finish(waiting, running);
        self.ledger.placed(&self.state, self.cluster.workers.len(), self.placed_jobs());
        self.report(name, &before, &trained)
    }

    fn until(&mut self, end: Time) {
        while self.events.next().min(self.timers.earliest()) < end {
            if let Some((at, function)) = self.timers.first().filter(|(at, _)| *at < self.events.next()) {
                self.ledger.tick(at);
                self.now = at;
                self.tell(function, |pool, wants| pool.on_timer(at, wants));
            } else {
                let (at, event) = self.events.pop().expect("there is a next event");
                self.ledger.tick(at);
                self.now = at;
                match event {
                    Event::Arrival(function) => self.arrive(function),
                    Event::End { worker, version } => self.end(worker, version),
                    Event::Ready(worker) => self.ready(worker),
                    Event::Look => self.look(),
                    Event::Sample => self.sample(),
                }
            }
            std::mem::take(&mut self.changed).into_iter().for_each(|gpu| self.divide(gpu));
        }
        self.now = end;
    }

    fn placed_jobs(&self) -> usize {
        self.state.instances().values().filter(|instance| instance.demand.kind == Kind::Training).count()
    }

    fn place_job(&mut self, index: usize) {
        let Job { name, gpus, memory, .. } = &self.scenario.jobs[index];
        let (request, limit) = self.policy.training(&self.scenario.jobs[index]);
        let need = Need::new(request, limit, *memory);
        let apart = self.policy.trains_apart();
        // What stays apart from its own kind is of one kind.
        let service = if apart { "training".to_owned() } else { name.clone() };
        let demand = Demand { apart, ..Demand::new(service, Kind::Training, *gpus, need) };
        match self.place(demand) {
            Some((_, places)) => {
                places.into_iter().enumerate().for_each(|(part, gpu)| self.cluster.add_part(index, part, gpu));
            }
            None => self.unplaced += 1,
        }
    }

    /// Places an instance; where its parts are.
    fn place(&mut self, demand: Demand) -> Option<(InstanceId, Vec<GpuId>)> {
        let plan = self.placement.place(&self.state, &demand).ok()?;
        assert!(plan.moves.is_empty(), "nothing moves here");
        let id = InstanceId(self.next);
        self.next += 1;
        self.count_gpus(self.now);
        self.state.apply(id, demand, &plan).expect("a plan is for the state it was made from");
        self.peak_gpus = self.peak_gpus.max(self.state.in_use());
        Some((id, plan.pieces.iter().map(|piece| piece.gpu).collect()))
    }

    /// Starts a worker, if there is room.
    fn start(&mut self, function: usize, size: usize) -> Option<InstanceId> {
        let shape = self.shapes[function][size];
        let Some((id, places)) = self.place(self.demand(function, size)) else {
            self.unplaced += 1;
            return None;
        };
        let share = Share::from_permille(shape.request).expect("shapes have a share");
        let (state, gpu) = (State::Starting, places[0]);
        let worker =
            Worker { function, size, shape, gpu, state, share, running: None, busy: 0.0, busy_mean: 0.0, slower: 1.0 };
        self.cluster.add_worker(id, worker);
        Some(id)
    }

    /// This size or, where there is no room for it, the next smaller one for which there is.
    fn with_room(&self, function: usize, size: usize) -> usize {
        let fits = |size: &usize| self.placement.place(&self.state, &self.demand(function, *size)).is_ok();
        (0..=size).rev().find(fits).unwrap_or(size)
    }

    fn demand(&self, function: usize, size: usize) -> Demand {
        let spec = &self.scenario.functions[function];
        let shape = self.shapes[function][size];
        let need = Need { quota: shape.quota, ..Need::new(shape.request, shape.limit, spec.memory) };
        Demand::new(spec.name.clone(), Kind::Inference, 1, need)
    }

    /// Brings a GPU up to date after something on it changed. It was settled before the change.
    fn divide(&mut self, gpu: GpuId) {
        let mut ends = std::mem::take(&mut self.ends);
        let ledger = &self.ledger;
        let check = |grants: &[_]| ledger.divided(gpu.index(), grants);
        self.cluster.divide(gpu, self.now, self.policy.as_ref(), &self.latencies, &mut ends, check);
        for End { at, worker, version } in ends.drain(..) {
            self.events.push(at, Event::End { worker, version });
        }
        self.ends = ends;
    }

    fn arrive(&mut self, function: usize) {
        let next = self.arrivals[function].after(self.now);
        self.events.push(next, Event::Arrival(function));
        self.ledger.arrived();
        self.arrived[function] += 1;
        self.tallies[function].requests += 1;
        self.sample.0 += 1;
        let (mut some, mut ready) = (false, false);
        for worker in self.cluster.workers.values().filter(|worker| worker.function == function) {
            some |= worker.state != State::Draining;
            ready |= worker.state == State::Ready;
        }
        self.tallies[function].met_nobody += u64::from(!some);
        let objective = self.scenario.functions[function].objective;
        if !ready && !self.policy.admits(self.now, function, objective) {
            self.refuse(function, self.now);
            return;
        }
        let now = self.now;
        self.tell(function, |pool, wants| pool.arrive(now, wants));
    }

    /// Tells a function's pool something and does what it wants done.
    fn tell(&mut self, function: usize, what: impl FnOnce(&mut Pool, &mut Vec<Want>)) {
        let mut wants = std::mem::take(&mut self.wants);
        what(&mut self.pools[function], &mut wants);
        for want in wants.drain(..) {
            match want {
                Want::Run(batch) => self.serve(function, batch),
                Want::Refuse(arrived) => self.refuse(function, arrived),
            }
        }
        self.wants = wants;
        self.timers.set(function, self.pools[function].next_timer());
    }

    fn refuse(&mut self, function: usize, arrived: Time) {
        self.ledger.refused();
        self.settled(function, arrived, true);
    }

    /// A request is over. Those that came before anything was measured do not count.
    fn settled(&mut self, function: usize, arrived: Time, late: bool) {
        if arrived >= Time::ZERO + self.scenario.warmup {
            self.tallies[function].late += u64::from(late);
            self.sample.1 += 1;
            self.sample.2 += u64::from(late);
        }
    }

    fn serve(&mut self, function: usize, batch: Batch) {
        let Batch { worker: id, arrivals, deadline, behind } = batch;
        let worker = &self.cluster.workers[&id];
        let (gpu, slower, stretched) = (worker.gpu, worker.slower, worker.share.permille());
        let (size, left) = (arrivals.len(), (deadline - self.now).seconds());
        self.tallies[function].batches += 1;
        self.tallies[function].batched += size as u64;
        self.cluster.settle(gpu, self.now);
        self.cluster.begin(id, arrivals, policies::Batch { size, left, slower, behind, stretched });
        self.changed.insert(gpu);
    }

    fn end(&mut self, id: InstanceId, version: u64) {
        let current = self.cluster.workers.get(&id).and_then(|worker| worker.running.as_ref());
        if current.is_none_or(|running| running.version != version) {
            return;
        }
        let worker = &self.cluster.workers[&id];
        let (gpu, function, state) = (worker.gpu, worker.function, worker.state);
        self.cluster.settle(gpu, self.now);
        let running = self.cluster.end(id);
        self.ledger.answered(running.arrivals.len());
        let objective = self.scenario.functions[function].objective;
        for arrived in &running.arrivals {
            let took = self.now - *arrived;
            self.settled(function, *arrived, took > objective);
            self.tallies[function].latencies.record(took.nanos() / 1_000).expect("the histogram grows");
        }
        self.changed.insert(gpu);
        let (now, slower) = (self.now, self.cluster.workers[&id].slower);
        self.tell(function, |pool, wants| pool.done(now, id, slower, wants));
        if state == State::Draining {
            self.leave(id);
        }
    }

    fn ready(&mut self, id: InstanceId) {
        // One that was removed while it started is gone.
        if let Some(worker) = self.cluster.workers.get_mut(&id) {
            worker.state = State::Ready;
            let (now, function) = (self.now, worker.function);
            let planned = planned(&worker.shape, &self.latencies[function]);
            self.tell(function, |pool, wants| pool.join(now, id, planned, wants));
        }
    }

    fn leave(&mut self, id: InstanceId) {
        self.count_gpus(self.now);
        self.cluster.remove_worker(id);
        self.state.stop(id).expect("a worker was placed");
    }

    fn look(&mut self) {
        self.events.push(self.now + self.policy.every(), Event::Look);
        let passed = (self.now - self.last_look).seconds();
        self.count_workers(self.now, true);
        for gpu in 0..self.scenario.gpus {
            self.cluster.settle(GpuId::new(gpu), self.now);
        }
        for worker in self.cluster.workers.values_mut() {
            let kept = BUSY_KEPT.powf(passed / 0.1);
            worker.busy_mean = worker.busy_mean * kept + worker.busy / passed * (1.0 - kept);
        }
        for function in 0..self.scenario.functions.len() {
            let view = self.view(function, passed);
            for action in self.policy.look(self.now, function, &view) {
                self.act(function, action);
            }
        }
        for worker in self.cluster.workers.values_mut() {
            worker.busy = 0.0;
        }
        self.last_look = self.now;
        self.ledger.placed(&self.state, self.cluster.workers.len(), self.placed_jobs());
    }

    fn view(&mut self, function: usize, passed: f64) -> View {
        let own = self.cluster.workers.iter().filter(|(_, worker)| worker.function == function);
        let seen = |(id, worker): (&InstanceId, &Worker)| {
            let free = (1_000.0 - self.cluster.neighbours(*id)) as u32;
            let ceiling = free.clamp(worker.shape.request, worker.shape.limit);
            Seen {
                id: *id,
                state: worker.state,
                size: worker.size,
                share: worker.share,
                ceiling: Share::from_permille(ceiling).expect("a shape has a share"),
                alone: self.state.rooms()[worker.gpu.index()].parts == 1,
                busy: (worker.busy / passed * 1e3) as u32,
            }
        };
        let workers = own.map(seen).collect();
        let arrivals = std::mem::take(&mut self.arrived[function]);
        View { arrivals, waiting: self.pools[function].waiting() as u64, workers }
    }

    fn act(&mut self, function: usize, action: Action) {
        match action {
            Action::Stretch { worker, share, .. } => {
                let worker = self.cluster.workers.get_mut(&worker).expect("policies know who is there");
                worker.share = share;
                if worker.running.is_some() {
                    self.changed.insert(worker.gpu);
                }
            }
            Action::Add { size, .. } => {
                let size = self.with_room(function, size);
                if let Some(id) = self.start(function, size) {
                    self.tallies[function].cold_starts += 1;
                    let ready = self.now + self.scenario.functions[function].cold_start;
                    self.events.push(ready, Event::Ready(id));
                }
            }
            Action::Remove { worker: id, .. } => {
                let worker = self.cluster.workers.get_mut(&id).expect("policies know who is there");
                let known = std::mem::replace(&mut worker.state, State::Draining) == State::Ready;
                let (now, idle) = (self.now, worker.running.is_none());
                if known {
                    self.tell(function, |pool, wants| pool.leave(now, id, wants));
                }
                if idle {
                    self.leave(id);
                }
            }
        }
    }

    fn count_gpus(&mut self, now: Time) {
        self.gpu_seconds += self.state.in_use() as f64 * (now - self.gpus_since).seconds();
        self.gpus_since = now;
    }

    /// Adds up workers since the last look, or starts over.
    fn count_workers(&mut self, now: Time, add: bool) {
        let passed = (now - self.last_look).seconds();
        if add {
            for worker in self.cluster.workers.values() {
                self.tallies[worker.function].worker_seconds += passed;
            }
        }
        self.last_look = now;
    }

    fn sample(&mut self) {
        let each = self.scenario.duration.scale(1, SAMPLES as u64).max(Span::from_nanos(1));
        self.events.push(self.now + each, Event::Sample);
        let (came, settled, late) = std::mem::take(&mut self.sample);
        let begins = self.now - each - (Time::ZERO + self.scenario.warmup);
        self.samples.push(Sample {
            second: begins.seconds(),
            rate: came as f64 / each.seconds(),
            violations: part(late as f64, settled as f64),
            gpus: self.state.in_use(),
            workers: self.cluster.workers.len(),
            training: self.cluster.training_speed(),
        });
    }

    fn report(&self, name: &str, before: &[f64], trained: &[f64]) -> Report {
        let seconds = self.scenario.duration.seconds();
        let sum = |of: fn(&Tally) -> u64| self.tallies.iter().map(of).sum::<u64>();
        let (requests, late) = (sum(|tally| tally.requests), sum(|tally| tally.late));
        let speeds: Vec<f64> = trained.iter().zip(before).map(|(after, before)| (after - before) / seconds).collect();
        let gpus: f64 = self.scenario.jobs.iter().zip(&speeds).map(|(job, speed)| job.gpus as f64 * speed).sum();
        let jobs = self.scenario.jobs.iter().zip(&speeds);
        let functions = self.scenario.functions.iter().zip(&self.tallies);
        let in_time = requests.saturating_sub(late) as f64 / seconds;
        let mean_gpus = self.gpu_seconds / seconds;
        Report {
            policy: name.to_owned(),
            seed: self.scenario.seed,
            requests,
            violations: part(late as f64, requests as f64),
            gpu_seconds: self.gpu_seconds,
            peak_gpus: self.peak_gpus,
            fragmentation: if self.gpu_seconds > 0.0 { 1.0 - self.cluster.useful / self.gpu_seconds } else { 0.0 },
            cold_starts: sum(|tally| tally.cold_starts),
            unplaced: self.unplaced,
            training: (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64),
            throughput: in_time,
            throughput_per_gpu: part(in_time, mean_gpus),
            training_per_gpu: part(gpus, mean_gpus),
            functions: functions.map(|(function, tally)| tally.report(&function.name, seconds)).collect(),
            jobs: jobs.map(|(job, speed)| JobReport { name: job.name.clone(), speed: *speed }).collect(),
            samples: self.samples.clone(),
        }
    }
}
