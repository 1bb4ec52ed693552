//! Sarathi-Serve's stall-free batching (Agrawal et al., OSDI 2024, section 4): every step has all decodes, and as many tokens of
//! prompts as keep it within the time between tokens. First come, first served; nobody is refused.
//!
//! `-like`: the paper finds one budget of tokens by profiling. Here each step's budget is what the learned model of step times
//! says, which knows how many decodes there are and is never worse than a fixed budget.

use super::fill::{Fill, Turns, active, begin, decodes, rescue};
use crate::generation::{Context, Load, Policy, Stage};
use crate::{GpuId, ModelId, Span, Time};

/// Sequences that hold cache, at most.
const SEATS: usize = 256;
/// Tokens of prompts in a step, at most.
const BUDGET_MAX: u32 = 8_192;
/// Tokens of prompts in a step in which nothing decodes, at least: a step of one token would take as long.
const BUDGET_MIN: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SarathiLike {
    turns: Turns,
}

impl Policy for SarathiLike {
    fn plan(&mut self, context: &mut Context, worker: GpuId) -> Time {
        self.turns.offer(context, worker, |context, model| {
            let decoding = decodes(context, worker, model);
            let tokens = budget(context, worker, model, &decoding.0);
            begin(context, worker, model, decoding, Fill { tokens, seats: SEATS, whole: true })
        });
        if context.books.is_idle(worker) {
            rescue(context, worker, BUDGET_MIN);
        }
        Time::NEVER
    }
}

/// Tokens of prompts that fit beside these decodes into the shortest time between tokens of anybody who is there.
fn budget(context: &Context, worker: GpuId, model: ModelId, decode: &[crate::RequestId]) -> u32 {
    let there = &context.books.workers[worker.index()];
    let all = there.active.iter().chain(&there.waiting).map(|id| context.books.sequence(*id));
    let between = all.filter(|sequence| sequence.request.model == model).map(|sequence| sequence.request.tpot).min();
    let learned = context.books.learned(model, worker);
    let Load { cached, sequences, pairs, .. } = context.books.load(&[], decode);
    let beginning = active(context, worker, model, Stage::Prefill);
    let read: u64 = beginning.iter().take(1).map(|id| u64::from(context.books.sequence(*id).cached)).sum();
    let taken = learned.predict(Load { prefill: 0, sequences: sequences + 1, cached: cached + read, pairs });
    let between = between.unwrap_or(Span::ZERO);
    // The budget is chosen so that nearly all steps stay within the objective, not half of them.
    let left = between - learned.margin(between) - taken;
    let tokens = learned.terms().tokens(read as u32, left.nanos() as f64) as u32;
    let least = if decode.is_empty() { BUDGET_MIN } else { 0 };
    tokens.clamp(least, BUDGET_MAX)
}
