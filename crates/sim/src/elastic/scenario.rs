//! What is simulated: a cluster, functions with their load, and training. Plain data, checked when it was read.

use super::interference::Interference;
use crate::workload::Spacing;
use policy::Span;
use policy::autoscale::Replicas;
use policy::surface::{Share, Surface};

/// Everything a run depends on, but for the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// From which all randomness is drawn.
    pub seed: u64,
    /// Simulated but not counted.
    pub warmup: Span,
    /// Counted.
    pub duration: Span,
    /// GPUs in the cluster.
    pub gpus: usize,
    /// GPUs in a machine.
    pub node_gpus: usize,
    /// Memory of a GPU, in bytes.
    pub memory: u64,
    /// What neighbours on a GPU cost.
    pub interference: Interference,
    /// What is called.
    pub functions: Vec<Function>,
    /// What trains.
    pub jobs: Vec<Job>,
}

/// A model that is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// How fast it is.
    pub surface: Surface,
    /// How soon a request is to be answered.
    pub objective: Span,
    /// How long a worker takes to start.
    pub cold_start: Span,
    /// Memory of a worker, in bytes.
    pub memory: u64,
    /// Requests that run together, at most.
    pub batch_max: usize,
    /// How many workers there may be.
    pub replicas: Replicas,
    /// When requests come.
    pub spacing: Spacing,
    /// Requests a second, on average.
    pub rate: f64,
}

impl Function {
    /// What a batch may take: half of the objective, the other half being for the wait while another batch runs.
    pub fn execution(&self) -> Span {
        self.objective.scale(1, 2)
    }
}

/// Training, on one GPU or several in step.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// How many GPUs it runs on.
    pub gpus: usize,
    /// The share on which it does four fifths of what it does alone.
    pub request: Share,
    /// The share on which it does all but a fiftieth.
    pub limit: Share,
    /// Memory on each GPU, in bytes.
    pub memory: u64,
}

impl Job {
    /// What it does on this part of a GPU, as a part of what it does alone.
    pub fn speed(&self, permille: f64) -> f64 {
        let (request, limit) = (f64::from(self.request.permille()), f64::from(self.limit.permille()));
        let points = [(0.0, 0.0), (request, 0.8), (limit, 0.98), (1000.0, 1.0)];
        for pair in points.windows(2) {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            if permille <= to && to > from {
                return low + (high - low) * (permille - from).max(0.0) / (to - from);
            }
        }
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_does_what_its_request_and_limit_say() {
        let share = |percent| Share::from_percent(percent).unwrap();
        let mut job = Job { name: "t".into(), gpus: 1, request: share(40.0), limit: share(70.0), memory: 1 };
        let speeds = [0.0, 200.0, 400.0, 550.0, 700.0, 1000.0].map(|at| (job.speed(at) * 1e3).round());
        assert_eq!(speeds, [0.0, 400.0, 800.0, 890.0, 980.0, 1000.0]);
        job.limit = share(100.0);
        assert_eq!(job.speed(1000.0), 0.98);
    }
}
