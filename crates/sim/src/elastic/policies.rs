//! Ways to scale functions and to share GPUs by name, a file each.

mod exclusive;
mod request;
mod limit;
mod mps;
mod timeshare;
mod fast_gshare;
mod dilu;
mod weft;
mod reactive;

use super::latency::Latency;
use super::scenario::{Function, Job};
use policy::autoscale::{Action, View};
use policy::{Span, Time};

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 8] = ["exclusive", "timeshare", "limit", "request", "mps", "fast-gshare", "dilu", "weft"];

/// A worker as a policy makes it. Shares and quota in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    /// The share that it can count on.
    pub(super) request: u32,
    /// The share that it may reach.
    pub(super) limit: u32,
    /// The part of the time in which it may run.
    pub(super) quota: u32,
    /// Requests a second on its request, in its part of the time, in batches that leave time to wait.
    pub(super) throughput: f64,
}

/// Somebody on a GPU who has something to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Whether it trains.
    pub(super) training: bool,
    /// As it was placed.
    pub(super) request: u32,
    /// As it was placed.
    pub(super) limit: u32,
    /// As it was placed.
    pub(super) quota: u32,
    /// The share that a worker's batch wants, as [`Policy::wanted`] says.
    pub(super) wanted: f64,
    /// Whether its batch is in danger of being late, as [`Policy::late`] says.
    pub(super) late: bool,
    /// The share that its batch can use, as [`Policy::reach`] says.
    pub(super) reach: f64,
}

/// What somebody gets of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Grant {
    /// Thousandths of the SMs while it runs.
    pub(super) share: f64,
    /// The part of the time in which it runs.
    pub(super) part: f64,
}

impl Grant {
    fn always(share: f64) -> Grant {
        Grant { share, part: 1.0 }
    }
}

/// A batch that is about to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) size: usize,
    /// Seconds until the first of it must be answered.
    pub(super) left: f64,
    /// How many times as long as alone its worker's last batches took.
    pub(super) slower: f64,
    /// Requests that wait beside it.
    pub(super) behind: usize,
    /// The share that its worker was stretched to.
    pub(super) stretched: u32,
}

/// How functions scale and who has how much of a GPU.
pub(super) trait Policy {
    /// The policy of `policy::placement` that places workers and training.
    fn placement(&self) -> &'static str;

    /// Shapes of a function's workers, none where none is fast enough.
    fn shapes(&self, function: &Function, latency: &Latency) -> Vec<Shape>;

    /// The shape that a function begins with, of so many.
    fn begins(&self, shapes: usize) -> usize {
        shapes - 1
    }

    /// What a part of a training job asks for: request, limit.
    fn training(&self, job: &Job) -> (u32, u32);

    /// Whether training stays off GPUs with other training.
    fn trains_apart(&self) -> bool {
        false
    }

    /// The share that a worker wants for a batch.
    fn wanted(&self, shape: &Shape, _latency: &Latency, _batch: Batch) -> f64 {
        f64::from(shape.limit)
    }

    /// Whether a worker's batch would be late on all of its limit. For who does not ask, none is.
    fn late(&self, _shape: &Shape, _latency: &Latency, _batch: Batch) -> bool {
        false
    }

    /// The share that a worker can have while nobody else wants it: its limit, unless idle shares may go beyond.
    fn reach(&self, shape: &Shape, _latency: &Latency, _batch: usize) -> f64 {
        f64::from(shape.limit)
    }

    /// Who gets how much of a GPU now, in the order of the claims.
    fn divide(&self, claims: &[Claim], grants: &mut Vec<Grant>);

    /// What to do about a function.
    fn look(&mut self, now: Time, function: usize, view: &View) -> Vec<Action>;

    /// How often to look.
    fn every(&self) -> Span {
        Span::from_secs(1)
    }

    /// Whether a request with so much time left that meets no worker should wait.
    fn admits(&self, _now: Time, _function: usize, _left: Span) -> bool {
        true
    }
}

/// The policy of this name.
pub(super) fn by_name(name: &str, functions: &[Function], latencies: &[Latency]) -> Option<Box<dyn Policy>> {
    Some(match name {
        "exclusive" => Box::new(exclusive::Exclusive::new(functions, latencies)),
        "timeshare" => Box::new(timeshare::TimeShare::new(functions, latencies)),
        "limit" => Box::new(limit::Limit::new(functions, latencies)),
        "request" => Box::new(request::Request::new(functions, latencies)),
        "mps" => Box::new(mps::Mps::new(functions, latencies)),
        "fast-gshare" => Box::new(fast_gshare::FastGShare::new(functions, latencies)),
        "dilu" => Box::new(dilu::Dilu::new(functions, latencies)),
        "weft" => Box::new(weft::Weft::new(functions, latencies)),
        _ => return None,
    })
}

/// What a profile gives everybody: request and limit of the most efficient size, in thousandths; nothing where no size
/// meets the objective.
fn profiled(function: &Function) -> Option<(u32, u32)> {
    let (request, limit) = policy::autoscale::profiled(&function.surface, function.execution())?;
    Some((request.permille(), limit.permille()))
}

/// One shape with a fixed share.
fn fixed(share: u32, function: &Function, latency: &Latency) -> Vec<Shape> {
    let throughput = latency.throughput(share, function.execution());
    let shape = Shape { request: share, limit: share, quota: 1_000, throughput };
    if throughput > 0.0 { vec![shape] } else { Vec::new() }
}

/// Everybody has the share it was placed with.
fn as_placed(claims: &[Claim], grants: &mut Vec<Grant>) {
    grants.extend(claims.iter().map(|claim| Grant::always(f64::from(claim.request))));
}

/// Serving first: requests, then what batches want beyond them, which is their limit where nobody trains. Training has what
/// is left, up to `training`: requests, or the same part of each, then the rest in proportion to them.
fn stretched(claims: &[Claim], grants: &mut Vec<Grant>, training: impl Fn(&Claim) -> u32) {
    let serving = || claims.iter().filter(|claim| !claim.training);
    let alone = claims.iter().all(|claim| !claim.training);
    let wanted = |claim: &Claim| if alone { f64::from(claim.limit) } else { claim.wanted };
    let floor = |claim: &Claim| wanted(claim).min(f64::from(claim.request));
    let sure: f64 = serving().map(floor).sum();
    let more: f64 = serving().map(|claim| wanted(claim) - floor(claim)).sum();
    let part = if more > 0.0 { ((1_000.0 - sure).max(0.0) / more).min(1.0) } else { 0.0 };
    let left = (1_000.0 - sure - more * part).max(0.0);
    let jobs = || claims.iter().filter(|claim| claim.training);
    let asked: f64 = jobs().map(|claim| f64::from(claim.request)).sum();
    let beyond: f64 = jobs().map(|claim| f64::from(training(claim) - claim.request)).sum();
    let kept = if asked > left { left / asked } else { 1.0 };
    let rest = if beyond > 0.0 { ((left - asked).max(0.0) / beyond).min(1.0) } else { 0.0 };
    for claim in claims {
        let share = match claim.training {
            true => f64::from(claim.request) * kept + f64::from(training(claim) - claim.request) * rest,
            false => floor(claim) + (wanted(claim) - floor(claim)) * part,
        };
        grants.push(Grant::always(share));
    }
}
