//! Searches over what is known already, wherever that comes from: an earlier run, a file, a measurement made twice.
//!
//! A search that is driven by hand asks and is answered, once for each point. Live, a measurement may turn out to be
//! wrong, because another contradicts it, and is made again. So what is known lives here, outside of any search, and a
//! search is walked over it from the beginning each time: [`inference`] and [`training`] give what they found, or the
//! [`Probe`] that they lack. What they lack was never known: nothing is measured twice unless it is doubtful.

use super::quota::Quota;
use super::{Outcome, Probe, Search, Space};
use crate::Span;
use crate::surface::{Point, Share};
use std::collections::BTreeMap;

/// In percent.
const DOUBT: u64 = 10;

/// What is known of points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// `None`: cannot be run.
    points: BTreeMap<Probe, Option<Point>>,
}

/// What a search for inference came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The most efficient point within the objective. Its share is the request.
    pub point: Point,
    /// The share beyond which more is of little use.
    pub limit: Share,
}

impl Known {
    /// What these points tell.
    pub fn new(points: &[Point]) -> Known {
        let mut known = Known::default();
        points.iter().for_each(|point| known.learn(*point));
        known
    }

    /// A measurement. Of two at one place the faster counts.
    pub fn learn(&mut self, point: Point) {
        let place = self.points.entry(Probe { batch: point.batch, share: point.share }).or_insert(None);
        if place.is_none_or(|before| point.latency < before.latency) {
            *place = Some(point);
        }
    }

    /// It cannot be run there.
    pub fn cannot_run(&mut self, probe: Probe) {
        self.points.insert(probe, None);
    }

    /// All measurements, by batch and share.
    pub fn points(&self) -> Vec<Point> {
        self.points.values().flatten().copied().collect()
    }

    /// Measurements to make again: on a larger share, and yet slower by more than chance explains. It is the slower one of two
    /// that is doubted, for what disturbs a measurement makes it slow.
    pub fn doubtful(&self) -> Vec<Probe> {
        let mut doubtful = Vec::new();
        let points = self.points();
        for row in points.chunk_by(|left, right| left.batch == right.batch) {
            let mut fastest = row[0].latency;
            for point in row {
                if point.latency > fastest.scale(100 + DOUBT, 100) {
                    doubtful.push(Probe { batch: point.batch, share: point.share });
                }
                fastest = fastest.min(point.latency);
            }
        }
        doubtful
    }

    fn at(&self, batch: usize, share: Share) -> Option<&Option<Point>> {
        self.points.get(&Probe { batch, share })
    }
}

/// The most efficient batch and share under an objective, and the limit; `Err`: what to measure for that. `None` inside:
/// nothing meets the objective.
pub fn inference(known: &Known, space: &Space, objective: Span) -> Result<Option<Found>, Probe> {
    let mut search = Search::new(space.clone(), objective);
    while let Some(probe) = search.next() {
        match known.at(probe.batch, probe.share) {
            Some(Some(point)) => search.observe(point.latency, point.throughput),
            Some(None) => search.cannot_run(),
            None => return Err(probe),
        }
    }
    let Some(Outcome::Found(point)) = search.outcome() else { return Ok(None) };
    let limit = smallest(known, point.batch, Quota::inference(&space.shares, point.share))?;
    Ok(Some(Found { point, limit: limit.first().copied().flatten().unwrap_or(point.share) }))
}

/// Training's request and limit; `Err`: what to measure for that. `None` inside: it cannot be run.
pub fn training(known: &Known) -> Result<Option<[Share; 2]>, Probe> {
    let found = smallest(known, 1, Quota::training())?;
    Ok(match found[..] {
        [Some(request), Some(limit)] => Some([request, limit]),
        _ => None,
    })
}

fn smallest(known: &Known, batch: usize, mut quota: Quota) -> Result<Vec<Option<Share>>, Probe> {
    while let Some(share) = quota.next() {
        match known.at(batch, share) {
            Some(Some(point)) => quota.observe(point.throughput),
            Some(None) => quota.cannot_run(),
            None => return Err(Probe { batch, share }),
        }
    }
    Ok(quota.outcome().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(batch: usize, permille: u32, millis: f64) -> Point {
        let share = Share::from_permille(permille).unwrap();
        Point { batch, share, latency: Span::from_millis_f64(millis), throughput: batch as f64 / millis * 1e3 }
    }

    #[test]
    fn of_two_measurements_the_faster_counts_and_the_slower_is_doubted() {
        let mut known = Known::new(&[point(1, 100, 10.0), point(1, 200, 12.0), point(2, 100, 30.0)]);
        let doubtful = || vec![Probe { batch: 1, share: Share::from_permille(200).unwrap() }];
        assert_eq!(known.doubtful(), doubtful());
        known.learn(point(1, 200, 11.0));
        assert_eq!(known.doubtful(), []);
        known.learn(point(1, 200, 13.0));
        assert_eq!(known.points()[1].latency, Span::from_millis(11));
        assert_eq!(Known::default().doubtful(), []);
    }

    #[test]
    fn whatever_contradicts_itself_is_doubted() {
        let millis = [10.0, 5.0, 8.0, 7.0, 11.5, 4.0, 4.3];
        for count in 1..=millis.len() {
            let points: Vec<Point> = millis[..count]
                .iter()
                .enumerate()
                .map(|(index, millis)| point(1, 100 + index as u32 * 100, *millis))
                .collect();
            let doubtful = Known::new(&points).doubtful();
            if let Err(wrong) = crate::surface::Surface::new(&points) {
                let share = points[wrong.index].share;
                assert!(doubtful.contains(&Probe { batch: 1, share }), "{share} is not among {doubtful:?}");
            }
        }
    }

    #[test]
    fn training_that_cannot_be_run_is_said() {
        let mut known = Known::default();
        let Err(probe) = training(&known) else { panic!("nothing is known") };
        assert_eq!((probe.batch, probe.share), (1, Share::ALL));
        known.cannot_run(probe);
        assert_eq!(training(&known), Ok(None));
    }

    /// A model that saturates, and is never faster than a floor.
    fn millis(batch: usize, permille: u32, full: u32) -> f64 {
        (f64::from(batch as u32) * 1000.0 / f64::from(permille.min(full))).max(2.0)
    }

    proptest! {
        #[test]
        fn a_search_over_what_is_known_is_the_search_and_asks_nothing_twice(
            full in 100..1000u32, objective in 1u64..80, before in proptest::collection::vec((0usize..6, 1u32..=10), 0..20)
        ) {
            let space = Space::doubling(32);
            let objective = Span::from_millis(objective);
            let at = |batch, share: Share| point(batch, share.permille(), millis(batch, share.permille(), full));
            let mut search = Search::new(space.clone(), objective);
            while let Some(probe) = search.next() {
                let point = at(probe.batch, probe.share);
                search.observe(point.latency, point.throughput);
            }
            let before: Vec<Point> = before.into_iter()
                .map(|(power, tenth)| at(1 << power, Share::from_permille(tenth * 100).unwrap())).collect();
            let mut known = Known::new(&before);
            let found = loop {
                match inference(&known, &space, objective) {
                    Ok(found) => break found,
                    Err(probe) => {
                        prop_assert!(known.at(probe.batch, probe.share).is_none(), "{probe:?} was known");
                        known.learn(at(probe.batch, probe.share));
                    }
                }
            };
            match search.outcome() {
                Some(Outcome::Found(point)) => {
                    let found = found.unwrap();
                    prop_assert_eq!(found.point, point);
                    // What the limit gives up is less than a twentieth of what the whole GPU gives.
                    let kept = at(point.batch, found.limit).throughput / at(point.batch, Share::ALL).throughput;
                    prop_assert!(found.limit >= point.share && kept >= 1.0 / 1.0501, "{found:?} keeps {kept}");
                }
                _ => prop_assert_eq!(found, None),
            }
        }

        #[test]
        fn training_keeps_what_it_promises(full in 50..1000u32) {
            let throughput = |share: Share| f64::from(share.permille().min(full));
            let mut known = Known::default();
            let mut probes = 0;
            let [request, limit] = loop {
                match training(&known) {
                    Ok(found) => break found.unwrap(),
                    Err(Probe { batch, share }) => {
                        probes += 1;
                        let throughput = throughput(share);
                        known.learn(Point { batch, share, latency: Span::from_secs_f64(1.0 / throughput), throughput });
                    }
                }
            };
            let all = throughput(Share::ALL);
            prop_assert!(request <= limit && probes <= 11, "{request} {limit} {probes}");
            prop_assert!(throughput(request) >= 0.8 * all && throughput(limit) >= 0.98 * all);
            let below = |share: Share| Share::from_permille(share.permille() - 50);
            prop_assert!(below(request).is_none_or(|share| throughput(share) < 0.8 * all));
            prop_assert!(below(limit).is_none_or(|share| throughput(share) < 0.98 * all));
        }
    }
}
