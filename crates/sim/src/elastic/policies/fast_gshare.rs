//! FaST-GShare's rules (ICPP 2023): a worker is a rectangle of SM share and time quota, and GPUs are filled with them by
//! maximal rectangles.
//!
//! - Scaling (algorithm 1): for a gap in throughput, as many workers of the shape with the most throughput per share and
//!   quota as the gap holds, then the shape that covers the rest most closely; for a surplus, the least efficient first.
//!   The load that is predicted is the mean of the last five seconds, and before anything is removed the most of such
//!   means in half a minute; workers are planned at 80% of what they can do. The paper leaves both to its gateway.
//! - Sharing: a worker runs on its SM share for its quota of the time, and for longer while the shares of those who run
//!   leave room: tokens are handed out as long as all SM shares together stay within the GPU.
//! - Training is a worker like others: its request, all of the time.
//! - The last worker goes after a minute without a request.

use super::dilu::KEEP_ALIVE;
use super::reactive::add;
use super::{Claim, Grant, Policy, Shape};
use crate::elastic::latency::Latency;
use crate::elastic::scenario::{Function, Job};
use policy::Time;
use policy::autoscale::{Action, HandOver, Replicas, State, View, Why};
use std::collections::VecDeque;

/// Shares and quotas that are profiled, in thousandths.
const SHARES: [u32; 7] = [60, 120, 240, 360, 500, 800, 1_000];
const QUOTAS: [u32; 5] = [200, 400, 600, 800, 1_000];
const RECENT: usize = 5;
const MEMORY: usize = 30;
const UTILISATION: f64 = 0.8;

/// Predicted load and shapes of each function.
#[derive(Debug)]
pub(super) struct FastGShare {
    functions: Vec<Load>,
}

#[derive(Debug)]
struct Load {
    shapes: Vec<Shape>,
    replicas: Replicas,
    seconds: VecDeque<u64>,
    silent: u32,
}

impl FastGShare {
    pub(super) fn new(functions: &[Function], latencies: &[Latency]) -> FastGShare {
        let load = |(function, latency): (&Function, &Latency)| Load {
            shapes: shapes(function, latency),
            replicas: function.replicas,
            seconds: VecDeque::new(),
            silent: 0,
        };
        FastGShare { functions: functions.iter().zip(latencies).map(load).collect() }
    }
}

/// All shapes that meet the objective, the most efficient last.
fn shapes(function: &Function, latency: &Latency) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    for share in SHARES {
        for quota in QUOTAS {
            // Within its quota a batch takes so much longer.
            let execution = function.execution().scale(quota.into(), 1_000);
            let throughput = latency.throughput(share, execution) * f64::from(quota) / 1e3;
            if throughput > 0.0 {
                shapes.push(Shape { request: share, limit: share, quota, throughput });
            }
        }
    }
    shapes.sort_by(|left, right| efficiency(left).total_cmp(&efficiency(right)));
    shapes
}

fn efficiency(shape: &Shape) -> f64 {
    shape.throughput / (f64::from(shape.request) * f64::from(shape.quota))
}

impl Policy for FastGShare {
    fn placement(&self) -> &'static str {
        "request"
    }

    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape> {
        shapes(function, latency)
    }

    fn training(&self, job: &Job) -> (u32, u32) {
        (job.request.permille(), job.request.permille())
    }

    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>) {
        let area = |claim: &Claim| f64::from(claim.request) * f64::from(claim.quota) / 1e3;
        let sure: f64 = claims.iter().map(area).sum();
        let all: f64 = claims.iter().map(|claim| f64::from(claim.request)).sum();
        let more = if all > sure { ((1_000.0 - sure) / (all - sure)).clamp(0.0, 1.0) } else { 0.0 };
        // Quotas are windows of time, and windows that do not overlap may hold more than the GPU has at once.
        let fits = (1_000.0 / sure.max(1.0)).min(1.0);
        let grant = |claim: &Claim| {
            let quota = f64::from(claim.quota) / 1e3;
            Grant { share: f64::from(claim.request), part: (quota + (1.0 - quota) * more) * fits }
        };
        grants.extend(claims.iter().map(grant));
    }

    fn look(&mut self, _now: Time, function: usize, view: &View) -> Vec<Action> {
        self.functions[function].look(view)
    }
}

impl Load {
    fn look(&mut self, view: &View) -> Vec<Action> {
        if self.seconds.len() == MEMORY {
            self.seconds.pop_front();
        }
        self.seconds.push_back(view.arrivals);
        self.silent = if view.arrivals + view.waiting > 0 { 0 } else { self.silent + 1 };
        let Some(best) = self.shapes.len().checked_sub(1) else { return Vec::new() };
        let living: Vec<_> = view.workers.iter().filter(|worker| worker.state != State::Draining).collect();
        let does = |size: usize| self.shapes[size.min(best)].throughput;
        let given: f64 = living.iter().map(|worker| does(worker.size)).sum();
        let mean = |window: &[u64]| window.iter().sum::<u64>() as f64 / window.len().max(1) as f64;
        let seconds: Vec<u64> = self.seconds.iter().copied().collect();
        let recent = mean(&seconds[seconds.len().saturating_sub(RECENT)..]);
        let needed = recent / UTILISATION;
        let (least, most) = (self.replicas.min as usize, self.replicas.max as usize);
        let room = most.saturating_sub(living.len());
        let mut gap = needed - given;
        if gap > 0.0 || living.len() < least {
            let (workers, horizon) = (living.len() as u32, policy::Span::ZERO);
            let why = Why::Behind(HandOver { expected: recent, needed, given, workers, horizon, overrun: false });
            let mut chosen: Vec<usize> = Vec::new();
            while gap >= does(best) && chosen.len() < room {
                chosen.push(best);
                gap -= does(best);
            }
            if (gap > 0.0 || living.len() + chosen.len() < least) && chosen.len() < room {
                let covers = (0..=best).filter(|size| does(*size) >= gap);
                chosen.push(covers.min_by(|left, right| does(*left).total_cmp(&does(*right))).unwrap_or(best));
            }
            return chosen.into_iter().map(|size| add(size, &self.shapes[size], why)).collect();
        }
        let peak = seconds.windows(RECENT.min(seconds.len())).map(mean).fold(0.0, f64::max) / UTILISATION;
        let (mut given, mut left) = (given, living.len());
        let mut order = living;
        // Sizes are in order of efficiency.
        order.sort_by_key(|worker| (worker.size, std::cmp::Reverse(worker.id)));
        let mut leaving = Vec::new();
        for worker in order {
            let without = given - does(worker.size);
            let last = left == 1;
            let goes = if last { self.silent >= KEEP_ALIVE } else { without >= peak };
            if goes && left > least {
                leaving.push(Action::Remove { worker: worker.id, why: Why::Surplus { needed: peak, given: without } });
                given = without;
                left -= 1;
            }
        }
        leaving
    }
}
