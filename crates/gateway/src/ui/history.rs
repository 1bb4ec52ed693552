//! The last ten minutes, a sample a second, of every model, worker and GPU.
//!
//! Invariants:
//! 1. `seq` is the number of whole seconds since the history began, whenever it was asked to sample: a sample that comes
//!    late stands for all seconds that it missed, one that comes early for none.
//! 2. What was kept is at most `KEEP` seconds old. A second without anything in it takes no memory.
//! 3. A model that left is kept for as long, so that it has its past when it comes back; then it is forgotten.

use super::counters::{Answers, Counters, Level, Sample};
use super::latency::{Objective, merge, percentiles};
use crate::metrics::gpu::GpuView;
use crate::statistics::{LATENCY_BUCKETS, Statistics};
use policy::Span;
use rpc::{Catalog, Overview, WorkerId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Seconds that are kept.
pub(super) const KEEP: u64 = 600;
/// Seconds whose latencies are merged.
const RECENT: u64 = 10;
/// News of workers older than this are none.
const STALE: Duration = Duration::from_secs(3);

/// What is known of the last ten minutes.
pub(super) struct History {
    began: Instant,
    /// The number of the last sample.
    pub(super) seq: u64,
    models: BTreeMap<(String, u32), Model>,
    workers: BTreeMap<WorkerId, Worker>,
    gpus: BTreeMap<(String, u32), Busy>,
}

/// What a sample is taken of.
pub(super) struct Scene<'scene> {
    /// The models there are.
    pub(super) catalog: &'scene Catalog,
    /// Workers and queues.
    pub(super) overview: &'scene Overview,
    /// When that was heard.
    pub(super) looked: Instant,
    /// The GPUs there are.
    pub(super) gpus: &'scene [GpuView],
    /// Where the counters of a model are.
    pub(super) statistics: &'scene dyn Fn(&str, u32) -> Arc<Statistics>,
}

/// A model version.
pub(super) struct Model {
    statistics: Arc<Statistics>,
    counters: Counters,
    /// By number, those in which something happened.
    samples: VecDeque<(u64, Sample)>,
    /// The answers of the last seconds in which there were any.
    answers: VecDeque<(u64, Answers)>,
    /// The last sample in which it was there.
    there: u64,
    /// Requests of it that wait.
    waiting: u64,
    /// What answers may take.
    objective: Span,
}

/// Whole percents of busy seconds, the last one for the last sample.
#[derive(Default)]
pub(super) struct Busy(VecDeque<u8>);

struct Worker {
    looked: Instant,
    busy: Span,
    percents: Busy,
    /// The last sample in which it was there.
    there: u64,
}

impl History {
    /// An empty one that begins now.
    pub(super) fn new(now: Instant) -> History {
        let (models, workers, gpus) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        History { began: now, seq: 0, models, workers, gpus }
    }

    /// Takes a sample. Returns whether a second was over.
    pub(super) fn sample(&mut self, now: Instant, scene: &Scene<'_>) -> bool {
        // Half a second to either side, so that a timer that is a little early or late is neither.
        let seq = (now.duration_since(self.began).as_millis() as u64 + 500) / 1_000;
        let seconds = seq.saturating_sub(self.seq);
        if seconds == 0 {
            return false;
        }
        self.seq = seq;
        self.sample_models(seconds, scene);
        self.sample_workers(now, seconds, scene);
        self.sample_gpus(seconds, scene);
        true
    }

    fn sample_models(&mut self, seconds: u64, scene: &Scene<'_>) {
        let seq = self.seq;
        let waiting: BTreeMap<u32, usize> = scene.overview.queues.iter().copied().collect();
        for entry in &scene.catalog.entries {
            let key = (entry.spec.name.clone(), entry.spec.version);
            let statistics = || (scene.statistics)(&entry.spec.name, entry.spec.version);
            let model = self.models.entry(key).or_insert_with(|| Model::new(statistics()));
            (model.there, model.objective) = (seq, entry.spec.slo);
            model.waiting = waiting.get(&entry.model).copied().unwrap_or(0) as u64;
        }
        self.models.retain(|_, model| {
            if model.there < seq {
                model.waiting = 0;
            }
            model.sample(seq, seconds);
            seq - model.there < KEEP
        });
    }

    fn sample_workers(&mut self, now: Instant, seconds: u64, scene: &Scene<'_>) {
        for view in &scene.overview.workers {
            let worker = self.workers.entry(view.worker).or_insert_with(|| Worker {
                looked: scene.looked,
                busy: view.busy,
                percents: Busy::default(),
                there: 0,
            });
            let passed = scene.looked.duration_since(worker.looked).as_secs_f64();
            let part = match passed {
                passed if passed > 0.0 => (view.busy - worker.busy).seconds() / passed,
                _ if now.duration_since(scene.looked) < STALE => worker.percents.last(),
                _ => 0.0,
            };
            worker.percents.push(part, seconds);
            (worker.looked, worker.busy, worker.there) = (scene.looked, view.busy, self.seq);
        }
        self.workers.retain(|_, worker| worker.there == self.seq);
    }

    fn sample_gpus(&mut self, seconds: u64, scene: &Scene<'_>) {
        let mut before = std::mem::take(&mut self.gpus);
        for gpu in scene.gpus {
            let key = (gpu.node.clone(), gpu.gpu);
            let mut busy = before.remove(&key).unwrap_or_default();
            busy.push(gpu.utilization, seconds);
            self.gpus.insert(key, busy);
        }
    }

    /// A model version, if there is anything about it.
    pub(super) fn model(&self, name: &str, version: u32) -> Option<&Model> {
        self.models.get(&(name.to_string(), version))
    }

    /// How busy a worker was in each second after a number.
    pub(super) fn worker(&self, worker: WorkerId, after: u64) -> impl Iterator<Item = u8> {
        let percents = self.workers.get(&worker).map(|worker| &worker.percents);
        percents.into_iter().flat_map(move |percents| percents.since(self.seq - after))
    }

    /// How busy a GPU was in each second after a number.
    pub(super) fn gpu(&self, gpu: &GpuView, after: u64) -> impl Iterator<Item = u8> {
        let percents = self.gpus.get(&(gpu.node.clone(), gpu.gpu));
        percents.into_iter().flat_map(move |percents| percents.since(self.seq - after))
    }
}

/// The number after which samples up to `seq` are wanted by someone who has those up to `since`.
pub(super) fn after(seq: u64, since: u64) -> u64 {
    let oldest = seq.saturating_sub(KEEP);
    if since > seq { oldest } else { since.max(oldest) }
}

impl Model {
    fn new(statistics: Arc<Statistics>) -> Model {
        // What was counted before anybody looked did not happen in the second that ends now.
        let counters = Counters::read(&statistics);
        let (samples, answers) = (VecDeque::new(), VecDeque::new());
        Model { statistics, counters, samples, answers, there: 0, waiting: 0, objective: Span::ZERO }
    }

    fn sample(&mut self, seq: u64, seconds: u64) {
        let pending = self.statistics.pending.load(Relaxed);
        let level = Level {
            waiting: self.waiting,
            running: pending.saturating_sub(self.waiting),
            objective_ms: self.objective.millis(),
        };
        let (sample, answers) = self.counters.advance(Counters::read(&self.statistics), seconds, level);
        if !sample.is_empty() {
            let first = (seq - seconds).max(seq.saturating_sub(KEEP)) + 1;
            self.samples.extend((first..=seq).map(|seq| (seq, sample)));
        }
        if answers.latencies.iter().any(|count| *count > 0) {
            self.answers.push_back((seq, answers));
        }
        while self.samples.front().is_some_and(|(kept, _)| kept + KEEP <= seq) {
            self.samples.pop_front();
        }
        while self.answers.front().is_some_and(|(kept, _)| kept + RECENT <= seq) {
            self.answers.pop_front();
        }
    }

    /// Its samples after a number, without those in which nothing happened.
    pub(super) fn samples(&self, after: u64) -> impl Iterator<Item = &(u64, Sample)> {
        let first = self.samples.partition_point(|(seq, _)| *seq <= after);
        self.samples.range(first..)
    }

    /// Percentiles of the last seconds together, in milliseconds.
    pub(super) fn latency_ms(&self) -> Option<[f64; 3]> {
        let mut all = [0; LATENCY_BUCKETS];
        self.answers.iter().for_each(|(_, answers)| merge(&mut all, &answers.latencies));
        let late = self.answers.iter().map(|(_, answers)| answers.late).sum();
        percentiles(&all, Objective { millis: self.objective.millis(), late })
    }
}

impl Busy {
    fn push(&mut self, part: f64, seconds: u64) {
        let percent = (part.clamp(0.0, 1.0) * 100.0).round() as u8;
        for _ in 0..seconds.min(KEEP) {
            self.0.push_back(percent);
        }
        let over = self.0.len().saturating_sub(KEEP as usize);
        self.0.drain(..over);
    }

    fn last(&self) -> f64 {
        f64::from(self.0.back().copied().unwrap_or(0)) / 100.0
    }

    fn since(&self, seconds: u64) -> impl Iterator<Item = u8> {
        let skip = self.0.len().saturating_sub(seconds as usize);
        self.0.range(skip..).copied()
    }
}

#[cfg(test)]
mod tests;
