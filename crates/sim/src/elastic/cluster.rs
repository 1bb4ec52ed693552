//! GPUs at work: batches that go on at the speed of their share, training in the rest.
//!
//! Between two events nothing changes, so a GPU is brought up to date when something on it does: what was done is added
//! up, the policy divides the GPU anew, and each batch has a new end.

use super::interference::Slowdown;
use super::latency::Latency;
use super::policies::{Batch, Claim, Grant, Policy, Shape};
use super::scenario::{Job, Scenario};
use policy::autoscale::State;
use policy::surface::Share;
use policy::{GpuId, InstanceId, Span, Time};
use std::collections::BTreeMap;

/// What a batch leaves of what is known of how slow others were.
const SLOWER_KEPT: f64 = 0.7;

/// A worker and what it runs.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) function: usize,
    pub(super) size: usize,
    pub(super) shape: Shape,
    pub(super) gpu: GpuId,
    pub(super) state: State,
    /// As it was stretched.
    pub(super) share: Share,
    pub(super) running: Option<Running>,
    /// Busy since the last look, in seconds.
    pub(super) busy: f64,
    /// The part of the time in which it was busy, over the last looks.
    pub(super) busy_mean: f64,
    /// How many times as long as planned its last batches took, neighbours being why.
    pub(super) slower: f64,
}

/// A batch that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// When each request came, the first first.
    pub(super) arrivals: Vec<Time>,
    pub(super) batch: Batch,
    /// The part that is done.
    done: f64,
    /// Parts a second.
    speed: f64,
    /// The part of the GPU that it computes on.
    useful: f64,
    /// How many times as long as planned it takes at present, neighbours being why.
    slower: f64,
    /// Which of its ends is the last that was told.
    pub(super) version: u64,
}

/// A job and what its parts have.
#[derive(Debug)]
struct Training {
    spec: Job,
    /// Thousandths of the GPU, by part.
    shares: Vec<f64>,
    done: f64,
    since: Time,
}

#[derive(Debug, Default)]
struct Gpu {
    workers: Vec<InstanceId>,
    /// Job and part.
    parts: Vec<(usize, usize)>,
    since: Time,
}

/// An end of a batch that is to be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: Time,
    pub(super) worker: InstanceId,
    pub(super) version: u64,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) workers: BTreeMap<InstanceId, Worker>,
    gpus: Vec<Gpu>,
    jobs: Vec<Training>,
    /// GPU seconds in which something was computed.
    pub(super) useful: f64,
    slowdown: Slowdown,
    versions: u64,
    claims: Vec<Claim>,
    grants: Vec<Grant>,
}

impl Cluster {
    pub(super) fn new(scenario: &Scenario) -> Cluster {
        let training =
            |spec: &Job| Training { spec: spec.clone(), shares: vec![0.0; spec.gpus], done: 0.0, since: Time::ZERO };
        Cluster {
            workers: BTreeMap::new(),
            gpus: (0..scenario.gpus).map(|_| Gpu::default()).collect(),
            jobs: scenario.jobs.iter().map(training).collect(),
            useful: 0.0,
            slowdown: Slowdown::new(scenario.interference),
            versions: 0,
            claims: Vec::new(),
            grants: Vec::new(),
        }
    }

    pub(super) fn add_worker(&mut self, id: InstanceId, worker: Worker) {
        self.gpus[worker.gpu.index()].workers.push(id);
        self.workers.insert(id, worker);
    }

    pub(super) fn remove_worker(&mut self, id: InstanceId) {
        let worker = self.workers.remove(&id).expect("a worker that goes is there");
        assert!(worker.running.is_none(), "a worker went with a batch");
        self.gpus[worker.gpu.index()].workers.retain(|other| *other != id);
    }

    pub(super) fn add_part(&mut self, job: usize, part: usize, gpu: GpuId) {
        self.gpus[gpu.index()].parts.push((job, part));
    }

    /// What a job did, in seconds of what it does alone.
    pub(super) fn trained(&mut self, now: Time) -> Vec<f64> {
        (0..self.jobs.len()).map(|job| self.train(job, now)).collect()
    }

    /// What all jobs do now, of what they do alone.
    pub(super) fn training_speed(&self) -> f64 {
        let sum: f64 = self.jobs.iter().map(Training::speed).sum();
        sum / self.jobs.len().max(1) as f64
    }

    fn train(&mut self, job: usize, now: Time) -> f64 {
        let job = &mut self.jobs[job];
        job.done += job.speed() * (now - job.since).seconds();
        job.since = now;
        job.done
    }

    /// The part of a GPU that workers but one were busy on, over the last looks, in thousandths.
    pub(super) fn neighbours(&self, id: InstanceId) -> f64 {
        let gpu = &self.gpus[self.workers[&id].gpu.index()];
        let others = gpu.workers.iter().filter(|other| **other != id).map(|other| &self.workers[other]);
        others.map(|other| other.busy_mean * f64::from(other.share.permille())).sum()
    }

    pub(super) fn begin(&mut self, id: InstanceId, arrivals: Vec<Time>, batch: Batch) {
        let worker = self.workers.get_mut(&id).expect("a worker that runs is there");
        assert!(worker.running.is_none() && worker.state != State::Starting, "a worker runs one batch at a time");
        worker.running = Some(Running { arrivals, batch, done: 0.0, speed: 0.0, useful: 0.0, slower: 1.0, version: 0 });
    }

    /// Takes off a batch that is done.
    pub(super) fn end(&mut self, id: InstanceId) -> Running {
        let worker = self.workers.get_mut(&id).expect("a worker that runs is there");
        let running = worker.running.take().expect("a batch that ends has run");
        worker.slower = worker.slower * SLOWER_KEPT + running.slower * (1.0 - SLOWER_KEPT);
        assert!(running.done > 0.999, "a batch ended when {} of it was done", running.done);
        running
    }

    /// Adds up what was done on a GPU until now.
    pub(super) fn settle(&mut self, gpu: GpuId, now: Time) {
        let state = &mut self.gpus[gpu.index()];
        let seconds = (now - state.since).seconds();
        state.since = now;
        for id in &state.workers {
            let worker = self.workers.get_mut(id).expect("a worker on a GPU is there");
            if let Some(running) = &mut worker.running {
                running.done = (running.done + running.speed * seconds).min(1.0);
                self.useful += running.useful * seconds;
                worker.busy += seconds;
            }
        }
        for (job, part) in &state.parts {
            let Training { spec, shares, .. } = &self.jobs[*job];
            self.useful += shares[*part].min(f64::from(spec.limit.permille())) / 1e3 * seconds;
        }
    }

    /// Settles all GPUs and jobs.
    pub(super) fn settle_all(&mut self, now: Time) {
        (0..self.gpus.len()).for_each(|gpu| self.settle(GpuId::new(gpu), now));
        (0..self.jobs.len()).for_each(|job| {
            self.train(job, now);
        });
    }

    /// Divides a settled GPU anew; ends of its batches are added to `ends`. What was given is handed to `check`.
    pub(super) fn divide(
        &mut self,
        gpu: GpuId,
        now: Time,
        policy: &dyn Policy,
        latencies: &[Latency],
        ends: &mut Vec<End>,
        check: impl FnOnce(&[Grant]),
    ) {
        let mut claims = std::mem::take(&mut self.claims);
        let mut grants = std::mem::take(&mut self.grants);
        claims.clear();
        grants.clear();
        let (workers, parts) = (self.gpus[gpu.index()].workers.clone(), self.gpus[gpu.index()].parts.clone());
        let mut active: Vec<InstanceId> = Vec::with_capacity(workers.len());
        for id in workers {
            let worker = &self.workers[&id];
            if let Some(running) = &worker.running {
                let Shape { request, limit, quota, .. } = worker.shape;
                let batch = Batch { stretched: worker.share.permille(), ..running.batch };
                let wanted = policy.wanted(&worker.shape, &latencies[worker.function], batch);
                let late = policy.late(&worker.shape, &latencies[worker.function], batch);
                let reach = policy.reach(&worker.shape, &latencies[worker.function], batch.size);
                claims.push(Claim { training: false, request, limit, quota, wanted, late, reach });
                active.push(id);
            }
        }
        for (job, _) in &parts {
            let (request, limit) = policy.training(&self.jobs[*job].spec);
            let (wanted, reach) = (limit, limit);
            claims.push(Claim { training: true, request, limit, quota: 1_000, wanted, late: false, reach });
        }
        policy.divide(&claims, &mut grants);
        check(&grants);
        for (grant, (job, part)) in grants[active.len()..].iter().zip(&parts) {
            self.train(*job, now);
            self.jobs[*job].shares[*part] = grant.share * grant.part;
        }
        let uses = |index: usize| {
            let (id, grant) = (active[index], &grants[index]);
            let worker = &self.workers[&id];
            let size = worker.running.as_ref().map_or(1, |running| running.batch.size);
            let latency = &latencies[worker.function];
            let seconds = latency.seconds(size, grant.share);
            (seconds / grant.part.max(1e-6), latency.work(size) / seconds * grant.part)
        };
        let alone: Vec<(f64, f64)> = (0..active.len()).map(uses).collect();
        let trained = |(grant, (job, _)): (&Grant, &(usize, usize))| {
            (grant.share * grant.part).min(f64::from(self.jobs[*job].spec.limit.permille())) / 1e3
        };
        let all: f64 = alone.iter().map(|(_, useful)| useful).sum::<f64>()
            + grants[active.len()..].iter().zip(&parts).map(trained).sum::<f64>();
        for ((id, (seconds, useful)), claim) in active.into_iter().zip(alone).zip(&claims) {
            let beside = self.slowdown.of(useful, all - useful);
            self.versions += 1;
            let version = self.versions;
            let worker = self.workers.get_mut(&id).expect("a worker on a GPU is there");
            let running = worker.running.as_mut().expect("it runs");
            let (latency, size) = (&latencies[worker.function], running.batch.size);
            running.speed = 1.0 / (seconds * beside);
            running.useful = useful / beside;
            // What it wanted less than its limit is no neighbour's doing, and what it has beyond may go at any time.
            let planned = latency.seconds(size, f64::from(claim.wanted));
            running.slower = (seconds * beside / planned).max(1.0);
            running.version = version;
            let left = (1.0 - running.done).max(0.0) / running.speed;
            // Rounded up, so that at its end it is done.
            ends.push(End { at: now + Span::from_secs_f64(left) + Span::from_nanos(1), worker: id, version });
        }
        (self.claims, self.grants) = (claims, grants);
    }
}

impl Training {
    /// A job is as slow as its slowest part.
    fn speed(&self) -> f64 {
        self.shares.iter().map(|share| self.spec.speed(*share)).fold(f64::INFINITY, f64::min).min(1.0)
    }
}
