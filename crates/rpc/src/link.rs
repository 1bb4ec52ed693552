//! What is said on the way of one request, and about workers.
//!
//! ```text
//!  client ── gateway ── Arrival ──> scheduler ── Grant ──> gateway ── Part ──> node ──> worker
//!                                       ^                     ^                 │
//!                                       └────── FromNode ─────┼─────────────────┤
//!                                                             └──── Answer ─────┘
//! ```
//!
//! Tensors go from gateway to node and back; the scheduler sees who waits, since when and until when. Requests are
//! numbered by the gateway that holds them, with the gateway's own number in the upper sixteen bits, so that ids are
//! unique in a cluster. A batch may hold requests of several gateways: each sends its part.

use crate::{Line, ModelInfo, ModelSpec, Percent, Tensor};
use policy::Span;
use std::sync::Arc;
use std::time::Instant;

/// A worker: a process with one model loaded, or an emulated GPU. Given out by the scheduler, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct WorkerId(pub u64);

/// A request that came, as the scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its number.
    pub request: u64,
    /// The model version it asks for: its place in the scheduler's list.
    pub model: u32,
    /// When it came.
    pub at: Instant,
    /// How long after that its answer must be on its way.
    pub within: Span,
    /// From 0, whom it hits last, to 9.
    pub priority: u8,
}

/// What the scheduler tells a gateway.
#[derive(Clone, Debug)]
pub enum ToGateway {
    /// Send these requests to a worker.
    Run(Grant),
    /// Answer this request with a refusal.
    Refuse {
        /// Which one.
        request: u64,
        /// Why, and what to do.
        refusal: Refusal,
    },
}

/// Leave to run requests as one batch, or as a part of it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Where.
    pub worker: WorkerId,
    /// The number of the worker's node.
    pub node: u16,
    /// Where gateways on other machines reach that node; empty where they need not.
    pub address: Arc<str>,
    /// The batch's number there.
    pub batch: u64,
    /// Its model.
    pub model: u32,
    /// How many requests the whole batch holds.
    pub size: usize,
    /// This gateway's requests in it.
    pub requests: Vec<u64>,
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its deadline cannot be met.
    #[error("the deadline of {within} cannot be met: {}", in_words(*reason))]
    Late {
        /// What was asked for; the gateway fills it in.
        within: Span,
        /// How it came to that.
        reason: policy::Reason,
        /// When it is worth trying again.
        retry_after: Span,
    },
    /// Too many wait already.
    #[error("{waiting} requests wait for this model already, which is as many as may")]
    Full {
        /// How many.
        waiting: usize,
        /// When it is worth trying again.
        retry_after: Span,
    },
    /// More is asked for than can be done, and others have a higher priority.
    #[error("the model is overloaded, and requests of priority {priority} are not admitted for now")]
    Overload {
        /// Its priority.
        priority: u8,
        /// When it is worth trying again.
        retry_after: Span,
    },
    /// No worker of the model runs; one is being started and will not be there in time.
    #[error(
        "no worker of this model runs; one is being started and is expected in {expected}, too late for this request"
    )]
    Starting {
        /// When it is worth trying again.
        expected: Span,
    },
    /// The model is gone or not ready.
    #[error("{0}")]
    Unavailable(String),
}

fn in_words(reason: policy::Reason) -> &'static str {
    match reason {
        policy::Reason::TooLate => "too many requests wait before it",
        policy::Reason::Sacrificed => "it held back others that can still be on time",
        policy::Reason::GpuLost => "its worker died and there is no time to start again",
    }
}

/// Requests of one gateway on their way to a worker.
pub struct Part {
    /// The worker.
    pub worker: WorkerId,
    /// The number of its node.
    pub node: u16,
    /// Where gateways on other machines reach that node.
    pub address: Arc<str>,
    /// The batch's number there.
    pub batch: u64,
    /// Its model.
    pub model: u32,
    /// How many requests the whole batch holds.
    pub size: usize,
    /// This gateway's requests in it.
    pub payloads: Vec<Payload>,
}

/// One request's tensors, and whom to tell what became of it.
pub struct Payload {
    /// Its number.
    pub request: u64,
    /// What it brings. Shared, because a batch that dies with its worker is sent again.
    pub inputs: Arc<[Tensor]>,
    /// Where its outputs go.
    pub answer: Box<dyn FnOnce(Answer) + Send>,
}

/// What became of a request that was run.
pub type Answer = Result<Outputs, Failure>;

/// What a model answered, and how long that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The tensors, in the order of the model's outputs.
    pub tensors: Vec<Tensor>,
    /// From the moment the batch reached the worker to the moment it was over.
    pub computed: Span,
    /// How many requests shared the batch.
    pub batch_size: usize,
    /// Whether this request was the first of its batch, so that batches can be counted.
    pub leads: bool,
}

/// Why a batch that was run has no outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The model said no: an exception, a wrong shape. The message names it.
    #[error("{0}")]
    Model(String),
    /// The worker died with the batch. The scheduler decides whether there is time to run it again.
    #[error("the worker died")]
    WorkerDied,
    /// The way to the worker's node broke while the request was on it.
    #[error("the connection to the worker's node broke")]
    Unreachable,
}

/// What the scheduler tells a node.
#[derive(Clone, Debug)]
pub enum ToNode {
    /// Start a worker with this model.
    Start {
        /// Its number.
        worker: WorkerId,
        /// What it loads.
        spec: Arc<ModelSpec>,
    },
    /// Start an emulated GPU, or tell one which models it may be asked for and how long they take.
    Virtual {
        /// Its number.
        worker: WorkerId,
        /// Models and their profiles.
        tables: Vec<(u32, Line)>,
    },
    /// Let a worker have this much of its GPU, between what it was promised and its limit.
    Stretch {
        /// Which one.
        worker: WorkerId,
        /// How much.
        to: Percent,
    },
    /// Let it finish what it has and end it.
    Stop {
        /// Which one.
        worker: WorkerId,
    },
}

/// What a node tells the scheduler.
#[derive(Clone, Debug)]
pub enum FromNode {
    /// A worker has loaded its model and measured how long batches take, sizes rising.
    Ready {
        /// Which one.
        worker: WorkerId,
        /// What it found out.
        info: ModelInfo,
        /// Batch sizes and how long they took.
        measured: Vec<(usize, Span)>,
    },
    /// A batch is over, for good or bad.
    Done {
        /// Where it ran.
        worker: WorkerId,
        /// Which one.
        batch: u64,
        /// How many requests were in it.
        size: usize,
        /// How long it took; `None` when it failed.
        took: Option<Span>,
    },
    /// A worker is gone, with whatever it ran. The node starts it again by itself, after a while that grows, and says
    /// `Ready` when it is back.
    Lost {
        /// Which one.
        worker: WorkerId,
        /// What happened, in words for a person.
        reason: String,
        /// When it is started again.
        again_in: Span,
    },
    /// A worker that was told to stop did.
    Stopped {
        /// Which one.
        worker: WorkerId,
    },
}
