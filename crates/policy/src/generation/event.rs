//! What the machine is told and what it wants done.

use super::sequence::Request;
use crate::{GpuId, GpuType, ModelId, RequestId, Span, Time};

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request came.
    Arrived(Request),
    /// The step with this serial number is over. Word of a step that the worker does not run is ignored.
    StepDone {
        /// Where it ran.
        worker: GpuId,
        /// Which one it was.
        step: u64,
        /// How long it ran.
        took: Span,
        /// Sequences whose text is complete. Others go on, up to their limit.
        ended: Vec<RequestId>,
    },
    /// A client does not want the rest.
    ClientGone(RequestId),
    /// A worker is there to be used.
    WorkerJoined {
        /// Its name.
        worker: GpuId,
        /// Its type: workers of one type run a model equally fast.
        kind: GpuType,
        /// Bytes for caches.
        cache: u64,
        /// Models that it has in memory.
        models: Vec<ModelId>,
    },
    /// A worker is gone, with its step and its cache.
    WorkerGone(GpuId),
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run a step.
    Step {
        /// Where.
        worker: GpuId,
        /// Serial number, to be named when it is over.
        step: u64,
        /// Which model.
        model: ModelId,
        /// Sequences whose prompts are processed, and how many tokens of each. One whose last token is processed gets its
        /// next token.
        prefill: Vec<(RequestId, u32)>,
        /// Sequences that get a token.
        decode: Vec<RequestId>,
        /// When to start, at the earliest.
        not_before: Time,
        /// How long it is expected to take.
        expected: Span,
    },
    /// Answer a request with a refusal.
    Reject {
        /// Which one.
        request: RequestId,
        /// Why.
        reason: Reason,
        /// After how long it would have a chance; `None` when it never would.
        come_back: Option<Span>,
    },
    /// Drop what the cache holds of a sequence. It is processed again later.
    Evict {
        /// Which one.
        request: RequestId,
    },
    /// End a sequence that has as many tokens as it can get.
    End {
        /// Which one.
        request: RequestId,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No token was asked for, or the prompt has none.
    Empty,
    /// The prompt leaves no room for a token in the context or in the largest cache.
    TooLong,
    /// The first token cannot be in time any more.
    TooLate,
    /// No worker has the model, and none came.
    NoWorker,
}

impl Reason {
    /// All of them, in the order of reports.
    pub const ALL: [Reason; 4] = [Reason::Empty, Reason::TooLong, Reason::TooLate, Reason::NoWorker];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Empty => "empty",
            Reason::TooLong => "too_long",
            Reason::TooLate => "too_late",
            Reason::NoWorker => "no_worker",
        }
    }

    /// The reason a word stands for.
    pub fn parse(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}
