//! What a model does with a part of a GPU: latency and throughput by batch and share, as measured.
//!
//! Invariants of every surface: at least one point; no point twice; batches, latencies and throughputs above zero;
//! points in order of batch, then share. No batch contradicts itself: more of a GPU does not make it half as slow
//! again as less did, nor does the largest share leave it a tenth slower than the smallest. Smaller dips are noise,
//! which published measurements are full of, and stay as they are.
//!
//! A surface is what was seen and nothing else. What lies between its points is for [`crate::predict`].

mod csv;

use crate::Span;
use std::fmt;

/// A part of a GPU, in thousandths of its streaming multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// A whole GPU.
    pub const ALL: Share = Share(1000);

    /// From thousandths; `None` unless it is something, and at most everything.
    pub const fn from_permille(permille: u32) -> Option<Share> {
        if permille == 0 || permille > 1000 { None } else { Some(Share(permille)) }
    }

    /// From a percentage, to the nearest thousandth; `None` unless it is something, and at most everything.
    pub fn from_percent(percent: f64) -> Option<Share> {
        if percent.is_finite() && percent <= 100.0 {
            Share::from_permille((percent * 10.0).round() as u32)
        } else {
            None
        }
    }

    /// In thousandths.
    pub const fn permille(self) -> u32 {
        self.0
    }

    /// In percent.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10.0
    }

    /// Shares from one step to a whole GPU, a step apart.
    pub fn steps(step: Share) -> Vec<Share> {
        (1..=1000 / step.0).map(|count| Share(count * step.0)).collect()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenths => write!(f, "{}.{tenths}%", self.0 / 10),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests that run together.
    pub batch: usize,
    /// The part of the GPU that they run on.
    pub share: Share,
    /// How long a batch takes.
    pub latency: Span,
    /// Requests a second.
    pub throughput: f64,
}

impl Point {
    /// Throughput for each percent of the GPU. What a search makes as large as the objective lets it be.
    pub fn efficiency(&self) -> f64 {
        self.throughput / self.share.percent()
    }
}

/// Why points are no surface.
#[derive(Clone, Debug, PartialEq)]
pub struct Contradiction {
    /// Which of the points shows it.
    pub index: usize,
    /// What is wrong and what to do about it.
    pub problem: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Contradiction {}

/// Latency may rise this much, in percent, from some share to a larger one before the points contradict each other.
/// One published point in three hundred lies 37% above its neighbour; none lies higher.
const RISE_MAX: u64 = 50;
/// The same from the smallest share to the largest, where the published grids rise by one percent.
const RISE_MAX_OVERALL: u64 = 10;
/// Batches beyond this are a typing error.
const BATCH_MAX: usize = 1_000_000;
const LATENCY_MAX: Span = Span::from_secs(1_000_000);

/// Measurements of one model on one type of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    points: Vec<Point>,
}

impl Surface {
    /// Checks the points, which may come in any order.
    pub fn new(points: &[Point]) -> Result<Surface, Contradiction> {
        for (index, point) in points.iter().enumerate() {
            if let Some(problem) = nonsense(point) {
                return Err(Contradiction { index, problem });
            }
        }
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by_key(|index| (points[*index].batch, points[*index].share, *index));
        for pair in order.windows(2) {
            let (first, second) = (&points[pair[0]], &points[pair[1]]);
            if (first.batch, first.share) == (second.batch, second.share) {
                let problem = format!(
                    "batch {} at {} was given before: keep one of the two measurements",
                    second.batch, second.share
                );
                return Err(Contradiction { index: pair[1], problem });
            }
        }
        for row in order.chunk_by(|left, right| points[*left].batch == points[*right].batch) {
            rising(points, row)?;
        }
        if points.is_empty() {
            return Err(Contradiction { index: 0, problem: "there is no measurement: give at least one".to_owned() });
        }
        Ok(Surface { points: order.into_iter().map(|index| points[index]).collect() })
    }

    /// All points, by batch and then by share.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The measurement of this batch and share.
    pub fn at(&self, batch: usize, share: Share) -> Option<&Point> {
        let index = self.points.binary_search_by_key(&(batch, share), |point| (point.batch, point.share)).ok()?;
        Some(&self.points[index])
    }

    /// Batches that were measured, in order.
    pub fn batches(&self) -> Vec<usize> {
        let mut batches: Vec<usize> = self.points.iter().map(|point| point.batch).collect();
        batches.dedup();
        batches
    }

    /// Shares that were measured, in order.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares: Vec<Share> = self.points.iter().map(|point| point.share).collect();
        shares.sort_unstable();
        shares.dedup();
        shares
    }

    /// The most efficient point whose latency is within the objective, found by looking at all of them.
    pub fn best(&self, objective: Span) -> Option<&Point> {
        let good = self.points.iter().filter(|point| point.latency <= objective);
        good.max_by(|left, right| left.efficiency().total_cmp(&right.efficiency()))
    }

    /// The least latency that was measured, which no objective below can be met with.
    pub fn fastest(&self) -> &Point {
        self.points.iter().min_by_key(|point| point.latency).expect("a surface has a point")
    }
}

fn nonsense(point: &Point) -> Option<String> {
    if !(1..=BATCH_MAX).contains(&point.batch) {
        return Some(format!("{} is no batch size: expected 1 to {BATCH_MAX}", point.batch));
    }
    if point.latency == Span::ZERO || point.latency > LATENCY_MAX {
        return Some(format!("{} is no latency: expected more than nothing, and less than days", point.latency));
    }
    if !(point.throughput.is_finite() && point.throughput > 0.0) {
        return Some(format!("{} is no throughput: expected a number above zero", point.throughput));
    }
    None
}

/// Refuses a batch whose latency rises with its share by more than noise. `row` holds its points in order of share.
fn rising(points: &[Point], row: &[usize]) -> Result<(), Contradiction> {
    let first = &points[row[0]];
    let mut fastest = first;
    for (position, index) in row.iter().enumerate() {
        let point = &points[*index];
        let last = position + 1 == row.len();
        let earlier = if point.latency > fastest.latency.scale(100 + RISE_MAX, 100) {
            fastest
        } else if last && point.latency > first.latency.scale(100 + RISE_MAX_OVERALL, 100) {
            first
        } else {
            fastest = if point.latency < fastest.latency { point } else { fastest };
            continue;
        };
        let problem = format!(
            "batch {} takes {} at {} but {} at {}: more of a GPU does not slow a batch down; measure both again, with \
             nothing else on the GPU",
            point.batch, point.latency, point.share, earlier.latency, earlier.share
        );
        return Err(Contradiction { index: *index, problem });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(batch: usize, percent: f64, millis: f64) -> Point {
        let share = Share::from_percent(percent).unwrap();
        Point { batch, share, latency: Span::from_millis_f64(millis), throughput: batch as f64 / millis * 1e3 }
    }

    #[test]
    fn shares_are_something_and_at_most_everything() {
        assert_eq!(Share::from_percent(30.0).map(|share| share.to_string()).as_deref(), Some("30%"));
        assert_eq!(Share::from_percent(14.2857).map(|share| share.to_string()).as_deref(), Some("14.3%"));
        for percent in [0.0, -10.0, 100.1, 0.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::from_percent(percent), None, "{percent}");
        }
        assert_eq!(Share::steps(Share(300)), [Share(300), Share(600), Share(900)]);
    }

    #[test]
    fn the_most_efficient_point_within_the_objective() {
        let points = [point(1, 50.0, 10.0), point(4, 50.0, 20.0), point(8, 50.0, 39.0), point(1, 10.0, 30.0)];
        let surface = Surface::new(&points).unwrap();
        let best = |millis| surface.best(Span::from_millis(millis)).map(|point| (point.batch, point.share.percent()));
        assert_eq!(best(40), Some((8, 50.0)));
        assert_eq!(best(30), Some((4, 50.0)));
        assert_eq!(best(9), None);
        assert_eq!(surface.fastest().latency, Span::from_millis(10));
        assert_eq!((surface.batches(), surface.shares().len()), (vec![1, 4, 8], 2));
    }

    #[test]
    fn contradictions_say_what_to_do() {
        let check = |points: &[Point], expected: &str| {
            assert_eq!(Surface::new(points).unwrap_err().to_string(), expected);
        };
        check(&[], "there is no measurement: give at least one");
        check(
            &[point(1, 10.0, 4.0), point(2, 10.0, 4.0), point(1, 10.0, 5.0)],
            "batch 1 at 10% was given before: keep one of the two measurements",
        );
        let slower = |first, second| {
            format!(
                "batch 1 takes {second} but {first}: more of a GPU does not slow a batch down; measure both again, \
                 with nothing else on the GPU"
            )
        };
        check(&[point(1, 30.0, 7.0), point(1, 20.0, 4.0), point(1, 10.0, 8.0)], &slower("4ms at 20%", "7ms at 30%"));
        check(&[point(1, 10.0, 10.0), point(1, 20.0, 12.0)], &slower("10ms at 10%", "12ms at 20%"));
        let idle = Point { throughput: -1.0, ..point(1, 10.0, 4.0) };
        check(&[idle], "-1 is no throughput: expected a number above zero");
    }

    #[test]
    fn noise_is_no_contradiction() {
        let noisy = [point(1, 10.0, 10.0), point(1, 20.0, 8.0), point(1, 30.0, 11.5), point(1, 40.0, 8.5)];
        assert_eq!(Surface::new(&noisy).unwrap().points().len(), 4);
    }
}
