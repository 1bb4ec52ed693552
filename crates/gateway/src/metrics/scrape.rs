//! All that is written for one scrape: what is read once, and the labels that many lines share.

use super::GpuView;
use super::text::Labels;
use crate::Gateway;
use crate::statistics::Statistics;
use rpc::{Entry, Overview, WorkerView};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of a gateway, to be written. Everything is in the order of names and numbers.
pub(crate) struct Scrape {
    /// When the gateway started, in seconds since 1970.
    pub(super) started: f64,
    /// Requests that the scheduler has.
    pub(super) in_flight: usize,
    /// The counters of all model versions there ever were.
    pub(super) statistics: Vec<(Labels, Arc<Statistics>)>,
    /// The model versions there are.
    pub(super) models: Vec<Model>,
    /// Workers and nodes.
    pub(super) overview: Arc<Overview>,
    /// GPUs, where anybody knows.
    pub(super) gpus: Arc<Vec<GpuView>>,
    workers: Vec<Labels>,
}

/// A model version.
pub(super) struct Model {
    pub(super) labels: Labels,
    pub(super) entry: Entry,
    /// Requests of it that wait.
    pub(super) waiting: usize,
}

impl Scrape {
    /// Reads a gateway that started at a Unix time.
    pub(crate) fn new(gateway: &Gateway, started: f64, gpus: Arc<Vec<GpuView>>) -> Scrape {
        let of_model = |name: &str, version: u32| Labels::none().with("model", name).with("version", version);
        let overview = gateway.overview();
        let queues: BTreeMap<u32, usize> = overview.queues.iter().copied().collect();
        let model = |entry: &Entry| Model {
            labels: of_model(&entry.spec.name, entry.spec.version),
            waiting: queues.get(&entry.model).copied().unwrap_or(0),
            entry: entry.clone(),
        };
        let counters =
            |((name, version), statistics): ((String, u32), Arc<Statistics>)| (of_model(&name, version), statistics);
        Scrape {
            started,
            in_flight: gateway.in_flight(),
            statistics: gateway.all_statistics().into_iter().map(counters).collect(),
            models: gateway.catalog().entries.iter().map(model).collect(),
            workers: overview.workers.iter().map(worker_labels).collect(),
            overview,
            gpus,
        }
    }

    /// All workers and their labels.
    pub(super) fn workers(&self) -> impl Iterator<Item = (&Labels, &WorkerView)> {
        self.workers.iter().zip(&self.overview.workers)
    }
}

fn worker_labels(worker: &WorkerView) -> Labels {
    let labels = Labels::none().with("worker", worker.worker.number()).with("node", &worker.node);
    match model_of(worker) {
        (model, Some(version)) => labels.with("model", model).with("version", version),
        (model, None) => labels.with("model", model),
    }
}

/// The model and version of a worker, out of `name:version`; an emulated GPU has no version.
pub(crate) fn model_of(worker: &WorkerView) -> (&str, Option<u32>) {
    let parts = worker.model.rsplit_once(':');
    match parts.and_then(|(name, version)| Some((name, version.parse().ok()?))) {
        Some((name, version)) => (name, Some(version)),
        None => (&worker.model, None),
    }
}
