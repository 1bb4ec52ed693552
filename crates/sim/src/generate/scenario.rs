//! What is simulated: GPUs, models, and requests with their tokens. Plain data, checked when it was read.

use crate::workload::Spacing;
use policy::Span;
use policy::generation::{Load, StepTime};

/// Everything a run depends on, but for the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// From which all randomness is drawn.
    pub seed: u64,
    /// Simulated but not counted.
    pub warmup: Span,
    /// Counted, at most; a trace may end before.
    pub duration: Span,
    /// Requests a second over all models.
    pub rate: f64,
    /// Relative standard deviation of the time of a step.
    pub noise: f64,
    /// From a decision until a GPU can start what was decided, and back.
    pub lead: Span,
    /// The part of requests whose clients leave before the end.
    pub leave: f64,
    /// What each GPU has.
    pub gpus: Vec<Gpu>,
    /// What is served.
    pub models: Vec<Model>,
    /// What is asked for, and when.
    pub source: Source,
    /// Tokens that clients take at most.
    pub max_tokens: u32,
    /// GPUs that die.
    pub failures: Vec<Failure>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Bytes for caches: what weights leave.
    pub cache: u64,
    /// Models that it holds, by place.
    pub models: Vec<usize>,
}

/// A GPU's death and return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// Which GPU, by place.
    pub gpu: usize,
    /// When, from the start of the run.
    pub at: Span,
    /// For how long.
    pub down_for: Option<Span>,
}

/// A model that is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its part of all requests; parts add up to 1.
    pub share: f64,
    /// How soon the first token is due.
    pub ttft: Span,
    /// How soon after the one before each further one is due.
    pub tpot: Span,
    /// Tokens of prompt and answer, at most.
    pub context: u32,
    /// Bytes of cache for each token.
    pub token_bytes: u64,
    /// How long its steps take.
    pub truth: Truth,
    /// What the policy is told of that.
    pub told: StepTime,
}

/// How long steps take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Any step, in nanoseconds.
    pub floor: f64,
    /// A token of a prompt, in nanoseconds.
    pub prefill_token: f64,
    /// A sequence, in nanoseconds.
    pub sequence: f64,
    /// A token of cache that is read, in nanoseconds.
    pub cached_token: f64,
    /// A pair of tokens of a prompt of which one attends to the other, in nanoseconds.
    pub attention: f64,
}

impl Truth {
    /// How long a step takes, in nanoseconds. `pairs`: tokens of prompts times the tokens before them.
    pub(super) fn takes(&self, load: Load, pairs: f64) -> f64 {
        self.floor
            + self.prefill_token * load.prefill as f64
            + self.sequence * load.sequences as f64
            + self.cached_token * load.cached as f64
            + self.attention * pairs
    }
}

/// What is asked for, and when.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// As recorded, with all gaps scaled to the rate.
    Trace(Vec<Recorded>),
    /// Drawn.
    Drawn {
        /// When requests come.
        spacing: Spacing,
        /// Tokens of prompts.
        prompt: Lengths,
        /// Tokens of answers.
        output: Lengths,
    },
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// Seconds from the first.
    pub at: f64,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens of the answer.
    pub output: u32,
}

/// Lengths that are drawn: log-normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Half of all are shorter.
    pub median: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
    /// The longest.
    pub max: u32,
}
