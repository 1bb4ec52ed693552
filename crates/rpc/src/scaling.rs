//! How a model is scaled, for people to look at.

use config::Workers;
use config::model::span;
use policy::Span;
use serde::{Deserialize, Serialize};

/// A model whose number of workers follows its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingView {
    /// Its number with the scheduler.
    pub model: u32,
    /// How many workers it may have.
    pub workers: Workers,
    /// How many it is to have now.
    pub wanted: usize,
    /// Requests a second that come now, and that are expected by the time a worker could have been started.
    pub arriving: f64,
    /// See `arriving`.
    pub expected: f64,
    /// Requests a second that one worker does.
    pub worker_does: f64,
    /// What the start of a worker takes.
    #[serde(with = "span")]
    pub cold_start: Span,
    /// How long the last worker stays while nobody calls.
    #[serde(with = "span")]
    pub keep_alive: Span,
    /// Whether it is only said what would be done.
    pub dry_run: bool,
    /// What was decided, the latest last.
    pub decisions: Vec<Decision>,
}

/// Something that was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// How long ago.
    #[serde(with = "span")]
    pub ago: Span,
    /// What, and why.
    pub text: String,
}
