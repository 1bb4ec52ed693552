//! Request-level batching, as FasterTransformer has it and as Orca (Yu et al., OSDI 2022, section 3) describes it: a batch is
//! formed of those that wait, its prompts are processed, and it decodes until the last of them ends. Nobody joins it. Cache is
//! set aside for each sequence at its longest. `-level`, not a product: tokens are delivered as they come, and a sequence
//! that ends leaves its place empty.

use super::fill::{Turns, active, waiting};
use crate::generation::{Context, Policy, Stage};
use crate::{GpuId, ModelId, RequestId, Time};

/// Sequences in a batch, at most.
const BATCH: usize = 32;
/// Tokens of prompts in a step, at most: what activations take memory for.
const TOKENS: u32 = 16_384;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RequestLevel {
    turns: Turns,
}

impl Policy for RequestLevel {
    fn plan(&mut self, context: &mut Context, worker: GpuId) -> Time {
        self.turns.offer(context, worker, |context, model| begin(context, worker, model));
        Time::NEVER
    }
}

fn begin(context: &mut Context, worker: GpuId, model: ModelId) -> bool {
    let decode = active(context, worker, model, Stage::Decode);
    let mut prefill = active(context, worker, model, Stage::Prefill);
    if prefill.is_empty() && decode.is_empty() {
        prefill = form(context, worker, model);
    } else if !prefill.is_empty() {
        // Set aside when the batch was formed.
    } else {
        context.step(worker, model, Vec::new(), decode, context.now);
        return true;
    }
    let mut tokens = TOKENS;
    let mut chunks = Vec::new();
    for id in prefill {
        let wanted = context.books.sequence(id).remaining().min(tokens);
        if wanted > 0 {
            chunks.push((id, wanted));
            tokens -= wanted;
        }
    }
    let any = !chunks.is_empty();
    if any {
        context.step(worker, model, chunks, Vec::new(), context.now);
    }
    any
}

/// The first of those that wait, as far as there is room for all at their longest. Those of them that get no token in the first
/// step wait on: what is set aside for them is not.
fn form(context: &Context, worker: GpuId, model: ModelId) -> Vec<RequestId> {
    let there = &context.books.workers[worker.index()];
    let longest = |id: &RequestId| context.books.bytes(*id, context.books.sequence(*id).longest());
    let mut taken: u64 = there.active.iter().map(longest).sum();
    let mut batch = Vec::new();
    for id in waiting(context, worker, model).into_iter().take(BATCH) {
        taken += longest(&id);
        if taken > there.cache {
            break;
        }
        batch.push(id);
    }
    batch
}
