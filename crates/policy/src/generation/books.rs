//! The books: sequences, workers and caches. What must hold whatever a policy does is asserted here.
//!
//! 1. A sequence waits for one worker, or is on one, or its model has no worker; it leaves once.
//! 2. What sequences hold in a cache, what a running step adds included, never exceeds it.
//! 3. A worker runs one step at a time, of a model that it has, with sequences that are its own.
//! 4. A sequence fits into the cache of its worker alone, at its longest: eviction can always make room.

use super::lengths::Lengths;
use super::sequence::{Sequence, Stage};
use super::step_time::{Learned, Load, StepTime};
use crate::{GpuId, GpuType, ModelId, RequestId, Span, Time};
use std::collections::BTreeMap;

/// A model and what was learned of it.
#[derive(Clone, Debug)]
pub struct ModelState {
    /// Tokens of prompt and answer, at most.
    pub context: u32,
    /// Bytes of cache for each token.
    pub token_bytes: u64,
    /// How long steps take at first sight.
    pub told: StepTime,
    /// How long steps take, by type of worker.
    pub(super) learned: Vec<Learned>,
    /// How long answers get.
    pub lengths: Lengths,
}

/// A step that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its serial number.
    pub step: u64,
    /// Its model.
    pub model: ModelId,
    /// What it is made of.
    pub load: Load,
    /// When it is expected to be over.
    pub finish: Time,
    /// Who takes part. Some may have left.
    pub members: Vec<RequestId>,
}

/// A worker: a GPU, or a part of one, with models in its memory.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Whether it is there.
    pub alive: bool,
    /// Its type.
    pub kind: GpuType,
    /// Bytes for caches.
    pub cache: u64,
    /// Bytes in use.
    pub used: u64,
    /// Models that it has.
    pub models: Vec<ModelId>,
    /// Sequences that hold cache, in the order of admission.
    pub active: Vec<RequestId>,
    /// Sequences that wait for it, in the order of arrival.
    pub waiting: Vec<RequestId>,
    /// What it runs.
    pub running: Option<Running>,
    /// When the policy looks at it again if nothing happens before.
    pub wake: Time,
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Models by id.
    pub models: Vec<ModelState>,
    /// Workers by id.
    pub workers: Vec<Worker>,
    /// Sequences that have not ended.
    pub sequences: BTreeMap<RequestId, Sequence>,
    /// Sequences whose model no worker has, and until when they wait for one.
    pub stranded: BTreeMap<RequestId, Time>,
    /// How long it takes from a decision until a worker can start what was decided.
    pub lead: Span,
    pub(super) steps: u64,
}

impl Books {
    /// A sequence that has not ended.
    pub fn sequence(&self, id: RequestId) -> &Sequence {
        self.sequences.get(&id).expect("the sequence has not ended")
    }

    pub(super) fn sequence_mut(&mut self, id: RequestId) -> &mut Sequence {
        self.sequences.get_mut(&id).expect("the sequence has not ended")
    }

    /// What was learned of a model's steps on a worker.
    pub fn learned(&self, model: ModelId, worker: GpuId) -> &Learned {
        &self.models[model.index()].learned[self.workers[worker.index()].kind.index()]
    }

    /// Workers that are there and have a model, by id.
    pub fn with_model(&self, model: ModelId) -> impl Iterator<Item = GpuId> + '_ {
        let has = move |worker: &&(usize, &Worker)| worker.1.alive && worker.1.models.contains(&model);
        self.workers.iter().enumerate().filter(move |worker| has(&worker)).map(|(index, _)| GpuId::new(index))
    }

    /// Tokens that fit into the cache of a worker.
    pub fn capacity(&self, model: ModelId, worker: GpuId) -> u32 {
        let tokens = self.workers[worker.index()].cache / self.models[model.index()].token_bytes.max(1);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Tokens that a sequence of a model can have, in any worker that is there: `None` when there is none.
    pub fn room(&self, model: ModelId) -> Option<u32> {
        let largest = self.with_model(model).map(|worker| self.capacity(model, worker)).max()?;
        Some(largest.min(self.models[model.index()].context))
    }

    /// Whether a sequence fits into the cache of a worker, alone and at its longest.
    pub fn fits(&self, id: RequestId, worker: GpuId) -> bool {
        let sequence = self.sequence(id);
        let there = &self.workers[worker.index()];
        there.alive
            && there.models.contains(&sequence.request.model)
            && sequence.longest() <= self.capacity(sequence.request.model, worker)
    }

    /// Bytes of cache that so many tokens of a sequence take.
    pub fn bytes(&self, id: RequestId, tokens: u32) -> u64 {
        self.models[self.sequence(id).request.model.index()].token_bytes * u64::from(tokens)
    }

    /// Bytes that are free in a worker's cache.
    pub fn free(&self, worker: GpuId) -> u64 {
        let worker = &self.workers[worker.index()];
        worker.cache - worker.used
    }

    /// Whether a worker can be given a step.
    pub fn is_idle(&self, worker: GpuId) -> bool {
        let worker = &self.workers[worker.index()];
        worker.alive && worker.running.is_none()
    }

    /// What a step with these sequences would be made of.
    pub fn load(&self, prefill: &[(RequestId, u32)], decode: &[RequestId]) -> Load {
        let mut load = Load { sequences: (prefill.len() + decode.len()) as u64, ..Load::default() };
        for (id, tokens) in prefill {
            load.prefill += u64::from(*tokens);
            let cached = u64::from(self.sequence(*id).cached);
            load.cached += cached;
            load.pairs += u64::from(*tokens) * (cached + u64::from(*tokens) / 2);
        }
        for id in decode {
            load.cached += u64::from(self.sequence(*id).cached);
        }
        load
    }

    /// Gives cache back and takes a sequence off the worker that it is on or waits for.
    pub(super) fn detach(&mut self, id: RequestId) {
        let sequence = self.sequence(id);
        let bytes = self.bytes(id, sequence.cached);
        let Some(worker) = sequence.worker else {
            self.stranded.remove(&id);
            return;
        };
        let worker = &mut self.workers[worker.index()];
        worker.used -= bytes;
        worker.active.retain(|other| *other != id);
        worker.waiting.retain(|other| *other != id);
        let sequence = self.sequence_mut(id);
        (sequence.stage, sequence.cached, sequence.worker, sequence.in_step) = (Stage::Waiting, 0, None, false);
    }

    /// A sequence leaves.
    pub(super) fn remove(&mut self, id: RequestId) -> Sequence {
        self.detach(id);
        self.sequences.remove(&id).expect("it was there")
    }

    /// Lets a sequence that is nowhere wait for a worker.
    pub(super) fn queue(&mut self, id: RequestId, worker: GpuId) {
        assert!(self.fits(id, worker), "{id:?} does not fit on {worker:?}");
        let arrival = (self.sequence(id).request.arrival, id);
        let place = {
            let waiting = &self.workers[worker.index()].waiting;
            waiting.partition_point(|other| (self.sequence(*other).request.arrival, *other) < arrival)
        };
        self.workers[worker.index()].waiting.insert(place, id);
        self.sequence_mut(id).worker = Some(worker);
    }

    /// Takes a sequence into a step: what the step adds to the cache counts from now on.
    pub(super) fn join(&mut self, id: RequestId, worker: GpuId, tokens: u32, stage: Stage) {
        let bytes = self.bytes(id, tokens);
        let sequence = self.sequence_mut(id);
        assert!(sequence.worker == Some(worker) && !sequence.in_step, "{id:?} cannot join a step of {worker:?}");
        assert!(tokens > 0 && tokens <= sequence.remaining(), "{id:?} has no {tokens} tokens to process");
        assert!(
            stage == Stage::Prefill || sequence.stage == Stage::Decode && sequence.remaining() == 1,
            "{id:?} is not ready to decode"
        );
        let waited = sequence.stage == Stage::Waiting;
        if sequence.stage != Stage::Decode {
            sequence.stage = Stage::Prefill;
        }
        sequence.cached += tokens;
        sequence.in_step = true;
        let there = &mut self.workers[worker.index()];
        there.used += bytes;
        assert!(there.used <= there.cache, "the cache of {worker:?} holds {} of {} bytes", there.used, there.cache);
        if waited {
            there.waiting.retain(|other| *other != id);
            there.active.push(id);
        }
    }

    /// Whether a worker has anything to do.
    pub(super) fn has_work(&self, worker: GpuId) -> bool {
        let worker = &self.workers[worker.index()];
        worker.alive && !(worker.active.is_empty() && worker.waiting.is_empty())
    }
}
