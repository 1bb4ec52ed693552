//! What is asked for.

use super::WHOLE;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Answers requests.
    Inference,
    /// Trains a model, on several GPUs at once.
    Training,
    /// Answers requests with a model whose layers may lie on several GPUs.
    Llm,
}

/// What one part of an instance takes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Share of the SMs that it can count on, in thousandths.
    pub request: u32,
    /// Share of the SMs that it may reach, in thousandths.
    pub limit: u32,
    /// Part of the time in which it runs, in thousandths.
    pub quota: u32,
    /// Bytes.
    pub memory: u64,
}

impl Need {
    /// A share at all times.
    pub const fn new(request: u32, limit: u32, memory: u64) -> Need {
        Need { request, limit, quota: WHOLE, memory }
    }
}

/// An instance that is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What it is an instance of: a model, a training job.
    pub service: String,
    /// What it does.
    pub kind: Kind,
    /// How many GPUs it needs, each of them different.
    pub gpus: usize,
    /// What it needs of each.
    pub need: Need,
    /// Whether it stays off GPUs that host the same service.
    pub apart: bool,
    /// Labels that its GPUs must have.
    pub labels: Vec<String>,
}

impl Demand {
    /// An instance that takes any GPUs.
    pub fn new(service: impl Into<String>, kind: Kind, gpus: usize, need: Need) -> Demand {
        Demand { service: service.into(), kind, gpus, need, apart: false, labels: Vec::new() }
    }

    /// Whether its layers may be divided among GPUs.
    pub fn divisible(&self) -> bool {
        self.kind == Kind::Llm && self.gpus == 1 && self.need.quota == WHOLE && self.need.memory > 0
    }
}
