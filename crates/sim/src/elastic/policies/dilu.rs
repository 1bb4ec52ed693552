//! Dilu's rules (EuroSys 2025): requests and limits from the profile, placement that complements, fast vertical scaling
//! and lazy horizontal scaling.
//!
//! - Vertical (section 3.4): a worker has its request; one whose kernels are held up, here one behind whose batch others
//!   wait, has up to its limit at once, and training pays. Training has up to its limit of what is left. Dilu's tokens
//!   take 5 ms; here it takes none.
//! - Horizontal: over a window of 40 s, a worker is added when in 20 of its seconds more came than the workers do on
//!   their requests, and one is removed when in 30 of them one fewer would have done. As many are added as the mean of
//!   the excess asks for, which is generous: the paper adds instances one by one.
//! - The last worker goes after a minute without a request.

use super::profiled::profiled;
use super::reactive::add;
use super::{Batch, Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::Time;
use policy::autoscale::{Action, HandOver, Replicas, State, View, Why};
use std::collections::VecDeque;

const WINDOW: usize = 40;
const OUT: usize = 20;
const IN: usize = 30;
/// Looks, a second each, without a request after which the last worker goes.
pub(super) const KEEP_ALIVE: u32 = 60;

/// Windows over the seconds of each function.
#[derive(Debug)]
pub(super) struct Dilu {
    functions: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    shape: Option<Shape>,
    replicas: Replicas,
    /// Requests in each second, the last one last.
    seconds: VecDeque<u64>,
    silent: u32,
}

impl Dilu {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> Dilu {
        let window = |(function, latency): (&Function, &Latency)| Window {
            shape: shapes(function, latency).last().copied(),
            replicas: function.replicas,
            seconds: VecDeque::new(),
            silent: 0,
        };
        Dilu { functions: functions.iter().zip(latencies).map(window).collect() }
    }
}

fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    let Some((request, limit)) = profiled(function) else { return Vec::new() };
    vec![Shape { request, limit, quota: 1_000, throughput: latency.throughput(request, function.execution()) }]
}

/// Serving first: requests, then what batches want beyond them, which is their limit where nobody trains. Training has what
/// is left, up to its limit: requests, or the same part of each, then the rest in proportion to what they lack.
fn stretched(claims: &[Claim], grants: &mut Vec<Grant>) {
    let serving = || claims.iter().filter(|claim| !claim.training);
    let alone = claims.iter().all(|claim| !claim.training);
    let wanted = |claim: &Claim| f64::from(if alone { claim.limit } else { claim.wanted });
    let floor = |claim: &Claim| wanted(claim).min(f64::from(claim.request));
    let sure: f64 = serving().map(floor).sum();
    let more: f64 = serving().map(|claim| wanted(claim) - floor(claim)).sum();
    let part = if more > 0.0 { ((1_000.0 - sure).max(0.0) / more).min(1.0) } else { 0.0 };
    let left = (1_000.0 - sure - more * part).max(0.0);
    let jobs = || claims.iter().filter(|claim| claim.training);
    let asked: f64 = jobs().map(|claim| f64::from(claim.request)).sum();
    let beyond: f64 = jobs().map(|claim| f64::from(claim.limit - claim.request)).sum();
    let kept = if asked > left { left / asked } else { 1.0 };
    let rest = if beyond > 0.0 { ((left - asked).max(0.0) / beyond).min(1.0) } else { 0.0 };
    for claim in claims {
        let share = match claim.training {
            true => f64::from(claim.request) * kept + f64::from(claim.limit - claim.request) * rest,
            false => floor(claim) + (wanted(claim) - floor(claim)) * part,
        };
        grants.push(Grant::always(share));
    }
}

impl Policy for Dilu {
    fn placement(&self) -> &'static str {
        "dilu"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.request.permille(), job.limit.permille())
    }

    fn wanted(&self, shape: &Shape, latency: &Latency, batch: Batch) -> u32 {
        let late = latency.seconds(batch.size, f64::from(shape.request)) > batch.left;
        if batch.behind > 0 || late { shape.limit } else { shape.request }
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        stretched(claims, grants);
    }

    fn look(&mut self, _now: Time, function: usize, view: &View) -> Vec<Action> {
        self.functions[function].look(view)
    }
}

impl Window {
    fn look(&mut self, view: &View) -> Vec<Action> {
        let Some(shape) = self.shape else { return Vec::new() };
        if self.seconds.len() == WINDOW {
            self.seconds.pop_front();
        }
        self.seconds.push_back(view.arrivals);
        self.silent = if view.arrivals + view.waiting > 0 { 0 } else { self.silent + 1 };
        let living: Vec<_> = view.workers.iter().filter(|worker| worker.state != State::Draining).collect();
        let (least, most) = (self.replicas.min as usize, self.replicas.max as usize);
        if living.is_empty() || living.len() < least {
            let missing = least.max(usize::from(view.arrivals + view.waiting > 0)).saturating_sub(living.len());
            let why = Why::FromZero { requests: view.arrivals };
            return (0..missing.min(most)).map(|_| add(0, &shape, why)).collect();
        }
        let given = shape.throughput * living.len() as f64;
        let over: Vec<f64> =
            self.seconds.iter().map(|count| *count as f64 - given).filter(|over| *over > 0.0).collect();
        if over.len() >= OUT && living.len() < most {
            let needed = given + over.iter().sum::<f64>() / over.len() as f64;
            let count = ((needed - given) / shape.throughput).ceil().max(1.0) as usize;
            let hand_over = HandOver {
                expected: needed,
                needed,
                given,
                workers: living.len() as u32,
                horizon: policy::Span::ZERO,
                overrun: false,
            };
            self.seconds.clear();
            return (0..count.min(most - living.len())).map(|_| add(0, &shape, Why::Behind(hand_over))).collect();
        }
        let fewer = given - shape.throughput;
        let under = self.seconds.iter().filter(|count| **count as f64 <= fewer).count();
        let last =
            living.iter().max_by_key(|worker| (worker.state == State::Starting, worker.id)).map(|worker| worker.id);
        let surplus = living.len() > 1 && under >= IN;
        let idle = living.len() == 1 && self.silent >= KEEP_ALIVE;
        match last.filter(|_| living.len() > least && (surplus || idle)) {
            Some(worker) => {
                self.seconds.clear();
                vec![Action::Remove { worker, why: Why::Surplus { needed: fewer, given } }]
            }
            None => Vec::new(),
        }
    }
}
