//! What is scaled: how many workers a service may have, and of which sizes.

use crate::Span;
use crate::search::quota::INFERENCE_LIMIT;
use crate::surface::{Share, Surface};
use std::fmt;

/// How large a worker can be, and what it does then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The share that it can count on.
    pub request: Share,
    /// The share that it may be stretched to.
    pub limit: Share,
    /// Requests a second, within the objective, on its request.
    pub throughput: f64,
    /// The same on its limit.
    pub throughput_limit: f64,
}

impl Size {
    /// A worker that is not stretched.
    pub fn fixed(share: Share, throughput: f64) -> Size {
        Size { request: share, limit: share, throughput, throughput_limit: throughput }
    }

    /// Requests a second on this share, along a line between request and limit.
    pub fn at(&self, share: Share) -> f64 {
        let share = share.clamp(self.request, self.limit).permille();
        let (least, most) = (self.request.permille(), self.limit.permille());
        if least == most {
            return self.throughput_limit;
        }
        let part = f64::from(share - least) / f64::from(most - least);
        self.throughput + (self.throughput_limit - self.throughput) * part
    }

    /// Requests a second that are counted on when a worker of this size is added: half stretched.
    pub fn planned(&self) -> f64 {
        (self.throughput + self.throughput_limit) / 2.0
    }

    /// Throughput for each percent of a GPU that is taken for good.
    pub fn efficiency(&self) -> f64 {
        self.planned() / self.request.percent()
    }
}

/// How many workers there may be. Equal numbers hold a service at that many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

/// A service and its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    objective: Span,
    replicas: Replicas,
    sizes: Vec<Size>,
    cold_start: Span,
    keep_alive: Option<Span>,
}

/// Why a service cannot be scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonsense(pub String);

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Nonsense {}

impl Service {
    /// Checks what was asked for. `cold_start` is what a start is thought to take until one was seen.
    pub fn new(objective: Span, replicas: Replicas, sizes: Vec<Size>, cold_start: Span) -> Result<Service, Nonsense> {
        let Replicas { min, max } = replicas;
        if min > max {
            return Err(Nonsense(format!(
                "at least {min} workers are more than at most {max}: lower the one or raise the other"
            )));
        }
        if max == 0 {
            return Err(Nonsense("at most 0 workers answer nothing: allow one".to_owned()));
        }
        if objective == Span::ZERO {
            return Err(Nonsense("an objective of no time cannot be met: give one".to_owned()));
        }
        if sizes.is_empty() {
            return Err(Nonsense("no size of worker meets the objective: give more time or more of a GPU".to_owned()));
        }
        for size in &sizes {
            let sensible = |rate: f64| rate.is_finite() && rate > 0.0;
            if size.request > size.limit {
                return Err(Nonsense(format!("a request of {} is more than a limit of {}", size.request, size.limit)));
            }
            if !sensible(size.throughput) || !sensible(size.throughput_limit) {
                return Err(Nonsense(format!("a worker of {} answers nothing: profile it", size.request)));
            }
            if size.throughput_limit < size.throughput {
                let (least, most) = (size.request, size.limit);
                return Err(Nonsense(format!("a worker does less at {most} than at {least}: profile it again")));
            }
        }
        Ok(Service { objective, replicas, sizes, cold_start, keep_alive: None })
    }

    /// The last worker stays for this long while nobody calls, whatever gaps there were.
    pub fn with_keep_alive(mut self, keep_alive: Option<Span>) -> Service {
        self.keep_alive = keep_alive;
        self
    }

    /// How long the last worker stays while nobody calls, where that was asked for.
    pub fn keep_alive(&self) -> Option<Span> {
        self.keep_alive
    }

    /// How soon a request is to be answered.
    pub fn objective(&self) -> Span {
        self.objective
    }

    /// How many workers there may be.
    pub fn replicas(&self) -> Replicas {
        self.replicas
    }

    /// Sizes of workers, as they were given.
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// What a start is thought to take.
    pub fn cold_start(&self) -> Span {
        self.cold_start
    }
}

/// A worker is stretched to this many times its request at most, so that many fit where limits count.
const STRETCH_MAX: u32 = 3;

/// Request and limit that a profile gives for batches within `execution`: the share of the most efficient batch, and the
/// share beyond which that batch gains less than a twentieth. Nothing where no batch is fast enough.
pub fn profiled(surface: &Surface, execution: Span) -> Option<(Share, Share)> {
    let best = surface.best(execution)?;
    let row = || surface.points().iter().filter(|point| point.batch == best.batch && point.share >= best.share);
    let enough = row().next_back()?.throughput * INFERENCE_LIMIT;
    let limit = row().find(|point| point.throughput >= enough)?.share;
    Some((best.share, limit))
}

/// Sizes that a profile suggests for batches within `execution`: every measured share up to the most efficient one as a
/// request, stretched to three times that or to the profile's limit, and first the smallest of them that is not stretched,
/// for GPUs whose limits are taken. Nothing where no batch is fast enough.
pub fn sizes(surface: &Surface, execution: Span) -> Vec<Size> {
    let Some((best, limit)) = profiled(surface, execution) else { return Vec::new() };
    let most = |share: Share| {
        let within = surface.points().iter().filter(|point| point.share <= share && point.latency <= execution);
        within.map(|point| point.throughput).max_by(f64::total_cmp)
    };
    let size = |request: Share| {
        let farthest = Share::from_permille(request.permille() * STRETCH_MAX).unwrap_or(Share::ALL);
        let limit = limit.min(farthest).max(request);
        let (throughput, throughput_limit) = (most(request)?, most(limit)?);
        Some(Size { request, limit, throughput, throughput_limit })
    };
    let mut sizes: Vec<Size> = surface.shares().into_iter().filter(|share| *share <= best).filter_map(size).collect();
    if let Some(smallest) = sizes.first().copied().filter(|smallest| smallest.request < smallest.limit) {
        sizes.insert(0, Size::fixed(smallest.request, smallest.throughput));
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::Point;

    fn share(percent: f64) -> Share {
        Share::from_percent(percent).unwrap()
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let size = Size::fixed(Share::ALL, 10.0);
        let check = |min, max, sizes: &[Size], expected: &str| {
            let made = Service::new(Span::from_millis(40), Replicas { min, max }, sizes.to_vec(), Span::from_secs(3));
            assert_eq!(made.unwrap_err().to_string(), expected);
        };
        check(3, 2, &[size], "at least 3 workers are more than at most 2: lower the one or raise the other");
        check(0, 0, &[size], "at most 0 workers answer nothing: allow one");
        check(0, 1, &[], "no size of worker meets the objective: give more time or more of a GPU");
        check(0, 1, &[Size { throughput: 0.0, ..size }], "a worker of 100% answers nothing: profile it");
        check(0, 1, &[Size { limit: share(10.0), ..size }], "a request of 100% is more than a limit of 10%");
        let worse = Size { request: share(10.0), throughput: 20.0, ..size };
        check(0, 1, &[worse], "a worker does less at 100% than at 10%: profile it again");
    }

    #[test]
    fn a_profile_suggests_sizes_up_to_the_most_efficient() {
        let point = |batch: usize, percent: f64, millis: f64| Point {
            batch,
            share: share(percent),
            latency: Span::from_millis_f64(millis),
            throughput: batch as f64 / millis * 1e3,
        };
        let points = [point(1, 10.0, 30.0), point(4, 20.0, 40.0), point(4, 30.0, 35.0), point(4, 40.0, 34.5)];
        let surface = Surface::new(&points).unwrap();
        let sizes = sizes(&surface, Span::from_millis(40));
        let shown: Vec<_> = sizes.iter().map(|size| (size.request.percent(), size.limit.percent())).collect();
        assert_eq!(shown, [(10.0, 10.0), (10.0, 30.0), (20.0, 30.0)]);
        assert!((sizes[2].at(share(25.0)) - (100.0 + 4e3 / 35.0) / 2.0).abs() < 1e-9);
        assert_eq!(super::sizes(&surface, Span::from_millis(20)), []);
    }
}
