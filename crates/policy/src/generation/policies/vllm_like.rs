//! Eager continuous batching as vLLM has it: whenever the GPU is free a step begins, with every sequence that decodes and, up
//! to a budget of tokens, chunks of prompts in the order of arrival. It knows no objective and refuses nobody who fits.
//!
//! After vLLM's scheduler (V1, chunked prefill on): sequences that run come first, then those that wait; when the cache is
//! full the latest arrival is evicted and recomputed, and nobody is admitted in such a step. Not modelled: blocks of 16 tokens,
//! prefix caching.

use super::fill::{Fill, Turns, begin, decodes, rescue};
use crate::generation::{Context, Policy};
use crate::{GpuId, Time};

/// Sequences that hold cache, at most: `max_num_seqs`.
const SEATS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct VllmLike {
    budget: u32,
    turns: Turns,
}

impl VllmLike {
    /// With this budget of tokens for a step: `max_num_batched_tokens`.
    pub(super) fn new(budget: u32) -> VllmLike {
        VllmLike { budget, turns: Turns::default() }
    }
}

impl Policy for VllmLike {
    fn plan(&mut self, context: &mut Context, worker: GpuId) -> Time {
        let budget = self.budget;
        self.turns.offer(context, worker, |context, model| {
            let decoding = decodes(context, worker, model);
            let tokens = budget.saturating_sub(decoding.0.len() as u32);
            begin(context, worker, model, decoding, Fill { tokens, seats: SEATS, whole: false })
        });
        if context.books.is_idle(worker) {
            rescue(context, worker, budget);
        }
        Time::NEVER
    }
}
