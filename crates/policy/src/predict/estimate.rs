//! What is asked and answered: who runs, how fast, and what is not known.

use crate::surface::Share;
use crate::{ModelId, Span};
use std::fmt;

/// Who runs: a model and its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenant {
    /// What it computes.
    pub model: ModelId,
    /// Requests that run together.
    pub batch: usize,
}

/// What is to be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// How long a batch takes.
    pub latency: Span,
    /// Requests a second.
    pub throughput: f64,
    /// Nine times in ten, the truth is at most `1 + uncertainty` times the estimate, and at least the estimate over that.
    pub uncertainty: f64,
}

impl Estimate {
    /// Whether this latency lies within the uncertainty.
    pub fn covers(&self, latency: Span) -> bool {
        let (least, most) = (self.latency.seconds() / (1.0 + self.uncertainty), 1.0 + self.uncertainty);
        latency.seconds() >= least && latency.seconds() <= self.latency.seconds() * most
    }
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Nothing was measured of this model.
    Model(ModelId),
    /// The batch is smaller or larger than all that were measured.
    Batch(usize),
    /// The share is smaller or larger than all that were measured.
    Share(Share),
    /// There are measurements on one side only, of this batch and share.
    Edge(usize, Share),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Model(model) => write!(f, "nothing was measured of model {}: profile it", model.index()),
            Unknown::Batch(batch) => write!(f, "batch {batch} lies beyond what was measured: profile it"),
            Unknown::Share(share) => write!(f, "{share} of a GPU lies beyond what was measured: profile it"),
            Unknown::Edge(batch, share) => {
                write!(f, "batch {batch} at {share} is not between points that were measured: profile it")
            }
        }
    }
}

impl std::error::Error for Unknown {}
