//! What the policies to compare with have in common: models of a worker in turn, decodes first, then prompts in the order of
//! arrival.

use crate::generation::{Context, Stage};
use crate::{GpuId, ModelId, RequestId};

/// Whose turn it is among the models of each worker: engines beside each other on one GPU, one step each.
#[derive(Debug, Default)]
pub(super) struct Turns(Vec<usize>);

impl Turns {
    /// Offers the worker to its models, beginning behind the last one served, until one takes it.
    pub(super) fn offer(
        &mut self,
        context: &mut Context,
        worker: GpuId,
        mut begins: impl FnMut(&mut Context, ModelId) -> bool,
    ) {
        if self.0.len() <= worker.index() {
            self.0.resize(worker.index() + 1, 0);
        }
        let models = context.books.workers[worker.index()].models.clone();
        for offset in 1..=models.len() {
            let place = (self.0[worker.index()] + offset) % models.len();
            if begins(context, models[place]) {
                self.0[worker.index()] = place;
                return;
            }
        }
    }
}

/// Sequences of a model that hold cache on a worker, in the order of admission.
pub(super) fn active(context: &Context, worker: GpuId, model: ModelId, stage: Stage) -> Vec<RequestId> {
    let active = context.books.workers[worker.index()].active.iter().copied();
    let of_model = active.filter(|id| {
        let sequence = context.books.sequence(*id);
        sequence.request.model == model && sequence.stage == stage
    });
    of_model.collect()
}

/// Sequences of a model that wait for a worker, in the order of arrival.
pub(super) fn waiting(context: &Context, worker: GpuId, model: ModelId) -> Vec<RequestId> {
    let waiting = context.books.workers[worker.index()].waiting.iter().copied();
    waiting.filter(|id| context.books.sequence(*id).request.model == model).collect()
}

/// How a step is filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// Tokens of prompts.
    pub(super) tokens: u32,
    /// Sequences that hold cache.
    pub(super) seats: usize,
    /// Whether a prompt begins only when there is room for all of it.
    pub(super) whole: bool,
}

/// All decodes that there is room for, the latest arrivals being evicted for the others.
pub(super) fn decodes(context: &mut Context, worker: GpuId, model: ModelId) -> (Vec<RequestId>, bool) {
    let mut chosen: Vec<RequestId> = Vec::new();
    let mut evicted = false;
    for id in active(context, worker, model, Stage::Decode) {
        if context.books.sequence(id).stage != Stage::Decode {
            continue;
        }
        let bytes = context.books.bytes(id, chosen.len() as u32 + 1);
        if context.books.free(worker) >= bytes {
            chosen.push(id);
            continue;
        }
        evicted = true;
        let kept: Vec<RequestId> = chosen.iter().copied().chain([id]).collect();
        if context.make_room(worker, bytes, &kept) {
            chosen.push(id);
        }
    }
    (chosen, evicted)
}

/// Adds prompts to decodes, those that have begun first. Begins the step, if there is anything in it.
pub(super) fn begin(
    context: &mut Context,
    worker: GpuId,
    model: ModelId,
    (decode, evicted): (Vec<RequestId>, bool),
    fill: Fill,
) -> bool {
    let token = context.books.models[model.index()].token_bytes;
    let mut taken = decode.len() as u64 * token;
    let mut prefill: Vec<(RequestId, u32)> = Vec::new();
    let mut tokens = fill.tokens;
    for id in active(context, worker, model, Stage::Prefill) {
        let wanted = context.books.sequence(id).remaining().min(tokens);
        if wanted == 0 {
            break;
        }
        let kept: Vec<RequestId> =
            decode.iter().copied().chain(prefill.iter().map(|(id, _)| *id)).chain([id]).collect();
        context.make_room(worker, taken + u64::from(wanted) * token, &kept);
        if context.books.sequence(id).stage != Stage::Prefill {
            continue;
        }
        let room = context.books.free(worker).saturating_sub(taken) / token.max(1);
        let wanted = u64::from(wanted).min(room) as u32;
        if wanted > 0 {
            prefill.push((id, wanted));
            taken += u64::from(wanted) * token;
            tokens -= wanted;
        }
    }
    let mut seats = fill.seats.saturating_sub(context.books.workers[worker.index()].active.len());
    for id in waiting(context, worker, model) {
        let sequence = context.books.sequence(id);
        let room = context.books.free(worker).saturating_sub(taken) / token.max(1);
        let wanted = sequence.remaining().min(tokens);
        let needed = if fill.whole { sequence.remaining() } else { wanted };
        // First come, first served: who does not fit holds up those behind.
        if evicted || wanted == 0 || seats == 0 || u64::from(needed) > room {
            break;
        }
        prefill.push((id, wanted));
        taken += u64::from(wanted) * token;
        tokens -= wanted;
        seats -= 1;
    }
    let any = !(decode.is_empty() && prefill.is_empty());
    if any {
        context.step(worker, model, prefill, decode, context.now);
    }
    any
}

/// Where no model could begin: the earliest arrival alone, which fits when everybody else is evicted.
pub(super) fn rescue(context: &mut Context, worker: GpuId, tokens: u32) {
    let there = &context.books.workers[worker.index()];
    let all = if there.active.is_empty() { &there.waiting } else { &there.active };
    let first = all.iter().copied().min_by_key(|id| (context.books.sequence(*id).request.arrival, *id));
    let Some(first) = first else { return };
    let sequence = *context.books.sequence(first);
    let model = sequence.request.model;
    if sequence.stage == Stage::Decode {
        context.make_room(worker, context.books.bytes(first, 1), &[first]);
        return context.step(worker, model, Vec::new(), vec![first], context.now);
    }
    let wanted = sequence.remaining().min(tokens.max(1));
    context.make_room(worker, context.books.bytes(first, wanted), &[first]);
    context.step(worker, model, vec![(first, wanted)], Vec::new(), context.now);
}
