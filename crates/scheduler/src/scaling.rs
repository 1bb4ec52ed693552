//! One deployment whose number of workers follows its load.
//!
//! What to do is `policy::autoscale`'s; here is what it sees and what was decided. A worker that is to go is ended in a
//! moment in which it has nothing to do, which those that are too many have soon: nothing that runs is interrupted.

use crate::worker::Worker;
use config::{ModelSpec, Workers};
use policy::autoscale::{Action, Admission, Autoscaler, Replicas, Service, Size, State, View};
use policy::surface::Share;
use policy::{InstanceId, LatencyTable, Span, Time};
use rpc::{Decision, ScalingView, WorkerId, WorkerState};
use std::collections::{BTreeMap, VecDeque};

/// Decisions that are remembered.
const DECISIONS: usize = 32;
/// What a start is thought to take until one was seen.
const COLD_START: Span = Span::from_secs(2);

pub(crate) struct Scaling {
    scaler: Autoscaler,
    /// Requests since the last look.
    arrived: u64,
    looked: Time,
    /// How long workers had been busy at the last look.
    busy: BTreeMap<WorkerId, Span>,
    decisions: VecDeque<(Time, String)>,
}

/// What is to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) more: usize,
    pub(crate) fewer: usize,
    /// Workers whose share is to follow their load.
    pub(crate) stretched: Vec<(WorkerId, Share)>,
}

impl Scaling {
    /// For workers that do as this table says, the first of which took so long to start.
    pub(crate) fn new(now: Time, spec: &ModelSpec, table: &LatencyTable, start: Option<Span>) -> Option<Scaling> {
        let service = service(spec, table, start.unwrap_or(COLD_START))?;
        Some(Scaling {
            scaler: Autoscaler::new(service),
            arrived: 0,
            looked: now,
            busy: BTreeMap::new(),
            decisions: VecDeque::new(),
        })
    }

    /// Bounds or batches changed; what was learned stays.
    pub(crate) fn update(&mut self, spec: &ModelSpec, table: &LatencyTable) {
        if let Some(service) = service(spec, table, self.scaler.cold_start()) {
            self.scaler.set_service(service);
        }
    }

    /// A request came.
    pub(crate) fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// What becomes of a request that finds no worker.
    pub(crate) fn admit(&self, now: Time, left: Span) -> Admission {
        self.scaler.admit(now, left)
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now - self.looked >= policy::autoscale::LOOK
    }

    /// Looks at the deployment's workers, `wanted` of which are to stay.
    pub(crate) fn look(&mut self, now: Time, waiting: usize, wanted: usize, workers: &[(WorkerId, &Worker)]) -> Change {
        let passed = (now - self.looked).nanos().max(1);
        let limit = self.scaler.service().sizes()[0].limit;
        let view = |(place, (id, worker)): (usize, &(WorkerId, &Worker))| {
            let busy = worker.busy - self.busy.get(id).copied().unwrap_or(worker.busy);
            policy::autoscale::Worker {
                // Enough to tell the workers of one deployment apart.
                id: InstanceId(id.0 as u32),
                state: match worker.state {
                    _ if place >= wanted => State::Draining,
                    WorkerState::Ready => State::Ready,
                    WorkerState::Starting | WorkerState::Restarting | WorkerState::Silent => State::Starting,
                    WorkerState::Stopping => State::Draining,
                },
                size: 0,
                share: worker.share,
                // What neighbours take of it is seen in how long batches take.
                ceiling: limit,
                // Nobody else has what it takes.
                alone: true,
                busy: (busy.nanos().saturating_mul(1_000) / passed).min(1_000) as u32,
            }
        };
        let view = View {
            arrivals: std::mem::take(&mut self.arrived),
            waiting: waiting as u64,
            workers: workers.iter().enumerate().map(view).collect(),
        };
        self.busy = workers.iter().map(|(id, worker)| (*id, worker.busy)).collect();
        self.looked = now;
        let mut change = Change::default();
        for action in self.scaler.look(now, &view) {
            match &action {
                Action::Stretch { worker, share, .. } => {
                    let own = workers.iter().find(|(id, _)| id.0 as u32 == worker.0);
                    change.stretched.extend(own.map(|(id, _)| (*id, *share)));
                    continue;
                }
                Action::Add { .. } => change.more += 1,
                Action::Remove { .. } => change.fewer += 1,
            }
            if self.decisions.len() == DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions.push_back((now, action.to_string()));
        }
        change
    }

    /// What was decided last.
    pub(crate) fn last_decision(&self) -> &str {
        self.decisions.back().map_or("", |(_, text)| text)
    }

    /// For people: of a model by its number, with this many workers allowed and wanted.
    pub(crate) fn view(&self, now: Time, model: u32, workers: Workers, wanted: usize, dry_run: bool) -> ScalingView {
        let cold_start = self.scaler.cold_start();
        let forecast = self.scaler.forecast();
        let decision = |(at, text): &(Time, String)| Decision { ago: to_a_millisecond(now - *at), text: text.clone() };
        ScalingView {
            model,
            workers,
            wanted,
            arriving: forecast.level(),
            expected: forecast.expected(cold_start),
            worker_does: self.scaler.service().sizes()[0].throughput_limit,
            cold_start: to_a_millisecond(cold_start),
            keep_alive: to_a_millisecond(self.scaler.keep_alive()),
            dry_run,
            decisions: self.decisions.iter().map(decision).collect(),
        }
    }
}

/// A time to wait as people are told it: not less than it is.
pub(crate) fn shown(expected: Span) -> Span {
    to_a_millisecond(expected) + Span::from_millis(1)
}

/// Nobody needs to read nanoseconds.
fn to_a_millisecond(span: Span) -> Span {
    Span::from_millis(span.nanos() / 1_000_000)
}

/// The share that a model's worker can count on, and where that may be stretched, its limit.
pub(crate) fn bounds(spec: &ModelSpec) -> (Share, Share) {
    let permille = |asked: config::Percent| Share::from_permille(asked.permille());
    let stretch = spec.share.as_ref().and_then(|share| Some((permille(share.request)?, permille(share.limit)?)));
    stretch.unwrap_or((Share::ALL, Share::ALL))
}

/// Batches are measured on all that a worker may have. What it does on less is taken to be as much less, which is the
/// worst that can be. Workers on a CPU, or with a share that does not change, do the same at all times.
fn size(spec: &ModelSpec, throughput: f64) -> Size {
    let (request, limit) = bounds(spec);
    let part = f64::from(request.permille()) / f64::from(limit.permille());
    Size { request, limit, throughput: throughput * part, throughput_limit: throughput }
}

fn service(spec: &ModelSpec, table: &LatencyTable, cold_start: Span) -> Option<Service> {
    let rate = |size: usize| size as f64 / table.latency(size).seconds().max(1e-9);
    // Whoever comes when a batch has just begun waits for it and for its own.
    let in_time = (1..=table.max_batch()).filter(|size| *size == 1 || table.latency(*size) <= spec.slo.scale(1, 2));
    let throughput = in_time.map(rate).max_by(f64::total_cmp)?;
    let replicas = Replicas { min: spec.workers.min() as u32, max: spec.workers.max() as u32 };
    let service = Service::new(spec.slo, replicas, vec![size(spec, throughput)], cold_start).ok()?;
    Some(service.with_keep_alive(spec.keep_alive))
}
