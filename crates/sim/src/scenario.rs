//! What is simulated: a cluster, models, their traffic and a policy. Plain data, checked when it was read.

mod file;
pub(crate) mod syntax;
pub(crate) mod source;
mod models;
mod workload_file;
mod trace;
mod effective;

pub use effective::effective;
pub use file::{RATES, parse};
pub use source::{ReadFile, ScenarioError};
pub use trace::{Trace, TraceFormat, trace};

use crate::workload::Spacing;
use policy::{GpuId, GpuType, LatencyTable, Model, Network, Span};

const GPUS_MAX: usize = 100_000;
const MODELS_MAX: usize = 100_000;

/// Everything a run depends on. A new knob is a field here.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// From which all randomness is drawn.
    pub seed: u64,
    /// Simulated but not counted.
    pub warmup: Span,
    /// Counted.
    pub duration: Span,
    /// Name of the policy.
    pub policy: String,
    /// Requests a second over all models.
    pub rate: f64,
    /// GPUs by type, in the order of their ids.
    pub gpus: Vec<GpuGroup>,
    /// Delays, in the simulated world and in the scheduler's planning alike.
    pub network: Network,
    /// How arrivals are spaced.
    pub arrivals: Spacing,
    /// Relative standard deviation of execution times around the profile.
    pub noise: f64,
    /// GPUs that die.
    pub failures: Vec<Failure>,
    /// What is served.
    pub models: Vec<ModelSpec>,
    /// Stop early once more than this fraction of all requests is certain to be bad.
    pub give_up_at: Option<f64>,
}

/// GPUs of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuGroup {
    /// Its name.
    pub kind: String,
    /// How many there are.
    pub count: usize,
    /// How fast they are against the profiles; 1 is as measured.
    pub speed: f64,
}

/// A GPU's death and, perhaps, its return.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// Which GPU.
    pub gpu: GpuId,
    /// When it dies, from the start of the run.
    pub at: Span,
    /// How long it is gone; `None`: for good.
    pub down_for: Option<Span>,
}

/// A model and its share of the traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its name.
    pub name: String,
    /// From arrival to answer.
    pub objective: Span,
    /// Its part of all requests; parts add up to 1.
    pub share: f64,
    /// Latency by GPU type, in the order of [`Scenario::gpus`]; sizes that take longer than the objective are
    /// left out.
    pub tables: Vec<LatencyTable>,
}

impl Scenario {
    /// The type of each GPU, by id.
    pub fn gpu_types(&self) -> Vec<GpuType> {
        let groups = self.gpus.iter().enumerate();
        groups.flat_map(|(index, group)| std::iter::repeat_n(GpuType::new(index), group.count)).collect()
    }

    /// The models as the dispatcher wants them.
    pub(crate) fn dispatch_models(&self) -> Vec<Model> {
        let model = |spec: &ModelSpec| Model {
            objective: spec.objective,
            tables: spec.tables.clone(),
            expected_gap: match spec.share * self.rate {
                rate if rate > 0.0 => Span::from_secs_f64(1.0 / rate),
                _ => Span::MAX,
            },
        };
        self.models.iter().map(model).collect()
    }
}

/// Scales values so that they add up to `total`. Values that do already, but for rounding, stay as they are
/// to the bit, so that a scenario survives being written and read.
fn normalise(values: &mut [f64], total: f64) {
    let sum: f64 = values.iter().sum();
    if (sum - total).abs() > 1e-9 * total {
        for value in values {
            *value = *value / sum * total;
        }
    }
}
