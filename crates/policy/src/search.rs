//! Which batch and share of a model to measure next, and which are best.
//!
//! A search is a machine that wants measurements: [`Search::next`] says which, [`Search::observe`] or
//! [`Search::cannot_run`] answers. It measures nothing itself, so a table, a simulator and a live GPU drive the same
//! code. Invariants:
//!
//! 1. Nothing is probed twice, and nothing that is known to miss the objective: where a batch missed it, a larger batch
//!    on the same or a smaller share is taken to miss it too.
//! 2. What is found met the objective when it was measured, and is the most efficient of what did.
//! 3. A search ends: every probe is a point of a finite [`Space`].
//!
//! [`Search`] is for inference and maximises throughput per share under an objective: Dilu's hybrid growth (EuroSys
//! 2025, section 3.2), larger batches while the objective holds and more share where it does not, refined by three
//! thoughts:
//!
//! - A step may lose some efficiency, for a batch that fits no share well is often followed by one that does.
//! - A batch that missed the objective says what share it needs at least: latency falls no faster than the share grows.
//!   Shares below are passed over. More of them do not raise efficiency either: a batch that missed the objective and
//!   is less efficient than the best is given up.
//! - Growth adds shares only when an objective is missed, so that the shares beside what it found are looked at last.
//!
//! [`quota`] finds the least share that keeps a part of the throughput of a whole GPU, which is all that training needs.
//! [`known`] runs both over what was measured before, and says which measurements to make again.

pub mod quota;
pub mod known;

use crate::Span;
use crate::surface::{Point, Share};
use std::collections::BTreeMap;

/// Growth goes on while a step loses at most this part of the best efficiency so far.
const TOLERANCE: f64 = 0.1;
/// Places that come this near to the best efficiency have the shares beside them looked at.
const NEAR: f64 = 0.05;

/// What can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    batches: Vec<usize>,
    shares: Vec<Share>,
}

impl Space {
    /// These batches on these shares, in any order. `None` unless there is one of each, and no batch of nothing.
    pub fn new(mut batches: Vec<usize>, mut shares: Vec<Share>) -> Option<Space> {
        batches.sort_unstable();
        batches.dedup();
        shares.sort_unstable();
        shares.dedup();
        if batches.first()? == &0 || shares.is_empty() { None } else { Some(Space { batches, shares }) }
    }

    /// Batches of 1, 2, 4 and so on up to `batch_max`, on tenths of a GPU.
    pub fn doubling(batch_max: usize) -> Space {
        let batches = std::iter::successors(Some(1usize), |batch| batch.checked_mul(2));
        let batches = batches.take_while(|batch| *batch == 1 || *batch <= batch_max).collect();
        let tenth = Share::from_permille(100).expect("a tenth is something");
        Space { batches, shares: Share::steps(tenth) }
    }

    /// How many points there are.
    pub fn points(&self) -> usize {
        self.batches.len() * self.shares.len()
    }
}

/// A measurement that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// Requests that run together.
    pub batch: usize,
    /// The part of the GPU to run them on.
    pub share: Share,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The most efficient point that was found.
    Found(Point),
    /// Not even the smallest batch meets the objective, on any share. The fastest measurement, if anything could be run.
    Unmet(Option<Point>),
}

/// A search for the most efficient batch and share under an objective.
///
/// What to do next follows from what was measured so far and from nothing else: the way through the space is walked from
/// its beginning each time, over points that are known, until it meets one that is not.
#[derive(Clone, Debug)]
pub struct Search {
    space: Space,
    objective: Span,
    /// By indices of batch and share; `None`: cannot be run.
    seen: BTreeMap<(usize, usize), Option<Point>>,
}

/// A place in the space: indices of its batch and of its share.
type Place = (usize, usize);

/// The measurement that is missing, where the way through the space cannot go on without one.
struct Missing(Place);

/// What is known of a place.
enum Known {
    /// It meets the objective with this efficiency.
    Meets(f64),
    /// It was measured and misses the objective.
    Misses(Point),
    /// It cannot be run.
    Never,
    /// It was not measured, and a place that is no harder missed the objective.
    Hopeless,
}

/// Places that met the objective, with their efficiency, as they were come to.
struct Way {
    reached: Vec<(Place, f64)>,
    best: (Place, f64),
}

impl Search {
    /// A search of this space for latencies within `objective`.
    pub fn new(space: Space, objective: Span) -> Search {
        Search { space, objective, seen: BTreeMap::new() }
    }

    /// The measurement to make next; `None` when the search has ended.
    pub fn next(&self) -> Option<Probe> {
        let Missing(place) = self.walk().err()?;
        Some(Probe { batch: self.space.batches[place.0], share: self.space.shares[place.1] })
    }

    /// Answers [`Self::next`]. Does nothing when nothing was asked.
    ///
    /// `throughput` is finite and not below zero.
    pub fn observe(&mut self, latency: Span, throughput: f64) {
        assert!(throughput.is_finite() && throughput >= 0.0, "a throughput of {throughput}");
        let Some(Probe { batch, share }) = self.next() else { return };
        self.answer(Some(Point { batch, share, latency, throughput }));
    }

    /// Answers [`Self::next`] when the point cannot be run, for want of memory perhaps.
    pub fn cannot_run(&mut self) {
        self.answer(None);
    }

    fn answer(&mut self, point: Option<Point>) {
        if let Err(Missing(place)) = self.walk() {
            self.seen.insert(place, point);
        }
    }

    /// Measurements that were asked for and answered.
    pub fn probes(&self) -> usize {
        self.seen.len()
    }

    /// What was measured, by batch and share.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.seen.values().flatten()
    }

    /// What was found; `None` while there is something to measure.
    pub fn outcome(&self) -> Option<Outcome> {
        let way = self.walk().ok()?;
        Some(match way {
            Some(way) => Outcome::Found(self.seen[&way.best.0].expect("what is best was measured")),
            None => Outcome::Unmet(self.points().min_by_key(|point| point.latency).copied()),
        })
    }

    /// Walks through the space as far as it is known. `None`: no share meets the objective.
    fn walk(&self) -> Result<Option<Way>, Missing> {
        let Some(first) = self.first()? else { return Ok(None) };
        let mut way = Way { reached: vec![first], best: first };
        self.grow(&mut way, first.0)?;
        while let Some(better) = self.beside(&way)? {
            way.reach(better);
            self.grow(&mut way, better.0)?;
        }
        Ok(Some(way))
    }

    /// A share on which the smallest batch meets the objective, from the smallest that might on.
    fn first(&self) -> Result<Option<(Place, f64)>, Missing> {
        let largest = self.space.shares.len() - 1;
        let mut share = 0;
        loop {
            let next = match self.look((0, share))? {
                Known::Meets(efficiency) => return Ok(Some(((0, share), efficiency))),
                // Whatever is foretold, nothing is given up before the whole GPU was tried.
                Known::Misses(point) => self.enough(&point, share).unwrap_or(largest),
                Known::Never | Known::Hopeless => share + 1,
            };
            if share == largest {
                return Ok(None);
            }
            share = next;
        }
    }

    /// Takes larger batches from `place` on, with more share where the objective is missed.
    fn grow(&self, way: &mut Way, (mut batch, mut share): Place) -> Result<(), Missing> {
        while batch + 1 < self.space.batches.len() {
            batch += 1;
            let Some((at, efficiency)) = self.fit(way, batch, share)? else { break };
            if efficiency < way.best.1 * (1.0 - TOLERANCE) {
                break;
            }
            share = at;
            way.reach(((batch, share), efficiency));
        }
        Ok(())
    }

    /// A share, from `share` on, on which this batch meets the objective; `None` when it is not worth finding.
    fn fit(&self, way: &Way, batch: usize, mut share: usize) -> Result<Option<(usize, f64)>, Missing> {
        let mut refused = false;
        while share < self.space.shares.len() {
            let next = match self.look((batch, share))? {
                Known::Meets(efficiency) => return Ok(Some((share, efficiency))),
                Known::Misses(point) if point.efficiency() < way.best.1 => None,
                Known::Misses(point) => self.enough(&point, share),
                // What the smallest share beyond lacks as well is not a matter of shares.
                Known::Never => (!std::mem::replace(&mut refused, true)).then_some(share + 1),
                Known::Hopeless => Some(share + 1),
            };
            let Some(next) = next else { break };
            share = next;
        }
        Ok(None)
    }

    /// The next share on which a batch that missed the objective might meet it.
    fn enough(&self, missed: &Point, share: usize) -> Option<usize> {
        let objective = self.objective.nanos() as f64;
        let size = |point: &Point| f64::from(point.share.permille());
        let latency = |point: &Point| point.latency.nanos() as f64;
        let mut needed = size(missed) * latency(missed) / objective;
        let slower = self.points().filter(|point| point.batch == missed.batch && point.share < missed.share);
        if let Some(before) = slower.last().filter(|before| before.latency > missed.latency) {
            // Through both: a part that shrinks with the share, and a rest that no share makes shorter.
            let work = (latency(before) - latency(missed)) / (1.0 / size(before) - 1.0 / size(missed));
            let rest = latency(missed) - work / size(missed);
            if rest >= objective {
                return None;
            }
            needed = needed.max(work / (objective - rest));
        }
        let after = &self.space.shares[share + 1..];
        after.iter().position(|share| f64::from(share.permille()) >= needed).map(|steps| share + 1 + steps)
    }

    /// Looks at the shares beside the best places; the first that is better than all so far.
    fn beside(&self, way: &Way) -> Result<Option<(Place, f64)>, Missing> {
        let (last, _) = way.reached[way.reached.len() - 1];
        let mut near = way.reached.clone();
        near.retain(|(_, efficiency)| *efficiency >= way.best.1 * (1.0 - NEAR));
        near.sort_by(|left, right| right.1.total_cmp(&left.1));
        for ((batch, share), _) in near {
            let more = (share + 1 < self.space.shares.len()).then_some(share + 1);
            // Growth came from smaller shares, but for where it began anew.
            let less = if (batch, share) == way.best.0 || (batch, share) == last { share.checked_sub(1) } else { None };
            for share in [more, less].into_iter().flatten() {
                if let Known::Meets(efficiency) = self.look((batch, share))?
                    && efficiency > way.best.1
                {
                    return Ok(Some(((batch, share), efficiency)));
                }
            }
        }
        Ok(None)
    }

    fn look(&self, place: Place) -> Result<Known, Missing> {
        match self.seen.get(&place) {
            Some(Some(point)) if self.meets(point) => Ok(Known::Meets(point.efficiency())),
            Some(Some(point)) => Ok(Known::Misses(*point)),
            Some(None) => Ok(Known::Never),
            None if self.hopeless(place) => Ok(Known::Hopeless),
            None => Err(Missing(place)),
        }
    }

    fn meets(&self, point: &Point) -> bool {
        point.latency <= self.objective
    }

    /// Whether a batch that is no larger missed the objective on a share that is no smaller.
    fn hopeless(&self, (batch, share): Place) -> bool {
        let missed = |point: &Option<Point>| point.is_none_or(|point| !self.meets(&point));
        self.seen.iter().any(|(at, point)| at.0 <= batch && at.1 >= share && missed(point))
    }
}

impl Way {
    fn reach(&mut self, place: (Place, f64)) {
        self.reached.push(place);
        if place.1 > self.best.1 {
            self.best = place;
        }
    }
}

#[cfg(test)]
mod tests;
