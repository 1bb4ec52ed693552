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
//! numbered by the gateway that holds them, with the number of the gateway's session in the upper bits
//! ([`request_id`]), so that ids are unique in a cluster. A batch may hold requests of several gateways: each sends its
//! part.
//!
//! Who is who, so that no restart is mistaken for what was there before:
//! - a process has an [`Incarnation`], drawn at random when it starts;
//! - a [`WorkerId`] begins with its scheduler's epoch, drawn at random when that starts, and so does a batch ([`batch_id`]);
//! - a scheduler that leads has a [`Term`], later than those of all that led before it;
//! - a request has a new id whenever it is announced to another session of a scheduler, or once more to the same.

use crate::term::Term;
use crate::{ModelInfo, Tensor};
use config::{Line, ModelSpec, Percent};
use policy::Span;
use policy::placement::nodes::Capacity;
use std::sync::Arc;
use std::time::Instant;

/// One start of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// One that no other start of a process has.
    pub fn random() -> Incarnation {
        use std::hash::{BuildHasher, Hasher};
        // Its keys come from the operating system.
        Incarnation(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }
}

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A worker: a process with one model loaded, or an emulated GPU. Given out by the scheduler, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct WorkerId(pub u64);

impl WorkerId {
    /// The worker with this number of the scheduler with this epoch.
    pub const fn new(epoch: u32, number: u32) -> WorkerId {
        WorkerId((epoch as u64) << 32 | number as u64)
    }

    /// What people call it.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Sessions of gateways have numbers of so many bits, which a scheduler gives out in turn.
pub const SESSION_BITS: u32 = 20;
const ATTEMPT_BITS: u32 = 8;
const COUNT_BITS: u32 = 64 - SESSION_BITS - ATTEMPT_BITS;

/// The id of a gateway's request: in one of its sessions, the so many-th request of the gateway, announced for the so
/// many-th time.
pub const fn request_id(session: u32, count: u64, attempt: u8) -> u64 {
    (session as u64) << (COUNT_BITS + ATTEMPT_BITS) | (count_of(count << ATTEMPT_BITS) << ATTEMPT_BITS) | attempt as u64
}

/// The session that a request was announced in.
pub const fn session_of(request: u64) -> u32 {
    (request >> (COUNT_BITS + ATTEMPT_BITS)) as u32
}

/// Which request of its gateway it is, however often it was announced. The count comes round after more requests than
/// any gateway takes in an hour, which is the longest that one can wait.
pub const fn count_of(request: u64) -> u64 {
    (request >> ATTEMPT_BITS) & ((1 << COUNT_BITS) - 1)
}

const BATCH_EPOCH_BITS: u32 = 24;
const BATCH_BITS: u32 = 64 - BATCH_EPOCH_BITS;

/// The number of a worker's batch: with the epoch of the scheduler that granted it, so that two schedulers never mean
/// different batches by one number.
pub const fn batch_id(epoch: u32, serial: u64) -> u64 {
    (epoch as u64) << BATCH_BITS | serial & ((1 << BATCH_BITS) - 1)
}

/// The so many-th batch of its worker it is. Starts again after more batches than a worker runs in three years.
pub const fn serial_of(batch: u64) -> u64 {
    batch & ((1 << BATCH_BITS) - 1)
}

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
    /// The scheduler is there.
    Heartbeat,
}

/// Leave to run requests as one batch, or as a part of it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Who gives it.
    pub term: Term,
    /// Where.
    pub worker: WorkerId,
    /// The worker's node.
    pub node: Incarnation,
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
    /// The model takes longer than the deadline, with nobody before it.
    #[error(
        "the deadline of {within} cannot be met: the model takes {takes} for one request alone; allow more time, or \
         deploy the model with a longer objective"
    )]
    TooSlow {
        /// What was asked for; the gateway fills it in.
        within: Span,
        /// How long one request takes by itself, the way there and back included.
        takes: Span,
        /// When it is worth trying again: how long the model takes is measured anew all the time.
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
    /// Nobody answered in time, and its gateway did instead.
    #[error("no answer within the deadline of {within}; the request was given up {margin} after it")]
    Expired {
        /// What was asked for.
        within: Span,
        /// How long after that the gateway waited.
        margin: Span,
    },
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
    /// Who gave leave to run them: a node takes none from a scheduler that no longer leads.
    pub term: Term,
    /// The worker.
    pub worker: WorkerId,
    /// Its node.
    pub node: Incarnation,
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
    /// How many more of this gateway's were to be in it, and are answered or gone: nobody waits for them.
    pub absent: usize,
}

/// One request's tensors, and whom to tell what became of it.
pub struct Payload {
    /// Its number.
    pub request: u64,
    /// What it brings. Shared, because a batch that dies with its worker is sent again.
    pub inputs: Arc<[Tensor]>,
    /// Where its outputs go.
    pub answer: Box<dyn ReplyTo>,
}

/// Where the answer to a request goes: from a node back to the gateway that holds the request.
pub trait ReplyTo: Send {
    /// Delivers the answer. Must not wait.
    fn reply(self: Box<Self>, answer: Answer);
}

impl<F: FnOnce(Answer) + Send> ReplyTo for F {
    fn reply(self: Box<Self>, answer: Answer) {
        self(answer);
    }
}

/// What became of a request that was run.
pub type Answer = Result<Outputs, Failure>;

/// How long a batch was computed, in three parts as Triton counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Its inputs were put together and moved to where the worker reads them.
    pub input: Span,
    /// The worker had it.
    pub infer: Span,
    /// Its outputs were checked and taken apart.
    pub output: Span,
}

impl Compute {
    /// All of it.
    pub fn total(self) -> Span {
        self.input + self.infer + self.output
    }
}

/// The worker had it all the time.
impl From<Span> for Compute {
    fn from(infer: Span) -> Compute {
        Compute { infer, ..Compute::default() }
    }
}

impl std::ops::AddAssign for Compute {
    fn add_assign(&mut self, more: Compute) {
        self.input += more.input;
        self.infer += more.infer;
        self.output += more.output;
    }
}

/// What a model answered, and how long that took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The tensors, in the order of the model's outputs.
    pub tensors: Vec<Tensor>,
    /// From the moment the batch went to the worker to the moment it was over.
    pub compute: Compute,
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
    /// The worker died with the batch. The scheduler has been told, and decides whether there is time to run it again.
    #[error("the worker died")]
    WorkerDied,
    /// It reached no worker, and nobody but its gateway knows: the gateway announces it once more.
    #[error("it was not run: {0}")]
    NotRun(String),
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
    /// The scheduler is there.
    Heartbeat,
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
    /// A worker ended, and is not started again.
    Stopped {
        /// Which one.
        worker: WorkerId,
    },
    /// The node was told to end: it takes no more workers, and ends when those that it has were stopped.
    Leaving,
    /// The node is there.
    Heartbeat,
}

/// What a node says of itself when it joins.
#[derive(Clone, Debug, Default)]
pub struct NodeHello {
    /// What people call it.
    pub name: String,
    /// This start of it.
    pub incarnation: Incarnation,
    /// How many GPUs it emulates.
    pub virtual_gpus: usize,
    /// Where gateways on other machines reach it; empty where they need not.
    pub address: Arc<str>,
    /// The workers it has, of whichever scheduler.
    pub workers: Vec<Running>,
    /// Whether it was told to end.
    pub leaving: bool,
    /// Its cores and GPUs, where it says.
    pub capacity: Option<Capacity>,
}

/// A worker that a node brings along when it joins.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its number.
    pub worker: WorkerId,
    /// What it loads; none for an emulated GPU.
    pub spec: Option<Arc<ModelSpec>>,
    /// What it said when it was ready, if it is.
    pub ready: Option<(ModelInfo, Vec<(usize, Span)>)>,
}

/// How long parts of a cluster wait for each other. Whoever waits goes on by itself when the time has passed.
pub mod timing {
    use policy::Span;

    /// How often gateways, nodes and the scheduler say that they are there. A fraction of [`LEASE`], so that one
    /// that is late does not count; cheap enough for thousands of nodes.
    pub const HEARTBEAT: Span = Span::from_millis(100);
    /// Who has said nothing for so long is given no work, and what it had is run elsewhere. Longer than a busy
    /// machine keeps a process from running, shorter than people wait.
    pub const LEASE: Span = Span::from_millis(500);
    /// Who has said nothing for so long is taken for lost and its workers are replaced. It joins again when it wakes.
    /// Longer than a pause for which starting a model again would not pay.
    pub const LOST: Span = Span::from_secs(5);
    /// How long after its deadline a request without an answer is answered by its gateway. An answer that is a little
    /// late may still be of use; one that is later than this is not waited for.
    pub const ANSWER_MARGIN: Span = Span::from_millis(100);
    /// How long between two attempts to join, when there has been no scheduler for a [`LEASE`].
    pub const REJOIN: Span = Span::from_millis(250);
    /// The same before that, while a standby may be taking over. A takeover may take [`TAKEOVER`]; this is the part of
    /// it that a member may lose by asking too early. A thousand members ask 50,000 times a second, for half a second.
    pub const SEEK: Span = Span::from_millis(20);
    /// How long no request may be answered when the leading scheduler dies and another is on standby: less than a
    /// [`LEASE`], for which gateways let requests wait for a scheduler.
    pub const TAKEOVER: Span = Span::from_millis(300);
    /// How long the scheduler that leads may give no sign of life to those on standby before one of them takes its place.
    /// One that died is replaced at once; this is for one that hangs. Longer than a write to a busy disk may keep a sign
    /// of life back: a leader that is replaced while it is well ends, and somebody has to start it again.
    pub const LEAD: Span = Span::from_secs(2);
    /// How long one attempt to join, or to reach a node, may take.
    pub const CONNECT: Span = Span::from_secs(2);
    /// How long a scheduler that starts waits for nodes that bring workers before it starts others: each has had time
    /// for several attempts.
    pub const SETTLE: Span = Span::from_secs(1);
    /// How long a batch waits for its last part after its first came; then it runs without.
    pub const PARTS: Span = Span::from_millis(100);
    /// How long a batch may take before its worker is taken to have lost it: longer than nodes let any batch run.
    pub const BATCH: Span = Span::from_secs(65);
    /// How long a part that was told to end may take to finish what it has.
    pub const DRAIN: Span = Span::from_secs(10);
}
