//! One request and the text that is generated for it.

use crate::{GpuId, ModelId, RequestId, Span, Time};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name, used once.
    pub id: RequestId,
    /// Which model.
    pub model: ModelId,
    /// When it came.
    pub arrival: Time,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens that the client takes at most.
    pub max_tokens: u32,
    /// How soon the first token is due.
    pub ttft: Span,
    /// How soon after the token before each further one is due.
    pub tpot: Span,
}

/// Where a sequence is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It holds no cache.
    Waiting,
    /// Part of what it has to process is in the cache.
    Prefill,
    /// Each step gives it a token.
    Decode,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// What was asked for.
    pub request: Request,
    /// Tokens it can get: what the client takes, the context has and the caches hold.
    pub limit: u32,
    /// Where it is in its life.
    pub stage: Stage,
    /// The worker it waits for or is on; `None` when no worker has its model.
    pub worker: Option<GpuId>,
    /// Tokens of it in the cache.
    pub cached: u32,
    /// Tokens it got.
    pub generated: u32,
    /// When it got the first.
    pub first: Option<Time>,
    /// Whether it takes part in the step that its worker runs.
    pub in_step: bool,
}

impl Sequence {
    /// Tokens to process before the next one comes out: what is not in the cache of prompt and text so far.
    pub fn remaining(&self) -> u32 {
        (self.request.prompt + self.generated).saturating_sub(self.cached)
    }

    /// Tokens that it takes in a cache at its longest.
    pub fn longest(&self) -> u32 {
        self.request.prompt.saturating_add(self.limit)
    }

    /// When the next token is due.
    pub fn deadline(&self) -> Time {
        match self.first {
            None => self.request.arrival + self.request.ttft,
            Some(first) => first + self.request.tpot * self.generated as usize,
        }
    }

    /// Whether the client has seen nothing of it.
    pub fn is_unseen(&self) -> bool {
        self.first.is_none()
    }
}
