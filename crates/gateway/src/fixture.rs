//! Gateways for tests: with models, workers and counters, and nobody behind them.

use crate::flights::Session;
use crate::statistics::{Refused, Served, Statistics};
use crate::{Gateway, Links, OrderOutcome};
use config::{Kind, Line, ModelSpec};
use policy::Span;
use rpc::{Arrival, Catalog, Compute, Entry, Order, Overview, Part, State, WorkerId, WorkerState, WorkerView};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A name that breaks out of quotes, lines, markup and JSON wherever that is possible.
pub(crate) const HOSTILE: &str = "a\\b\"c\nd}{,=\u{7}\u{2028}</script><b> ü:7";

/// A gateway that reaches nobody.
pub(crate) fn gateway() -> Arc<Gateway> {
    Gateway::new(0, Nobody)
}

/// Takes everything and answers nothing.
struct Nobody;

impl Links for Nobody {
    fn announce(&self, _: Session, _: Arrival) -> bool {
        true
    }

    fn send_part(&self, _: Part) {}

    fn withdraw(&self, _: u64, _: u32) {}

    fn undelivered(&self, _: WorkerId, _: u64, _: bool) {}

    fn order(&self, _: Order) -> OrderOutcome {
        oneshot::channel().1
    }
}

/// A model version that is ready.
pub(crate) fn entry(model: u32, name: &str, version: u32) -> Entry {
    let latency = Line { alpha: Span::from_millis(1), beta: Span::from_millis(1) };
    let spec = ModelSpec {
        name: name.into(),
        version,
        kind: Kind::Virtual { latency },
        slo: Span::from_millis(100),
        max_batch: 32,
        workers: 2.try_into().unwrap(),
        keep_alive: None,
        threads: 1,
        queue: 4_096,
        env: Default::default(),
        share: None,
        device: Default::default(),
        inputs: vec![],
        outputs: vec![],
        warmup: None,
    };
    Entry {
        model,
        spec: spec.into(),
        info: None,
        state: State::Ready,
        workers_ready: 1,
        workers_wanted: 1,
        source: Default::default(),
        health: Default::default(),
    }
}

/// Models of these names, version 1, numbered from 0.
pub(crate) fn catalog(names: &[&str]) -> Catalog {
    let mut names = names.to_vec();
    names.sort_unstable();
    Catalog {
        known: true,
        settling: false,
        entries: names.iter().zip(0..).map(|(name, number)| entry(number, name, 1)).collect(),
    }
}

/// A worker that is ready.
pub(crate) fn worker(id: u64, model: &str, busy: Span) -> WorkerView {
    WorkerView {
        worker: WorkerId(id),
        node: "node-1".into(),
        model: model.into(),
        state: WorkerState::Ready,
        busy,
        batches: id,
        restarts: 0,
        last_error: None,
        why: String::new(),
    }
}

/// Workers and queues by model number.
pub(crate) fn overview(workers: Vec<WorkerView>, queues: &[(u32, usize)]) -> Overview {
    let node = rpc::NodeView { node: 0, name: "node-1".into(), address: String::new() };
    Overview { workers, queues: queues.into(), nodes: vec![node], scaling: Vec::new() }
}

/// Counts some of everything.
pub(crate) fn use_it(statistics: &Statistics, requests: u64) {
    for number in 0..requests {
        let total = Span::from_micros(200 + number * number % 1_000_000);
        let (good, batch_size, leads) = (number % 10 > 0, 1 + number as usize % 300, number % 3 == 0);
        let compute = Compute { input: total.scale(1, 16), infer: total.scale(1, 2), output: total.scale(1, 32) };
        statistics.served(Served { total, compute, good, rows: 2, batch_size, leads });
    }
    statistics.failed(Span::from_millis(1));
    Refused::ALL.into_iter().for_each(|reason| statistics.refused(reason, Span::from_millis(2)));
}
